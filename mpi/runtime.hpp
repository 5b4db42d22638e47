// What all communicators of a process share.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "link.hpp"

namespace lockstep::mpi {

struct Runtime {
  Runtime();

  // Keeps `link` until it has left and settled.
  void adopt(std::shared_ptr<Link> link);
  // Says the link's farewell, unless MPI is gone.
  void leave(Link& link) noexcept;
  // Leaves all links and ends MPI; see Environment.
  void shut_down() noexcept;
  bool is_open() const { return open_; }
  // Where MPI serves one thread at a time, the flag that all ranks of this process share.
  std::atomic<bool>* shared_turn() { return one_thread_ ? &turn_ : nullptr; }

 private:
  void close_settled();

  bool ours_ = false;  // MPI was started here, and so is ended here
  bool one_thread_ = false;
  std::atomic<bool> open_ = true;
  std::atomic<bool> turn_ = false;
  std::mutex mutex_;
  std::vector<std::shared_ptr<Link>> links_;  // oldest first
};

}  // namespace lockstep::mpi
