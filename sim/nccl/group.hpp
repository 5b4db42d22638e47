// ncclGroupStart and ncclGroupEnd. Groups are a matter of each thread and may be nested; what was
// called inside happens at the outermost end. A call outside of a group is a group of its own.
#pragma once

#include <string>

#include "communicator.hpp"
#include "launch.hpp"

namespace lockstep::nccl {

// Opens a group for the calling thread; end_group() closes one, and with the outermost does all
// that was called since. An error of any call inside becomes the error of the end, and nothing is
// done.
ncclResult_t start_group();
ncclResult_t end_group();
// Forgets what was called since the outermost start instead.
ncclResult_t drop_group();

bool in_group();
// The error of a call inside, for the end to return. Gives it back.
ncclResult_t note_in_group(ncclResult_t result);

// An operation, now or at the end of the group.
ncclResult_t submit(ncclComm* comm, Request request);
// A communicator that has entered its gathering: waits, now or at the end of the group, until it
// has joined. `parent` is null for one made from a unique id, `handle` where the program has none.
ncclResult_t await_joining(ncclComm* comm, ncclComm* parent, ncclComm_t* handle,
                           const char* function);

}  // namespace lockstep::nccl
