// Ends the process when a backend does not finish a case.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include <lockstep/kit/case.hpp>

namespace lockstep::kit {

// How many seconds a case may take: `timeout`, and as much again for every 10,000 calls of it. A
// long repetition is slow on a busy machine before it hangs.
double allowance(const Case& c, double timeout);

// A hanging backend cannot be interrupted, it sits in its own threads and in this one; so when time
// is up the watchdog reports from a thread of its own and ends the process with status 3.
class Watchdog {
 public:
  static constexpr int exit_status = 3;  // as the tool's for a backend that broke

  using Clock = std::chrono::steady_clock;

  // `report` is called once, just before the end, while the hanging call still goes on.
  Watchdog(double seconds, std::function<void()> report);
  ~Watchdog();

  void arm(const Case& c);  // the case begins
  void disarm();            // it is finished

 private:
  void watch();

  const double seconds_;
  const std::function<void()> report_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Clock::time_point deadline_ = Clock::time_point::max();
  bool over_ = false;
  std::thread thread_;
};

}  // namespace lockstep::kit
