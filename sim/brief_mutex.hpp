// A mutex for sections of a few instructions.
#pragma once

#include <mutex>

#include "pause.hpp"

namespace lockstep::sim {

// Looks on for a moment before it sleeps: the holder lets go sooner than a thread falls asleep. A
// Lockable, for std::lock_guard and std::unique_lock.
class BriefMutex {
 public:
  void lock() {
    for (int look = 0; look < looks; ++look) {
      if (mutex_.try_lock()) return;
      pause();
    }
    mutex_.lock();
  }
  bool try_lock() { return mutex_.try_lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  static constexpr int looks = 100;  // a microsecond or two
  std::mutex mutex_;
};

}  // namespace lockstep::sim
