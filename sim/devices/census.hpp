// What the threads of this process are doing, as the system sees it.
#pragma once

#include <vector>

namespace lockstep::devices {

int thread_id();  // the calling thread's, as the system numbers it

// The threads that never count: those that were there before the program began, other than its main
// thread (a sanitizer's), and those that asked for it.
void exempt_thread(int thread);
// All threads that are there now: where a sanitizer may have started one of its own.
void exempt_others_than(const std::vector<int>& threads);
std::vector<int> threads_of_process();

enum class Idleness {
  asleep,   // all others wait for another thread, without a limit of time
  resting,  // all others wait for something: also for time, a file, a peer process
  busy,     // some run, or it cannot be told
};
// Of all threads but the exempt ones, and those in `known`.
Idleness others_idle(const std::vector<int>& known);

}  // namespace lockstep::devices
