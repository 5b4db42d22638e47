#include "watchdog.hpp"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace lockstep::kit {

namespace {

constexpr int crashes[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};

std::atomic<Watchdog*> current{nullptr};

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

Watchdog::Watchdog(double seconds, std::function<void(const LastWords&)> report)
    : seconds_(seconds), report_(std::move(report)), thread_([this] { watch(); }) {
  current = this;
  static const bool once = std::atexit(at_exit) == 0;
  (void)once;
  // Sanitizers and simulated devices have handlers of their own, which know more.
  for (const int signal : crashes) {
    struct sigaction there = {};
    if (::sigaction(signal, nullptr, &there) != 0 || there.sa_handler != SIG_DFL) continue;
    struct sigaction ours = {};
    ours.sa_handler = at_crash;
    ::sigaction(signal, &ours, nullptr);
  }
}

Watchdog::~Watchdog() {
  current = nullptr;
  for (const int signal : crashes) {
    struct sigaction there = {};
    if (::sigaction(signal, nullptr, &there) == 0 && there.sa_handler == at_crash) {
      ::signal(signal, SIG_DFL);
    }
  }
  {
    std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void Watchdog::arm(const Case& c) {
  std::lock_guard lock(mutex_);
  allowed_ = allowance(c, seconds_);
  deadline_ = Clock::now() + duration(allowed_);
  armed_ = true;
}

void Watchdog::disarm() {
  std::lock_guard lock(mutex_);
  deadline_ = Clock::time_point::max();
  armed_ = false;
}

void Watchdog::report_and_end(const LastWords& words) {
  report_(words);
  std::_Exit(exit_status);
}

void Watchdog::at_exit() {
  Watchdog* const watchdog = current;
  if (watchdog != nullptr && watchdog->armed_) {
    watchdog->report_and_end({"ended the process in", ""});
  }
}

// More than a signal handler may do, but there is nothing to lose. Should it get stuck or crash as
// well, the process ends all the same.
void Watchdog::at_crash(int signal) {
  ::signal(signal, SIG_DFL);
  Watchdog* const watchdog = current;
  if (watchdog != nullptr && watchdog->armed_.exchange(false)) {
    ::signal(SIGALRM, SIG_DFL);
    ::alarm(10);
    const char* const what = ::strsignal(signal);
    watchdog->report_and_end({std::string("crashed (") + what + ") in", ""});
  }
  ::raise(signal);
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
    char limit[32];
    std::snprintf(limit, sizeof limit, " within %g s", allowed_);
    report_and_end({"did not finish", limit});
  }
}

}  // namespace lockstep::kit
