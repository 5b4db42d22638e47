// What every function of the simulated runtime does around its own work.
#pragma once

#include <cuda_runtime_api.h>

#include <string>
#include <utility>

#include "engine.hpp"

namespace lockstep::cudart {

using devices::Call;
using devices::Engine;
using devices::Status;

cudaError_t translate(Status status);

// Keeps the error of the calling thread, as cudaGetLastError gives it, and passes it on.
cudaError_t keep(cudaError_t error);

// Whether the calling thread may call the runtime now; reports it if not.
bool permitted(const Call& call);
// The process's rank under a launcher, for reports: "process 3"; empty without one.
const std::string& process_name();

// Runs the body of an API function, which gets the Call for reports and returns cudaError_t.
template <class Body>
cudaError_t api(const char* function, Body&& body) {
  const Call call{function, process_name()};
  if (!permitted(call)) return keep(cudaErrorNotPermitted);
  return keep(std::forward<Body>(body)(call));
}

// One line on standard error, and cudaErrorNotSupported for the caller.
cudaError_t refuse(const char* function, const char* reason);

// As api(), with the stream of a handle; cudaErrorInvalidResourceHandle where it is none.
template <class Body>
cudaError_t on_stream(const char* function, cudaStream_t handle, Body&& body) {
  return api(function, [&](const Call& call) {
    const devices::StreamRef stream =
        Engine::instance().find_stream(handle, devices::DefaultStream::legacy, &call);
    return stream ? body(call, stream) : cudaErrorInvalidResourceHandle;
  });
}

}  // namespace lockstep::cudart
