// Waiting without hampering those who are waited for.
#pragma once

#include <chrono>
#include <optional>

namespace lockstep::mpi {

class Patience {
 public:
  using Limit = std::optional<std::chrono::nanoseconds>;
  explicit Patience(Limit limit) : limit_(limit) {}

  // Something arrived: the clock starts anew.
  void renew() { pauses_ = 0; }

  // Gives the processor away for a moment, or returns false when the limit has passed since the
  // clock started.
  bool pause();

 private:
  using Clock = std::chrono::steady_clock;

  Limit limit_;
  int pauses_ = 0;
  Clock::time_point start_;
};

}  // namespace lockstep::mpi
