#include "parking.hpp"

#include "pause.hpp"

#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>
#else
#include <condition_variable>
#include <mutex>
#endif

#include <thread>

namespace lockstep::sim {
namespace {

// Giving way this many times takes tens of microseconds where nobody else wants the core: as long
// as going to sleep and being woken.
constexpr int yields = 100;

using Deadline = std::optional<Parking::Clock::time_point>;

#ifdef __linux__

static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));

// Sleeps while `word` is `seen`, until a wake-up or the deadline; may also return for no reason.
void sleep_while(std::atomic<std::uint32_t>& word, std::uint32_t seen, const Deadline& deadline) {
  timespec until{};
  if (deadline) {
    // FUTEX_WAIT_BITSET takes an absolute time of CLOCK_MONOTONIC, which steady_clock is on Linux.
    const auto since_boot = deadline->time_since_epoch();
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(since_boot);
    until.tv_sec = seconds.count();
    until.tv_nsec = std::chrono::nanoseconds(since_boot - seconds).count();
  }
  syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE, seen, deadline ? &until : nullptr, nullptr,
          FUTEX_BITSET_MATCH_ANY);
}

void wake_all(std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

#else

// Elsewhere one lock and one condition for the whole process: correct, and rarely needed.
std::mutex bed_mutex;
std::condition_variable bed;

void sleep_while(std::atomic<std::uint32_t>& word, std::uint32_t seen, const Deadline& deadline) {
  std::unique_lock lock(bed_mutex);
  const auto moved = [&] { return word.load() != seen; };
  if (deadline) {
    bed.wait_until(lock, *deadline, moved);
  } else {
    bed.wait(lock, moved);
  }
}

void wake_all(std::atomic<std::uint32_t>&) {
  std::lock_guard lock(bed_mutex);
  bed.notify_all();
}

#endif

}  // namespace

bool Parking::linger(std::uint32_t seen) {
  for (int look = 0; look < spin_; ++look) {
    if (word() != seen) return true;
    pause();
  }
  for (int look = 0; look < yields; ++look) {
    if (word() != seen) return true;
    std::this_thread::yield();
  }
  return word() != seen;
}

bool Parking::sleep(std::uint32_t seen, std::optional<Clock::time_point> deadline) {
  sleepers_.fetch_add(1);
  bool in_time = true;
  while (word_.load() == seen && in_time) {
    sleep_while(word_, seen, deadline);
    in_time = !deadline || Clock::now() < *deadline;
  }
  sleepers_.fetch_sub(1);
  return word() != seen;
}

void Parking::wake() {
  // All sequentially consistent: either a sleeper sees the new word before it lies down, or it was
  // counted before this look at the counter.
  if (sleepers_.load() > 0) wake_all(word_);
}

}  // namespace lockstep::sim
