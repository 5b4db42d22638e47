// How the training examples start: `example [RANKS]` runs ranks as threads of this process, and
// `mpirun -np RANKS example --mpi` as processes (where MPI was found when this was built).
#pragma once

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>

#include <lockstep/sim/world.hpp>
#ifdef EXAMPLES_HAVE_MPI
#include <lockstep/mpi/communicator.hpp>
#endif

// Do all ranks agree? Entered by every rank.
template <class C>
bool everybody(C c, bool agrees) {
  using lockstep::IntTensor;
  const std::uint8_t mine = agrees ? 1 : 0;
  const IntTensor all = c.all_gather_int(IntTensor::of<std::uint8_t>({1}, {mine}));
  for (std::uint8_t one : all.template values<std::uint8_t>()) agrees = agrees && one != 0;
  return agrees;
}

// Calls `train(communicator)` on every rank; it returns whether what it computed is right, and rank
// 0 says so. The process exits 0 when it is, 1 when not, and 2 when it cannot run like this.
template <class Train>
int run_example(int argc, char** argv, Train train) {
  const std::string how = argc > 1 ? argv[1] : "4";
  const auto on_rank = [&](auto communicator) {
    const bool right = everybody(communicator, train(communicator));
    if (communicator.rank() == 0) {
      std::cout << (right ? "the same as unsharded, on every rank\n"
                          : "NOT the same as unsharded\n");
    }
    return right;
  };
  try {
    if (how == "--mpi") {
#ifdef EXAMPLES_HAVE_MPI
      lockstep::mpi::Environment mpi;
      return on_rank(lockstep::mpi::Communicator(mpi)) ? 0 : 1;
#else
      std::cerr << "built without MPI\n";
      return 2;
#endif
    }
    lockstep::sim::World world(std::atoi(how.c_str()));
    return world.run(on_rank)[0] ? 0 : 1;
  } catch (const lockstep::Error& error) {
    std::cerr << error.what() << "\n";
    return 2;
  }
}
