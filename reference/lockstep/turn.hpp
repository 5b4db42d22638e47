// One thread's use of one rank.
#pragma once

#include <atomic>
#include <string>

#include <lockstep/error.hpp>

namespace lockstep {

// A rank can be in one call at a time. Every call of a communicator holds a Turn of its rank while
// it lasts, so that a second thread gets an error in place of somebody else's results.
class Turn {
 public:
  // `taken` is the rank's, false at first. Throws InvalidArgument while another thread has the
  // turn.
  Turn(std::atomic<bool>& taken, int rank, const std::string& communicator) : taken_(taken) {
    if (taken_.exchange(true, std::memory_order_acquire)) {
      throw InvalidArgument("two threads use one rank at once: rank " + std::to_string(rank) +
                            " of " + communicator);
    }
  }
  ~Turn() { taken_.store(false, std::memory_order_release); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  std::atomic<bool>& taken_;
};

}  // namespace lockstep
