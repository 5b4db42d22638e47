// What can go wrong on a device, beside what lockstep/error.hpp lists.
#pragma once

#include <lockstep/error.hpp>

namespace lockstep::gpu {

// CUDA refused a request of this rank alone: no such device, no memory, no driver. Inside a call of
// a communicator it becomes a TransportError, since the other ranks wait.
class DeviceError : public Error {
 public:
  using Error::Error;
};

}  // namespace lockstep::gpu
