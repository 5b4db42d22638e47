#include "check.hpp"

#include <string>

#include <lockstep/gpu/error.hpp>

namespace lockstep::gpu {

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // reported here, not by whoever asks next
  throw DeviceError(std::string(what) + ": " + cudaGetErrorString(status) + " (" +
                    cudaGetErrorName(status) + ")");
}

OnDevice::OnDevice(int device) {
  int before = -1;
  check(cudaGetDevice(&before), "cudaGetDevice");
  if (before == device) return;
  check(cudaSetDevice(device), "cudaSetDevice");
  before_ = before;
}

OnDevice::~OnDevice() {
  if (before_ >= 0) cudaSetDevice(before_);
}

}  // namespace lockstep::gpu
