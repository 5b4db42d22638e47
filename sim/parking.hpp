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

  // `spin`: how often linger() looks at the counter before it gives way. Where every thread has a
  // core of its own, looking on for a moment is cheaper than a system call.
  explicit Parking(int spin) : spin_(spin) {}

  // What was written before advance() is visible to whoever sees the counter moved on, here and in
  // the two below.
  std::uint32_t epoch() const { return epoch_.load(std::memory_order_acquire); }

  // Looks on, and gives its core to the others, for some tens of microseconds at most: between
  // ranks in step that is enough, and spares each the going to sleep. True when the counter is no
  // longer `seen`.
  bool linger(std::uint32_t seen);
  // Sleeps. True when the counter is no longer `seen`, false once `deadline` has passed.
  bool sleep(std::uint32_t seen, std::optional<Clock::time_point> deadline);

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
