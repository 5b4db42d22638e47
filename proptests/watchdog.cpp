#include "watchdog.hpp"

#include <algorithm>
#include <cstdlib>

namespace lockstep::kit {

namespace {

Watchdog::Clock::duration duration(double seconds) {
  return std::chrono::duration_cast<Watchdog::Clock::duration>(
      std::chrono::duration<double>(std::min(seconds, 1e9)));
}

}  // namespace

double allowance(const Case& c, double timeout) {
  constexpr std::int64_t calls_included = 10'000;
  std::int64_t calls = 0;
  for (const Step& step : c.steps) calls += step.repeat;
  return timeout * static_cast<double>(1 + calls / calls_included);
}

Watchdog::Watchdog(double seconds, std::function<void()> report)
    : seconds_(seconds), report_(std::move(report)), thread_([this] { watch(); }) {}

Watchdog::~Watchdog() {
  {
    std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void Watchdog::arm(const Case& c) {
  std::lock_guard lock(mutex_);
  deadline_ = Clock::now() + duration(allowance(c, seconds_));
}

void Watchdog::disarm() {
  std::lock_guard lock(mutex_);
  deadline_ = Clock::time_point::max();
}

// Looks at the clock now and then rather than being woken for every case: there are thousands of
// cases a second.
void Watchdog::watch() {
  const auto pause = std::min<Clock::duration>(
      duration(seconds_) / 10 + std::chrono::milliseconds(1), std::chrono::milliseconds(500));
  std::unique_lock lock(mutex_);
  while (!over_) {
    changed_.wait_for(lock, pause);
    if (over_ || Clock::now() < deadline_) continue;
    report_();
    std::_Exit(exit_status);
  }
}

}  // namespace lockstep::kit
