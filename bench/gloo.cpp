// The workload of `lockstep bench` on Gloo, between processes over TCP on this machine:
//
//   bench/gloo --ranks 8 --bytes 64,16Mi
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <vector>

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoallv.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <lockstep/error.hpp>

#include "arguments.hpp"
#include "peer.hpp"

namespace lockstep::bench {
namespace {

class Gloo final : public Peer {
 public:
  Gloo(int rank, int ranks, const std::string& meeting_directory) {
    gloo::transport::tcp::attr attributes;
    attributes.hostname = "127.0.0.1";
    auto device = gloo::transport::tcp::CreateDevice(attributes);
    gloo::rendezvous::FileStore store(meeting_directory);
    auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
    context->connectFullMesh(store, device);
    context_ = context;
  }

  int rank() const override { return context_->rank; }
  int ranks() const override { return context_->size; }
  // Gloo has a reduce-scatter only in place, which would have to be given a copy each time.
  bool offers(Operation operation) const override {
    return operation != Operation::reduce_scatter_sum;
  }

  void call(Operation operation, std::span<const float> send, std::span<float> receive) override {
    // Gloo takes no const, but does not write to its inputs.
    float* input = const_cast<float*>(send.data());
    switch (operation) {
      case Operation::all_gather_float: {
        gloo::AllgatherOptions options(context_);
        options.setInput(input, send.size());
        options.setOutput(receive.data(), receive.size());
        return gloo::allgather(options);
      }
      case Operation::all_reduce_sum: {
        gloo::AllreduceOptions options(context_);
        options.setInput(input, send.size());
        options.setOutput(receive.data(), receive.size());
        options.setReduceFunction([](void* out, const void* a, const void* b, std::size_t n) {
          gloo::sum<float>(out, a, b, n);
        });
        return gloo::allreduce(options);
      }
      case Operation::broadcast_float: {
        gloo::BroadcastOptions options(context_);
        if (rank() == 0) options.setInput(input, send.size());
        options.setOutput(receive.data(), receive.size());
        options.setRoot(0);
        return gloo::broadcast(options);
      }
      default: {
        const auto part = static_cast<std::int64_t>(send.size()) / ranks();
        const std::vector<std::int64_t> parts(static_cast<std::size_t>(ranks()), part);
        gloo::AlltoallvOptions options(context_);
        options.setInput(input, parts);
        options.setOutput(receive.data(), parts);
        return gloo::alltoallv(options);
      }
    }
  }

  double slowest(double seconds) override {
    gloo::AllreduceOptions options(context_);
    options.setOutput(&seconds, 1);
    options.setReduceFunction([](void* out, const void* a, const void* b, std::size_t n) {
      gloo::max<double>(out, a, b, n);
    });
    gloo::allreduce(options);
    return seconds;
  }

 private:
  std::shared_ptr<gloo::Context> context_;
};

// A directory where the processes leave their addresses for one another.
class MeetingDirectory {
 public:
  MeetingDirectory()
      : path_((std::filesystem::temp_directory_path() / "lockstep-gloo-XXXXXX").string()) {
    if (::mkdtemp(path_.data()) == nullptr) throw Error("cannot make a directory like " + path_);
  }
  ~MeetingDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  MeetingDirectory(const MeetingDirectory&) = delete;
  MeetingDirectory& operator=(const MeetingDirectory&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) {
  using namespace lockstep::bench;
  return peer_main(argc, argv, [&](const PeerArguments& arguments) {
    const int ranks = lockstep::tool::parse_ranks(arguments.plan.ranks).most;
    const MeetingDirectory meeting;
    std::vector<pid_t> processes;
    for (int rank = 0; rank < ranks; ++rank) {
      const pid_t process = ::fork();
      if (process < 0) throw lockstep::Error("the system starts no more processes");
      if (process > 0) {
        processes.push_back(process);
        continue;
      }
      std::_Exit(peer_main(argc, argv, [&](const PeerArguments&) {
        Gloo gloo(rank, ranks, meeting.path());
        measure_peer("gloo", gloo, arguments);
      }));
    }
    bool all = true;
    for (pid_t process : processes) {
      int ended = 0;
      ::waitpid(process, &ended, 0);
      all = all && WIFEXITED(ended) && WEXITSTATUS(ended) == 0;
    }
    if (!all) throw lockstep::Error("a process failed");
  });
}
