// What is left to say when a backend does not finish a case.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include <lockstep/kit/case.hpp>

namespace lockstep::kit {

// How many seconds a case may take: `timeout`, and as much again for every 10,000 calls of it. A
// long repetition is slow on a busy machine before it hangs.
double allowance(const Case& c, double timeout);

// A hanging backend cannot be interrupted, it sits in its own threads and in this one; so when time
// is up the watchdog reports from a thread of its own and ends the process with status 3. A backend
// that calls exit() in a case, or crashes where nobody else watches for that, is reported likewise.
// One at a time in a process.
class Watchdog {
 public:
  static constexpr int exit_status = 3;  // as the tool's for a backend that broke

  // "did not finish" case 5 " within 60 s"; "crashed (Segmentation fault) in" case 5 "".
  struct LastWords {
    std::string before;
    std::string after;
  };

  using Clock = std::chrono::steady_clock;

  // `report` is called once, just before the end, while the call still goes on.
  Watchdog(double seconds, std::function<void(const LastWords&)> report);
  ~Watchdog();

  void arm(const Case& c);  // the case begins
  void disarm();            // it is finished

 private:
  void watch();
  void report_and_end(const LastWords& words);
  static void at_exit();
  static void at_crash(int signal);

  const double seconds_;
  const std::function<void(const LastWords&)> report_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Clock::time_point deadline_ = Clock::time_point::max();  // when no case runs
  double allowed_ = 0;                                     // seconds for the case that runs
  std::atomic<bool> armed_{false};
  bool over_ = false;
  std::thread thread_;
};

}  // namespace lockstep::kit
