// Ranks as processes that share the devices of this machine, even a single one.
#pragma once

namespace lockstep::device_check {

// Starts `ranks` processes, runs generated cases on all of them and judges each. Prints a line, and
// a counterexample if there is one. Returns an exit status. Must be called before this process has
// touched CUDA.
int check_ranks(int ranks, int cases);

}  // namespace lockstep::device_check
