#include "meeting_limits.hpp"

#ifdef __linux__
#include <sched.h>
#endif

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

namespace lockstep::bench {
namespace {

#ifdef __linux__
constexpr int passes = 5;
constexpr std::chrono::milliseconds a_moment(10);

std::vector<int> own_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

void bind_this_thread(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  ::sched_setaffinity(0, sizeof set, &set);
}

struct alignas(128) Line {
  std::atomic<std::int64_t> value{0};
};

// Seconds for one step of `step(lines, self, i)`, which two threads on these cores make with the
// same numbers: as many as a moment allows, since on a busy machine one may take a thousand times
// longer.
template <class Step>
double seconds_per_step(int first, int second, const Step& step) {
  using Clock = std::chrono::steady_clock;
  constexpr std::int64_t warm_up = 16;
  constexpr std::int64_t between_looks = 16;
  std::vector<double> seconds;
  for (int pass = 0; pass < passes; ++pass) {
    Line lines[2];
    std::atomic<std::int64_t> last{0};  // the number after which both end
    const auto run = [&](int self, int core) {
      bind_this_thread(core);
      Clock::time_point begin;
      for (std::int64_t i = 1;; ++i) {
        if (self == 0 && i == warm_up) begin = Clock::now();
        // Written before the line of this step, so that the other sees it in time.
        if (self == 0 && i % between_looks == 0 && Clock::now() - begin > a_moment) last.store(i);
        step(lines, self, i);
        if (last.load() != i) continue;
        if (self == 0) {
          const std::chrono::duration<double> taken = Clock::now() - begin;
          seconds.push_back(taken.count() / static_cast<double>(i - warm_up + 1));
        }
        return;
      }
    };
    std::thread other(run, 1, second);
    std::thread one(run, 0, first);
    one.join();
    other.join();
  }
  std::ranges::sort(seconds);
  return seconds[passes / 2];
}

// Thread 0 answers what thread 1 says.
void take_turns(Line lines[2], int self, std::int64_t i) {
  if (self == 1) lines[1].value.store(i);
  while (lines[1 - self].value.load() < i) std::this_thread::yield();
  if (self == 0) lines[0].value.store(i);
}

void meet(Line lines[2], int self, std::int64_t i) {
  lines[self].value.store(i, std::memory_order_release);
  // The other's core may be busy with something else, for which this one need not wait in vain.
  constexpr int patience = 10'000;
  for (int looks = 0; lines[1 - self].value.load(std::memory_order_acquire) < i; ++looks) {
    if (looks > patience) std::this_thread::yield();
  }
}
#endif

}  // namespace

std::optional<double> thread_switch() {
#ifdef __linux__
  const std::vector<int> cores = own_cores();
  if (cores.empty()) return std::nullopt;
  return seconds_per_step(cores[0], cores[0], take_turns) / 2;  // there and back
#else
  return std::nullopt;
#endif
}

std::optional<double> core_meeting() {
#ifdef __linux__
  const std::vector<int> cores = own_cores();
  if (cores.size() < 2) return std::nullopt;
  return seconds_per_step(cores[0], cores[1], meet);
#else
  return std::nullopt;
#endif
}

}  // namespace lockstep::bench
