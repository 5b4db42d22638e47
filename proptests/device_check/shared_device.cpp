#include "shared_device.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include <lockstep/kit/case_file.hpp>
#include <lockstep/kit/generator.hpp>
#include <lockstep/kit/judge.hpp>
#include <lockstep/kit/program_oracle.hpp>

#include "../backends/case_bytes.hpp"
#include "../backends/gpu_transfer.hpp"
#include "socket_plane.hpp"

namespace lockstep::device_check {
namespace {

constexpr std::uint64_t seed = 1;
constexpr std::chrono::seconds patience{60};

using Words = std::vector<std::int64_t>;

// Bytes in words, the number of bytes first.
Words packed(const kit::Bytes& bytes) {
  Words words(1 + (bytes.size() + 7) / 8, 0);
  words[0] = static_cast<std::int64_t>(bytes.size());
  if (!bytes.empty()) std::memcpy(words.data() + 1, bytes.data(), bytes.size());
  return words;
}
std::span<const std::byte> unpacked(const Words& words) {
  return std::as_bytes(std::span(words).subspan(1)).first(static_cast<std::size_t>(words[0]));
}

// One rank's process: draws the same cases as all others, plays its part, and as rank 0 judges.
int play(int rank, std::vector<int> sockets, int cases) {
  const int ranks = static_cast<int>(sockets.size());
  std::vector<int> everybody;
  for (int r = 0; r < ranks; ++r) everybody.push_back(r);
  const auto all_sockets = std::make_shared<Sockets>(rank, std::move(sockets));
  SocketPlane referee(all_sockets, everybody, "referee", "referee");

  const gpu::Stream stream(rank % gpu::device_count());
  gpu::Options options;
  options.sum_rule = SumRule::exact;
  options.timeout = patience;
  const auto fresh = [&](int number) {
    return gpu::Communicator(std::make_unique<SocketPlane>(all_sockets, everybody, "world",
                                                           "world " + std::to_string(number)),
                             stream, options);
  };
  // NCCL takes a while to connect ranks, so a communicator is kept until a case may have left a
  // trace.
  std::optional<gpu::Communicator> kept;
  const std::span<const kit::Property> properties = kit::properties();
  for (int i = 0; i < cases; ++i) {
    const kit::Property& property = properties[static_cast<std::size_t>(i) % properties.size()];
    const auto index = static_cast<std::uint64_t>(i) / properties.size();
    kit::GeneratorLimits limits;
    limits.fewest_ranks = ranks;
    limits.most_ranks = ranks;
    kit::Case c = kit::draw_case(property.name, limits, kit::case_seed(seed, property.name, index));
    c.sum_rule = SumRule::exact;
    for (kit::Step& step : c.steps) step.departures.clear();  // ranks leave by returning
    const bool clean = std::ranges::all_of(c.steps, [](const kit::Step& step) {
      return step.group.empty() &&
             std::ranges::all_of(step.inputs, [](const auto& input) { return input.has_value(); });
    });
    if (!clean) kept.reset();
    kit::RankTranscript mine;
    {
      gpu::Communicator world = kept ? *kept : fresh(i);
      if (clean) kept = world;
      kit::SubjectOf<gpu::Communicator> subject(std::move(world));
      kit::perform(c, rank, subject, mine, [] {});
    }
    const auto answers = referee.gather_any(packed(kit::encode(mine)));
    std::vector<kit::RankTranscript> all;
    for (const Words& answer : answers) all.push_back(kit::decode_transcript(unpacked(answer)));
    const auto divergence = kit::judge(c, kit::assemble(c, all), SumRule::exact);
    if (!divergence) continue;
    if (rank == 0) {
      std::printf("%d ranks as processes: broken in case %d (%s)\n%s\n%s\n", ranks, i,
                  std::string(property.name).c_str(), divergence->explanation.c_str(),
                  kit::write_case(kit::with_expected(std::move(c))).c_str());
    }
    return 1;
  }
  if (rank == 0) std::printf("%d ranks as processes: %d cases hold\n", ranks, cases);
  return 0;
}

[[noreturn]] void be_rank(int rank, std::vector<std::vector<int>>& mesh, int cases) {
  for (std::size_t other = 0; other < mesh.size(); ++other) {
    if (static_cast<int>(other) == rank) continue;
    for (int socket : mesh[other]) {
      if (socket >= 0) ::close(socket);
    }
  }
  // NCCL before 2.30 refuses two ranks on one device unless they seem to be on different hosts,
  // later ones unless they are told. Only where the user has not said otherwise.
  ::setenv("NCCL_HOSTID", ("lockstep-" + std::to_string(rank)).c_str(), 0);
  ::setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 0);
  int status = 3;
  try {
    status = play(rank, std::move(mesh[static_cast<std::size_t>(rank)]), cases);
  } catch (const std::exception& error) {
    std::printf("rank %d: %s\n", rank, error.what());
  }
  std::fflush(nullptr);
  std::_Exit(status);
}

}  // namespace

int check_ranks(int ranks, int cases) {
  std::vector<std::vector<int>> mesh = Sockets::mesh(ranks);
  std::fflush(nullptr);
  std::vector<pid_t> processes;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t process = ::fork();
    if (process == 0) be_rank(rank, mesh, cases);
    if (process < 0) {
      std::perror("fork");
      break;
    }
    processes.push_back(process);
  }
  for (const auto& sockets : mesh) {
    for (int socket : sockets) {
      if (socket >= 0) ::close(socket);
    }
  }
  int worst = static_cast<int>(processes.size()) == ranks ? 0 : 3;
  for (std::size_t left = processes.size(); left > 0; --left) {
    int ended = 0;
    if (::waitpid(-1, &ended, 0) < 0) break;
    const int status = WIFEXITED(ended) ? WEXITSTATUS(ended) : 3;
    if (WIFSIGNALED(ended)) std::printf("a rank was ended by signal %d\n", WTERMSIG(ended));
    worst = std::max(worst, status);
  }
  return worst;
}

}  // namespace lockstep::device_check
