// Arithmetic that must be the same on a CPU and inside a CUDA kernel is written once, in headers,
// and marked with LOCKSTEP_HOST_DEVICE. A plain C++ compiler sees nothing.
#pragma once

#ifdef __CUDACC__
#define LOCKSTEP_HOST_DEVICE __host__ __device__
#else
#define LOCKSTEP_HOST_DEVICE
#endif
