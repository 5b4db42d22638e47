// The functions that copy and set memory.

#include "copy.hpp"

using namespace lockstep::cudart;
using lockstep::devices::StreamRef;

// The synchronous ones, on whichever default stream their flavour means.
namespace {

cudaError_t memcpy_1d(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                      cudaStream_t handle) {
  return on_stream("cudaMemcpy", handle, [&](const Call& call, const StreamRef& stream) {
    return copy(call, stream, {to, bytes}, {from, bytes}, kind, true);
  });
}

cudaError_t memcpy_2d(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                      size_t height, cudaMemcpyKind kind, cudaStream_t handle) {
  return on_stream("cudaMemcpy2D", handle, [&](const Call& call, const StreamRef& stream) {
    return copy(call, stream, {to, width, height, to_pitch}, {from, width, height, from_pitch},
                kind, true);
  });
}

cudaError_t memset_1d(void* to, int value, size_t bytes, cudaStream_t handle) {
  return on_stream("cudaMemset", handle, [&](const Call& call, const StreamRef& stream) {
    return set(call, stream, {to, bytes}, value, true);
  });
}

cudaError_t memset_2d(void* to, size_t pitch, int value, size_t width, size_t height,
                      cudaStream_t handle) {
  return on_stream("cudaMemset2D", handle, [&](const Call& call, const StreamRef& stream) {
    return set(call, stream, {to, width, height, pitch}, value, true);
  });
}

}  // namespace

extern "C" {

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t handle) {
  return on_stream("cudaMemcpyAsync", handle, [&](const Call& call, const StreamRef& stream) {
    return copy(call, stream, {to, bytes}, {from, bytes}, kind, false);
  });
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return memcpy_1d(to, from, bytes, kind, cudaStreamLegacy);
}

cudaError_t cudaMemcpy_ptds(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return memcpy_1d(to, from, bytes, kind, cudaStreamPerThread);
}

cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind,
                              cudaStream_t handle) {
  return on_stream("cudaMemcpy2DAsync", handle, [&](const Call& call, const StreamRef& stream) {
    return copy(call, stream, {to, width, height, to_pitch}, {from, width, height, from_pitch},
                kind, false);
  });
}

cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                         size_t width, size_t height, cudaMemcpyKind kind) {
  return memcpy_2d(to, to_pitch, from, from_pitch, width, height, kind, cudaStreamLegacy);
}

cudaError_t cudaMemcpy2D_ptds(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind) {
  return memcpy_2d(to, to_pitch, from, from_pitch, width, height, kind, cudaStreamPerThread);
}

cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device,
                                size_t bytes, cudaStream_t handle) {
  return on_stream("cudaMemcpyPeerAsync", handle, [&](const Call& call, const StreamRef& stream) {
    cudaError_t error = check_peer(call, to, to_device, "dst");
    if (error == cudaSuccess) error = check_peer(call, from, from_device, "src");
    if (error != cudaSuccess) return error;
    return copy(call, stream, {to, bytes}, {from, bytes}, cudaMemcpyDeviceToDevice, false);
  });
}

cudaError_t cudaMemcpyPeer(void* to, int to_device, const void* from, int from_device,
                           size_t bytes) {
  return cudaMemcpyPeerAsync(to, to_device, from, from_device, bytes, cudaStreamLegacy);
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t handle) {
  return on_stream("cudaMemsetAsync", handle, [&](const Call& call, const StreamRef& stream) {
    return set(call, stream, {to, bytes}, value, false);
  });
}

cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  return memset_1d(to, value, bytes, cudaStreamLegacy);
}

cudaError_t cudaMemset_ptds(void* to, int value, size_t bytes) {
  return memset_1d(to, value, bytes, cudaStreamPerThread);
}

cudaError_t cudaMemset2DAsync(void* to, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t handle) {
  return on_stream("cudaMemset2DAsync", handle, [&](const Call& call, const StreamRef& stream) {
    return set(call, stream, {to, width, height, pitch}, value, false);
  });
}

cudaError_t cudaMemset2D(void* to, size_t pitch, int value, size_t width, size_t height) {
  return memset_2d(to, pitch, value, width, height, cudaStreamLegacy);
}

cudaError_t cudaMemset2D_ptds(void* to, size_t pitch, int value, size_t width, size_t height) {
  return memset_2d(to, pitch, value, width, height, cudaStreamPerThread);
}

}  // extern "C"
