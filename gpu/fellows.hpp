// The ranks of one NCCL communicator that are threads of this process.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>

namespace lockstep::gpu {

// When one of them gives up in the middle of a call, the work that the others have enqueued can
// never be completed, and NCCL tells nobody. Here they can see it.
class Fellows {
 public:
  struct Failure {
    int rank;
    std::string how;  // completes "rank 3 ..."
  };

  // Those that have the same bytes of a unique id.
  static std::shared_ptr<Fellows> of(const std::string& unique_id);

  // Only the first failure counts.
  void fail(int rank, const std::string& how);
  std::optional<Failure> failure() const;

 private:
  mutable std::mutex mutex_;
  std::optional<Failure> failure_;
};

}  // namespace lockstep::gpu
