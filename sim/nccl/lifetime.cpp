// What happens to a communicator after it was made: questions, errors, and its end.

#include <string>

#include "communicator.hpp"
#include "exports.hpp"
#include "group.hpp"
#include "names.hpp"

namespace lockstep::nccl {
namespace {

using devices::Engine;

std::string& last_error_anywhere() {
  thread_local std::string text;
  return text;
}

ncclResult_t tell(ncclComm* comm, const char* function, int* result, int ncclComm::*what) {
  Use use(comm, function, true);
  if (use.result != ncclSuccess) return use.result;
  const devices::Lock lock = Engine::instance().lock();
  if (result == nullptr) {
    return complain(comm, function, ncclInvalidArgument, "null-pointer",
                    "there is no place for the result", "Pass the address of an int.");
  }
  if ((comm->life == Life::joining || comm->in_progress) && !comm->failure) {
    return complain(comm, function, ncclInvalidArgument, "communicator-in-progress",
                    comm->life == Life::joining ? "the communicator is still joining the others"
                                                : "its last call is still in progress",
                    "Call ncclCommGetAsyncError until it stores ncclSuccess, then go on.");
  }
  *result = comm->*what;
  return ncclSuccess;
}

// Waits until all that was launched on it is done.
ncclResult_t flush(ncclComm* comm, const char* function) {
  Engine& engine = Engine::instance();
  devices::Lock lock = engine.lock();
  while (!comm->running.empty() && !comm->failure && !comm->released) {
    const devices::NodeRef node = comm->running.front()->node;
    if (engine.wait(lock, node, {function, comm->describe()}) != devices::Status::success) {
      return comm->failure ? comm->failure->result : ncclUnhandledCudaError;
    }
  }
  return comm->failure ? comm->failure->result : ncclSuccess;
}

ncclResult_t finalize(ncclComm* comm) {
  constexpr const char* function = "ncclCommFinalize";
  Use use(comm, function);
  if (use.result != ncclSuccess) return use.result;
  {
    const devices::Lock lock = Engine::instance().lock();
    if (comm->life == Life::finalized || comm->life == Life::revoked) {
      return complain(
          comm, function, ncclInvalidArgument,
          comm->life == Life::finalized ? "finalized-twice" : "communicator-after-revoke",
          comm->life == Life::finalized ? "the communicator was finalized before"
                                        : "the communicator was revoked before",
          "Call ncclCommDestroy next.");
    }
  }
  const ncclResult_t result = flush(comm, function);
  const devices::Lock lock = Engine::instance().lock();
  comm->life = Life::finalized;
  if (comm->blocking || result != ncclSuccess) return result;
  begin_progress(comm);
  return ncclInProgress;
}

ncclResult_t destroy(ncclComm* comm) {
  constexpr const char* function = "ncclCommDestroy";
  Engine& engine = Engine::instance();
  ncclResult_t result = ncclSuccess;
  {
    if (comm == nullptr) return ncclSuccess;
    Use use(comm, function, true);
    if (use.result != ncclSuccess) return use.result;
    const devices::Lock lock = engine.lock();
    std::uint64_t other = 0;
    if (!comm->user.compare_exchange_strong(other, this_thread())) {
      return complain(comm, function, ncclInvalidUsage, "two-threads",
                      "thread " + std::to_string(other) +
                          " is in a call with the communicator, or has calls with it in an open "
                          "group",
                      "Close the group and let the other call return first.");
    }
    if (comm->batch || comm->life == Life::joining) {
      result = complain(comm, function, ncclInvalidUsage, "communicator-in-progress",
                        "the communicator is still at an earlier call that returned "
                        "ncclInProgress",
                        "Call ncclCommGetAsyncError until it stores ncclSuccess, or abort it.");
    }
  }
  const bool failed_before = comm->failure.has_value();
  const ncclResult_t flushed = comm->life == Life::revoked ? ncclSuccess : flush(comm, function);
  if (result == ncclSuccess && !failed_before) result = flushed;
  devices::Lock lock = engine.lock();
  release(lock, comm, "was destroyed", comm->failure ? Departure::on_purpose : Departure::orderly);
  comm->life = Life::destroyed;
  comm->user.store(0);
  return result;
}

ncclResult_t abort(ncclComm* comm) {
  if (comm == nullptr) return ncclSuccess;
  Use use(comm, "ncclCommAbort", true);
  if (use.result != ncclSuccess) return use.result;
  devices::Lock lock = Engine::instance().lock();
  if (comm->life == Life::aborted) return ncclSuccess;  // another thread was faster
  release(lock, comm, "was aborted", Departure::on_purpose);
  if (!comm->failure) comm->failed({ncclInternalError, "the communicator was aborted"});
  comm->life = Life::aborted;
  comm->batch.reset();
  return ncclSuccess;
}

ncclResult_t revoke(ncclComm* comm, int flags) {
  constexpr const char* function = "ncclCommRevoke";
  Use use(comm, function, true);
  if (use.result != ncclSuccess) return use.result;
  devices::Lock lock = Engine::instance().lock();
  if (flags != NCCL_REVOKE_DEFAULT) {
    return complain(comm, function, ncclInvalidArgument, "bad-flags",
                    "there is no flag " + std::to_string(flags), "Pass NCCL_REVOKE_DEFAULT.");
  }
  if (comm->life != Life::ready) {
    return complain(comm, function, ncclInvalidUsage, "communicator-after-finalize",
                    "the communicator was finalized or revoked before, or still joins",
                    "Revoke a communicator once, while it is in use.");
  }
  release(lock, comm, "was revoked", Departure::on_purpose);
  comm->failure.reset();
  comm->life = Life::revoked;
  comm->batch.reset();
  comm->in_progress = false;
  if (comm->blocking) return ncclSuccess;
  begin_progress(comm);
  return ncclInProgress;
}

}  // namespace
}  // namespace lockstep::nccl

