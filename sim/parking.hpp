// Where threads of one communicator sleep until their call is complete.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>

namespace lockstep::sim {

// A counter of completed calls, and a bed for those who wait for it to move on. One wake-up wakes
// everyone at once, which is one system call on Linux.
class Parking {
 public:
  using Clock = std::chrono::steady_clock;

  // `spin`: look at the counter this many times before sleeping. Sleeping and waking costs
  // microseconds; where every thread has a core of its own, looking on for a moment is cheaper.
  explicit Parking(int spin) : spin_(spin) {}

  std::uint32_t epoch() const { return epoch_.load(std::memory_order_acquire); }

  // First gives its core to the others for some tens of microseconds at most, which between ranks in
  // step is enough and spares two system calls for each; then sleeps.
  // Returns true when the counter is no longer `seen`, or false once `deadline` has passed. What
  // was written before advance() is visible after a true return.
  bool wait(std::uint32_t seen, std::optional<Clock::time_point> deadline);

  // Moves the counter on: from here on nobody waits, but sleepers sleep until wake().
  void advance() { epoch_.fetch_add(1); }
  // Wakes all sleepers. Apart from advance(), so that a lock can be let go in between: those who
  // wake would only run into it.
  void wake();

 private:
  std::atomic<std::uint32_t> epoch_{0};
  // How many threads may be asleep, so that advance() can skip the system call for none.
  std::atomic<std::uint32_t> sleepers_{0};
  int spin_;
};

}  // namespace lockstep::sim
