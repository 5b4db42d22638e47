// Kernels: programs built by nvcc register theirs, and none can be launched here.

#include "finding.hpp"
#include "runtime.hpp"

namespace lockstep::cudart {
namespace {

cudaError_t refuse_kernel(const char* function, cudaStream_t handle) {
  return on_stream(function, handle, [](const Call& call, const devices::StreamRef& stream) {
    devices::Finding finding;
    finding.rule = "kernel-launch";
    finding.call = call;
    finding.device = Engine::instance().device_of(stream);
    finding.stream = Engine::instance().describe(stream);
    finding.what = "kernels cannot run on simulated devices; this one did nothing.";
    finding.advice = "Do this part on the host where the devices are simulated.";
    devices::report(finding);
    return cudaErrorNotSupported;
  });
}

struct Configuration {
  dim3 grid;
  dim3 block;
  size_t shared = 0;
  void* stream = nullptr;
};
thread_local Configuration configuration;

// Something for handles to point at.
void* no_binary = nullptr;

}  // namespace
}  // namespace lockstep::cudart

using namespace lockstep::cudart;

extern "C" {

cudaError_t cudaLaunchKernel(const void*, dim3, dim3, void**, size_t, cudaStream_t stream) {
  return refuse_kernel("cudaLaunchKernel", stream);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void*, void**) {
  return refuse_kernel("cudaLaunchKernelExC", config != nullptr ? config->stream : nullptr);
}

cudaError_t cudaLaunchCooperativeKernel(const void*, dim3, dim3, void**, size_t,
                                        cudaStream_t stream) {
  return refuse_kernel("cudaLaunchCooperativeKernel", stream);
}

// What nvcc's host code calls before main and for <<<>>>.

cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, size_t, cudaStream_t stream) {
  return refuse_kernel("cudaLaunchKernel", stream);
}

cudaError_t __cudaLaunchKernel_ptsz(cudaKernel_t, dim3, dim3, void**, size_t, cudaStream_t stream) {
  return refuse_kernel("cudaLaunchKernel", stream != nullptr ? stream : cudaStreamPerThread);
}

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void* stream) {
  configuration = {grid, block, shared, stream};
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  *grid = configuration.grid;
  *block = configuration.block;
  *shared = configuration.shared;
  *static_cast<void**>(stream) = configuration.stream;
  return cudaSuccess;
}

void** __cudaRegisterFatBinary(void*) {
  return &no_binary;
}

void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void**, const char*, char*, const char*, int, uint3*, uint3*, dim3*,
                            dim3*, int*) {}
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
void __cudaRegisterManagedVar(void**, void**, char*, const char*, int, size_t, int, int) {}
void __cudaRegisterHostVar(void**, const char*, char*, size_t) {}
void __cudaRegisterUnifiedTable(void**, void*) {}

char __cudaInitModule(void**) {
  return 1;
}

cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w,
                                            cudaChannelFormatKind kind) {
  return {x, y, z, w, kind};
}

}  // extern "C"