using namespace lockstep::nccl;

ncclResult_t ncclGetVersion(int* version) {
  if (version == nullptr) return ncclInvalidArgument;
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled CUDA error (simulated NCCL)";
    case ncclSystemError:
      return "system error (simulated NCCL)";
    case ncclInternalError:
      return "internal error (simulated NCCL)";
    case ncclInvalidArgument:
      return "invalid argument (simulated NCCL: see standard error)";
    case ncclInvalidUsage:
      return "invalid usage (simulated NCCL: see standard error)";
    case ncclRemoteError:
      return "remote process exited or failed (simulated NCCL)";
    case ncclInProgress:
      return "operation in progress";
    default:
      return "unknown result code";
  }
}

const char* ncclGetLastError(ncclComm_t comm) {
  const lockstep::devices::Lock lock = lockstep::devices::Engine::instance().lock();
  std::string& text = last_error_anywhere();
  text = comm != nullptr && is_communicator(comm) ? comm->last_error : std::string();
  return text.c_str();
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
void ncclResetDebugInit() {}
LOCKSTEP_NCCL_PROFILED(ncclResetDebugInit);
#pragma GCC diagnostic pop

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* asyncError) {
  Use use(comm, "ncclCommGetAsyncError", true);
  if (use.result != ncclSuccess) return use.result;
  if (asyncError == nullptr) return ncclInvalidArgument;
  *asyncError = poll(comm);
  return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  return tell(comm, "ncclCommCount", count, &ncclComm::ranks);
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
  return tell(comm, "ncclCommCuDevice", device, &ncclComm::device);
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  return tell(comm, "ncclCommUserRank", rank, &ncclComm::rank);
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  return note_in_group(finalize(comm));
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  return note_in_group(destroy(comm));
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  return note_in_group(lockstep::nccl::abort(comm));
}

ncclResult_t ncclCommRevoke(ncclComm_t comm, int revokeFlags) {
  return note_in_group(lockstep::nccl::revoke(comm, revokeFlags));
}

ncclResult_t ncclGroupStart() {
  return start_group();
}

ncclResult_t ncclGroupEnd() {
  return end_group();
}

ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t* simInfo) {
  const ncclResult_t result = drop_group();
  // Nothing here takes the time that it would take on a GPU.
  if (simInfo != nullptr) simInfo->estimatedTime = 0;
  return result;
}

LOCKSTEP_NCCL_PROFILED(ncclGetVersion);
LOCKSTEP_NCCL_PROFILED(ncclGetErrorString);
LOCKSTEP_NCCL_PROFILED(ncclGetLastError);
LOCKSTEP_NCCL_PROFILED(ncclCommGetAsyncError);
LOCKSTEP_NCCL_PROFILED(ncclCommCount);
LOCKSTEP_NCCL_PROFILED(ncclCommCuDevice);
LOCKSTEP_NCCL_PROFILED(ncclCommUserRank);
LOCKSTEP_NCCL_PROFILED(ncclCommFinalize);
LOCKSTEP_NCCL_PROFILED(ncclCommDestroy);
LOCKSTEP_NCCL_PROFILED(ncclCommAbort);
LOCKSTEP_NCCL_PROFILED(ncclCommRevoke);
LOCKSTEP_NCCL_PROFILED(ncclGroupStart);
LOCKSTEP_NCCL_PROFILED(ncclGroupEnd);
LOCKSTEP_NCCL_PROFILED(ncclGroupSimulateEnd);
