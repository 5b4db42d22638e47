#include "watchdog.hpp"

#include <algorithm>
#include <cstdlib>

namespace lockstep::kit {

Watchdog::Watchdog(double seconds, std::function<void()> report)
    : limit_(std::chrono::duration_cast<Clock::duration>(
          std::chrono::duration<double>(std::min(seconds, 1e9)))),
      report_(std::move(report)),
      thread_([this] { watch(); }) {}

Watchdog::~Watchdog() {
  {
    std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void Watchdog::arm() {
  std::lock_guard lock(mutex_);
  deadline_ = Clock::now() + limit_;
}

void Watchdog::disarm() {
  std::lock_guard lock(mutex_);
  deadline_ = Clock::time_point::max();
}

// Looks at the clock now and then rather than being woken for every case: there are thousands of
// cases a second.
void Watchdog::watch() {
  const auto pause = std::min<Clock::duration>(limit_ / 10 + std::chrono::milliseconds(1),
                                               std::chrono::milliseconds(500));
  std::unique_lock lock(mutex_);
  while (!over_) {
    changed_.wait_for(lock, pause);
    if (over_ || Clock::now() < deadline_) continue;
    report_();
    std::_Exit(exit_status);
  }
}

}  // namespace lockstep::kit
