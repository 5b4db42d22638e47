#include "progress.hpp"

#include <algorithm>
#include <cmath>
#include <iostream>

#include "launch.hpp"

namespace lockstep::tool {

Progress::Progress(std::string what, std::int64_t total)
    : terminal_(watched()), what_(std::move(what)), total_(total) {}

bool Progress::due() {
  if (!terminal_) return false;
  const Clock::time_point now = Clock::now();
  if (now < next_) return false;
  next_ = now + std::chrono::milliseconds(100);
  return true;
}

void Progress::show(const std::string& text) {
  std::cerr << "\r\x1b[K" << what_ << "  " << text << std::flush;
  shown_ = true;
}

void Progress::advance() {
  ++done_;
  if (!due()) return;
  const double seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
  const auto rate = std::llround(static_cast<double>(done_) / std::max(seconds, 1e-3));
  show(std::to_string(done_) + " of " + std::to_string(total_) + " cases, " + std::to_string(rate) +
       " a second");
}

void Progress::note(const std::string& remark) {
  if (due()) show(remark);
}

void Progress::clear() {
  if (!shown_) return;
  std::cerr << "\r\x1b[K" << std::flush;
  shown_ = false;
}

}  // namespace lockstep::tool
