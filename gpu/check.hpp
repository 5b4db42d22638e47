// Status codes of CUDA and NCCL as errors, and the current device.
#pragma once

#include <cuda_runtime_api.h>

namespace lockstep::gpu {

// Throws DeviceError when `status` is none of success; `what` names the request.
void check(cudaError_t status, const char* what);

// Makes `device` the calling thread's current one for the life of the object.
class OnDevice {
 public:
  explicit OnDevice(int device);
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int before_ = -1;
};

}  // namespace lockstep::gpu
