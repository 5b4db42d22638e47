// One line on a terminal that says how far the work is; nothing in a pipe.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace lockstep::tool {

class Progress {
 public:
  Progress(std::string what, std::int64_t total);
  ~Progress() { clear(); }

  void advance();                        // one more is done
  void note(const std::string& remark);  // shown in place of the count, for work without an end
  void clear();                          // before anything else is printed

 private:
  using Clock = std::chrono::steady_clock;
  bool due();
  void show(const std::string& text);

  const bool terminal_;
  const std::string what_;
  const std::int64_t total_;
  std::int64_t done_ = 0;
  const Clock::time_point begin_ = Clock::now();
  Clock::time_point next_ = begin_;
  bool shown_ = false;
};

}  // namespace lockstep::tool
