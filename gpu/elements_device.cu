// elements.hpp on real devices, compiled by nvcc.
#include <cuda_runtime_api.h>
#include <thrust/system/cuda/execution_policy.h>

#include <string>

#include <lockstep/gpu/error.hpp>

#include "element_loops.hpp"

namespace lockstep::gpu {
namespace {

template <class Work>
void launch(const char* what, const Work& work, cudaStream_t stream) {
  try {
    carry_out(thrust::cuda::par_nosync.on(stream), work);
  } catch (const std::exception& error) {  // Thrust's own type
    cudaGetLastError();
    throw DeviceError(std::string(what) + ": " + error.what());
  }
}

}  // namespace

void enqueue(const Fold& work, CUstream_st* stream) { launch("sum on the device", work, stream); }
void enqueue(const Divide& work, CUstream_st* stream) {
  launch("division on the device", work, stream);
}
void enqueue(const SwapAxes& work, CUstream_st* stream) {
  launch("moving an axis on the device", work, stream);
}

}  // namespace lockstep::gpu
