// MPI as a backend: ranks are processes. Process 0 generates and judges; all of them, process 0
// included, run the cases.
//
// A case goes from process 0 to all by broadcast on a control communicator of their own; processes
// beyond the case's world wait for the next one; the outcomes come back as messages.

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <sstream>

#include <lockstep/kit/backend.hpp>
#include <lockstep/mpi/communicator.hpp>

#include "../step_values.hpp"
#include "case_bytes.hpp"
#include "clean_case.hpp"

namespace lockstep::kit {
namespace {

void require(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw BackendBroken(std::string(call) + ": " +
                      std::string(text, static_cast<std::size_t>(length)));
}

// Whether a launcher of MPI started this process (Open MPI's, or one of MPICH's family).
bool started_by_launcher() {
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_SIZE", "PMI_RANK"}) {
    if (std::getenv(variable) != nullptr) return true;
  }
  return false;
}

bool on_path(const std::string& program) {
  const char* path = std::getenv("PATH");
  std::istringstream directories(path == nullptr ? "" : path);
  for (std::string directory; std::getline(directories, directory, ':');) {
    if (::access((std::filesystem::path(directory) / program).c_str(), X_OK) == 0) return true;
  }
  return false;
}

// The processes of this job, and the channel between the judge and the others.
class Job {
 public:
  Job() {
    require(MPI_Comm_dup(MPI_COMM_WORLD, &control_), "MPI_Comm_dup");
    MPI_Comm_set_errhandler(control_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(control_, &rank_);
    MPI_Comm_size(control_, &size_);
  }
  ~Job() {
    for (auto& [ranks, parent] : parents_) MPI_Comm_free(&parent);
    MPI_Comm_free(&control_);
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  const mpi::Environment& environment() const { return environment_; }
  int rank() const { return rank_; }
  int size() const { return size_; }

  // MPI's communicator of the first `ranks` processes, which all enter the first time.
  MPI_Comm first_processes(int ranks) {
    if (const auto known = parents_.find(ranks); known != parents_.end()) return known->second;
    MPI_Group all, first;
    require(MPI_Comm_group(control_, &all), "MPI_Comm_group");
    int range[1][3] = {{0, ranks - 1, 1}};
    require(MPI_Group_range_incl(all, 1, range, &first), "MPI_Group_range_incl");
    MPI_Comm parent = MPI_COMM_NULL;
    require(MPI_Comm_create_group(control_, first, creation_tag, &parent), "MPI_Comm_create_group");
    MPI_Group_free(&first);
    MPI_Group_free(&all);
    return parents_.emplace(ranks, parent).first->second;
  }

  // From process 0 to all. No bytes at all mean the end.
  void announce(const Bytes& bytes) {
    std::int64_t size = static_cast<std::int64_t>(bytes.size());
    require(MPI_Bcast(&size, 1, MPI_INT64_T, 0, control_), "MPI_Bcast");
    // MPI takes no const here.
    if (size > 0) broadcast(const_cast<std::byte*>(bytes.data()), size);
  }
  Bytes await_announcement() {
    std::int64_t size = 0;
    require(MPI_Bcast(&size, 1, MPI_INT64_T, 0, control_), "MPI_Bcast");
    Bytes bytes(static_cast<std::size_t>(size));
    if (size > 0) broadcast(bytes.data(), size);
    return bytes;
  }

  void report(const Bytes& bytes) {
    const std::int64_t size = static_cast<std::int64_t>(bytes.size());
    require(MPI_Send(&size, 1, MPI_INT64_T, 0, tag, control_), "MPI_Send");
    require(MPI_Send(bytes.data(), as_count(size), MPI_BYTE, 0, tag, control_), "MPI_Send");
  }
  Bytes await_report(int from) {
    std::int64_t size = 0;
    require(MPI_Recv(&size, 1, MPI_INT64_T, from, tag, control_, MPI_STATUS_IGNORE), "MPI_Recv");
    Bytes bytes(static_cast<std::size_t>(size));
    require(
        MPI_Recv(bytes.data(), as_count(size), MPI_BYTE, from, tag, control_, MPI_STATUS_IGNORE),
        "MPI_Recv");
    return bytes;
  }

  // Lets a rank that stalls go on, from process 0.
  void release(int rank) {
    require(MPI_Send(nullptr, 0, MPI_BYTE, rank, release_tag, control_), "MPI_Send");
  }
  void await_release() {
    require(MPI_Recv(nullptr, 0, MPI_BYTE, 0, release_tag, control_, MPI_STATUS_IGNORE),
            "MPI_Recv");
  }

 private:
  static constexpr int tag = 1;
  static constexpr int release_tag = 3;
  static constexpr int creation_tag = 2;  // Open MPI matches it like a message's

  static int as_count(std::int64_t size) {
    if (size > INT32_MAX) throw BackendBroken("a case is larger than 2 GiB");
    return static_cast<int>(size);
  }
  void broadcast(std::byte* data, std::int64_t size) {
    require(MPI_Bcast(data, as_count(size), MPI_BYTE, 0, control_), "MPI_Bcast");
  }

  mpi::Environment environment_;
  MPI_Comm control_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
  std::map<int, MPI_Comm> parents_;
};

class MpiBackend final : public Backend {
 public:
  ~MpiBackend() override {
    if (job_ == nullptr) return;
    worlds_.clear();
    if (job_->rank() == 0 && others_serve_) {
      try {
        job_->announce({});
      } catch (const BackendBroken&) {
        // The others are gone already.
      }
    }
  }

  BackendInfo info() const override {
    BackendInfo info;
    info.name = "mpi";
    info.description = "processes over MPI";
    info.sum_rule = sum_rule_;
    info.most_ranks = job_ == nullptr ? 256 : job_->size();
    info.offers_throws = true;
    info.offers_stalls = true;
    if (!started_by_launcher() && !on_path("mpirun")) {
      info.unavailable = "mpirun is not on the PATH";
    }
    return info;
  }

  void configure(const BackendOptions& options) override {
    sum_rule_ = options.sum_rule.value_or(SumRule::unspecified);
  }

  // Processes take turns on few cores, and making a communicator takes its time as well.
  void set_timeout(std::optional<std::chrono::milliseconds> timeout) override {
    timeout_ = timeout ? std::optional(10 * *timeout) : std::nullopt;
  }

  std::vector<std::string> launcher(int ranks) const override {
    if (started_by_launcher()) return {};
    std::vector<std::string> command = {"mpirun"};
#ifdef OPEN_MPI
    // More processes than cores are ordinary here, and they must not fight for the cores.
    command.insert(command.end(), {"--oversubscribe", "--bind-to", "none", "--quiet", "--mca",
                                   "mpi_yield_when_idle", "1"});
    if (::geteuid() == 0) command.push_back("--allow-run-as-root");
#endif
    command.insert(command.end(), {"-np", std::to_string(ranks)});
    return command;
  }

  std::optional<int> serve() override {
    start();
    others_serve_ = true;
    if (job_->rank() == 0) return std::nullopt;
    for (;;) {
      const Bytes bytes = job_->await_announcement();
      if (bytes.empty()) return 0;
      Announcement how;
      std::memcpy(&how, bytes.data(), sizeof how);
      timeout_ = how.timeout();
      const Case c = decode_case(std::span(bytes).subspan(sizeof how));
      if (job_->rank() >= c.world) continue;
      job_->report(encode(take_part(c, how.fresh, [this] { job_->await_release(); })));
    }
  }

  Transcript run(const Case& c) override {
    start();
    require_processes(c.world);
    const bool clean = leaves_no_trace(c);
    const bool fresh = !clean || !reusable_.contains(c.world);
    const Announcement how{fresh, timeout_ ? timeout_->count() : 0};
    Bytes announcement = encode(c);
    const auto* head = reinterpret_cast<const std::byte*>(&how);
    announcement.insert(announcement.begin(), head, head + sizeof how);
    job_->announce(announcement);

    std::vector<RankTranscript> ranks(static_cast<std::size_t>(c.world));
    const auto collect = [&](bool stalling) {
      for (int rank = 1; rank < c.world; ++rank) {
        if ((departure_of(c, rank) == Departure::stalls) != stalling) continue;
        if (stalling) job_->release(rank);
        ranks[static_cast<std::size_t>(rank)] = decode_transcript(job_->await_report(rank));
      }
    };
    // Where this rank is stuck itself, it hears from the others before it goes on.
    bool heard = false;
    const auto hear = [&] {
      if (!heard) collect(false);
      heard = true;
    };
    ranks[0] = take_part(c, fresh, hear);
    hear();
    collect(true);
    if (clean && std::ranges::none_of(ranks, has_failed)) {
      reusable_.insert(c.world);
    } else {
      reusable_.erase(c.world);
    }
    return assemble(c, ranks);
  }

  void run_ranks(int ranks, const RankBody& body) override {
    start();
    require_processes(ranks);
    if (job_->rank() >= ranks) return;
    SubjectOf<mpi::Communicator> subject(fresh_world(ranks));
    body(job_->rank(), subject);
  }

 private:
  // How a case is to be run; goes before it to all processes.
  struct Announcement {
    bool fresh = false;
    std::int64_t milliseconds = 0;  // the timeout, 0 for none

    std::optional<std::chrono::milliseconds> timeout() const {
      if (milliseconds == 0) return std::nullopt;
      return std::chrono::milliseconds(milliseconds);
    }
  };

  void start() {
    if (job_ == nullptr) job_ = std::make_unique<Job>();
  }

  void require_processes(int ranks) const {
    if (ranks <= job_->size()) return;
    throw BackendBroken("a world of " + std::to_string(ranks) + " in a job of " +
                        std::to_string(job_->size()) + " processes");
  }

  // This process's part. Making a communicator costs more than most cases, so one is used again as
  // long as that cannot be noticed; whether it is, the judge decides for all.
  RankTranscript take_part(const Case& c, bool fresh, const std::function<void()>& stall) {
    RankTranscript transcript;
    try {
      play(c, fresh, transcript, stall);
    } catch (const InjectedFault&) {
    } catch (const TransportError& error) {  // there was no world in time
      transcript.assign(c.steps.size(), std::nullopt);
      transcript.front().emplace().kind = Outcome::Kind::broken;
      transcript.front()->message = error.what();
    }
    return transcript;
  }

  void play(const Case& c, bool fresh, RankTranscript& transcript,
            const std::function<void()>& stall) {
    if (fresh) worlds_.erase(c.world);
    const auto kept = worlds_.find(c.world);
    mpi::Communicator world = kept != worlds_.end() ? kept->second : fresh_world(c.world);
    if (leaves_no_trace(c)) worlds_.insert_or_assign(c.world, world);
    SubjectOf<mpi::Communicator> subject(std::move(world));
    perform(c, job_->rank(), subject, transcript, stall);
  }

  mpi::Communicator fresh_world(int ranks) {
    mpi::Options options;
    options.sum_rule = sum_rule_;
    options.timeout = timeout_;
    return mpi::Communicator(job_->environment(), job_->first_processes(ranks), options);
  }

  SumRule sum_rule_ = SumRule::unspecified;
  std::optional<std::chrono::milliseconds> timeout_;
  std::unique_ptr<Job> job_;
  bool others_serve_ = false;  // and wait for the end to be announced
  std::map<int, mpi::Communicator> worlds_;
  std::set<int> reusable_;  // the judge's list of worlds whose communicator is as good as new
};

}  // namespace
}  // namespace lockstep::kit

LOCKSTEP_BACKEND(lockstep::kit::MpiBackend);
