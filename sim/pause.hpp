// What a thread does between two looks at a value that another core is about to change.
#pragma once

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

namespace lockstep::sim {

// Tells the core that this is a loop of looking on, where it knows how to be told.
inline void pause() {
#if defined(__x86_64__) || defined(__i386__)
  _mm_pause();
#endif
}

}  // namespace lockstep::sim
