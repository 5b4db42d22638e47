// Where the backend changes from one way of moving data to another. All ranks decide by these and
// by what they have agreed on, so they must be equal on all ranks. Variables only so that tests
// reach every way with small tensors.
#pragma once

#include <cstdint>

namespace lockstep::mpi {

struct Limits {
  // MPI-3 counts in int; no message and no collective moves more bytes than this.
  std::int64_t message_bytes = std::int64_t{1} << 30;
  // An all-reduce is one step, in which everybody gets all addends, while those of all ranks
  // together are no larger than this; above, it is a reduce-scatter and an all-gather.
  std::int64_t one_step_bytes = 64 * 1024;
};

Limits& limits();

}  // namespace lockstep::mpi
