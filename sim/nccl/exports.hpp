// Every function of NCCL exists under two names, so that a profiler can put its own ncclSend, say,
// before the library's and call pncclSend from it.
#pragma once

#include "nccl_header.hpp"

#define LOCKSTEP_NCCL_PROFILED(name) \
  extern "C" __attribute__((visibility("default"), alias(#name))) decltype(name) p##name
