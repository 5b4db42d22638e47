// MPI, from initialisation to finalisation.
#pragma once

#include <memory>

namespace lockstep::mpi {

struct Runtime;

// Starts MPI when nobody has, and then also ends it. One object per process, on the stack of
// main(); communicators may outlive it, but answer with InvalidArgument from then on.
//
// The destructor makes this rank leave every communicator that still has handles, waits a few
// seconds at most for the peers to leave theirs, and finalizes MPI. MPI_Finalize itself waits for
// all processes of the job. Where a communicator had failed and its peers cannot be reached it is
// not called, since it would wait for ever: the process then ends without it and the launcher,
// seeing that, ends the job.
//
// MPI is asked for MPI_THREAD_MULTIPLE and must give MPI_THREAD_SERIALIZED (else TransportError).
// With less than MULTIPLE only one thread at a time may be inside any of this process's
// communicators; a second one gets InvalidArgument.
class Environment {
 public:
  Environment();
  ~Environment();
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

  // For Communicator's constructors.
  const std::shared_ptr<Runtime>& runtime() const { return runtime_; }

 private:
  std::shared_ptr<Runtime> runtime_;
};

}  // namespace lockstep::mpi
