// Where threads of one communicator sleep until their call is complete.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>

#include <lockstep/oracle.hpp>

namespace lockstep::sim {

// A word that says how far its communicator has come, and a bed for those who wait for it to
// change. One wake-up wakes everyone at once, which is one system call on Linux.
class Parking {
 public:
  using Clock = std::chrono::steady_clock;

  // `spin`: how often linger() looks at the word before it gives way. Where every thread has a core
  // of its own, looking on for a moment is cheaper than a system call.
  explicit Parking(int spin) : spin_(spin) {}

  // What was written before the word was changed is visible to whoever sees it changed, here and in
  // the two below.
  std::uint32_t word() const { return word_.load(); }

  // Looks on, and gives its core to the others, for some tens of microseconds at most: between
  // ranks in step that is enough, and spares each the going to sleep. True when the word is no
  // longer `seen`.
  bool linger(std::uint32_t seen);
  // Sleeps. True when the word is no longer `seen`, false once `deadline` has passed.
  bool sleep(std::uint32_t seen, std::optional<Clock::time_point> deadline);

  // Changes the word: from here on nobody waits, but sleepers sleep until wake().
  void change_to(std::uint32_t word) { word_.exchange(word); }
  void add_bits(std::uint32_t bits) { word_.fetch_or(bits); }
  // Wakes all sleepers. Apart from the change, so that a lock can be let go in between: those who
  // wake would only run into it.
  void wake();

 private:
  // On a cache line of their own: those who linger look at nothing else.
  alignas(reference::cache_line) std::atomic<std::uint32_t> word_{0};
  // How many threads may be asleep, so that wake() can skip the system call for none.
  std::atomic<std::uint32_t> sleepers_{0};
  int spin_;
};

}  // namespace lockstep::sim
