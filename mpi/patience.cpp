#include "patience.hpp"

#include <sched.h>

#include <algorithm>
#include <thread>

namespace lockstep::mpi {

bool Patience::pause() {
  // Peers may share this core, so it is offered to them on every round. Whoever has waited for long
  // sleeps, by so small a part of that wait that it delays nobody noticeably.
  constexpr int yields = 200;
  if (pauses_++ == 0) start_ = Clock::now();
  const Clock::duration waited = pauses_ == 1 ? Clock::duration::zero() : Clock::now() - start_;
  if (limit_ && waited >= *limit_) return false;
  if (pauses_ <= yields) {
    sched_yield();
  } else {
    std::this_thread::sleep_for(
        std::min<Clock::duration>(waited / 16, std::chrono::milliseconds(1)));
  }
  return true;
}

}  // namespace lockstep::mpi
