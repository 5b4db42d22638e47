// Mutexes that are held for microseconds at most.
#pragma once

#include <mutex>

#include "pause.hpp"

namespace lockstep::sim {

// Looks on for a moment before it sleeps: the holder lets go sooner than a thread falls asleep.
inline void lock_brief(std::mutex& mutex) {
  constexpr int looks = 100;  // a microsecond or two
  for (int look = 0; look < looks; ++look) {
    if (mutex.try_lock()) return;
    pause();
  }
  mutex.lock();
}

// A Lockable that does so, for std::lock_guard and std::unique_lock.
class BriefMutex {
 public:
  void lock() { lock_brief(mutex_); }
  bool try_lock() { return mutex_.try_lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

}  // namespace lockstep::sim
