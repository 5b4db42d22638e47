// Waiting by looking again and again, which is how one waits for several things of which CUDA and
// NCCL each know one.
#pragma once

#include <chrono>
#include <thread>

namespace lockstep::gpu {

class Pace {
 public:
  using Clock = std::chrono::steady_clock;

  // Time since the object was made.
  Clock::duration waited() const { return Clock::now() - start_; }

  // A moment that grows: what is waited for takes microseconds, or long enough for a little more
  // not to matter. Leaves the core to others, of which simulated devices have many.
  void pause() {
    if (++pauses_ <= quick_pauses) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(pauses_ <= patient_pauses ? 20 : 200));
    }
  }

 private:
  static constexpr int quick_pauses = 100;
  static constexpr int patient_pauses = 400;

  Clock::time_point start_ = Clock::now();
  int pauses_ = 0;
};

}  // namespace lockstep::gpu
