// Memory: device, page-locked, managed; and what is known of a pointer.

#include "runtime.hpp"

namespace lockstep::cudart {
namespace {

using devices::MemoryKind;

cudaError_t allocate(const char* function, MemoryKind kind, void** address, std::size_t bytes) {
  return api(function, [&](const Call& call) {
    if (address == nullptr) return cudaErrorInvalidValue;
    Engine& engine = Engine::instance();
    return translate(engine.allocate(kind, engine.current_device(), bytes, call, address));
  });
}

constexpr std::size_t pitch_step = 512;

}  // namespace
}  // namespace lockstep::cudart

using namespace lockstep::cudart;
using lockstep::devices::MemoryKind;
using lockstep::devices::PointerInfo;

extern "C" {

cudaError_t cudaMalloc(void** address, size_t bytes) {
  return allocate("cudaMalloc", MemoryKind::device, address, bytes);
}

cudaError_t cudaMallocManaged(void** address, size_t bytes, unsigned) {
  return allocate("cudaMallocManaged", MemoryKind::managed, address, bytes);
}

cudaError_t cudaMallocHost(void** address, size_t bytes) {
  return allocate("cudaMallocHost", MemoryKind::pinned, address, bytes);
}

cudaError_t cudaHostAlloc(void** address, size_t bytes, unsigned) {
  return allocate("cudaHostAlloc", MemoryKind::pinned, address, bytes);
}

cudaError_t cudaMallocPitch(void** address, size_t* pitch, size_t width, size_t height) {
  return api("cudaMallocPitch", [&](const Call& call) {
    if (address == nullptr || pitch == nullptr) return cudaErrorInvalidValue;
    *pitch = (width + pitch_step - 1) / pitch_step * pitch_step;
    Engine& engine = Engine::instance();
    return translate(engine.allocate(MemoryKind::device, engine.current_device(), *pitch * height,
                                     call, address));
  });
}

cudaError_t cudaFree(void* address) {
  return api("cudaFree", [&](const Call& call) {
    return translate(Engine::instance().release(address, false, call));
  });
}

cudaError_t cudaFreeHost(void* address) {
  return api("cudaFreeHost", [&](const Call& call) {
    return translate(Engine::instance().release(address, true, call));
  });
}

cudaError_t cudaHostRegister(void* address, size_t bytes, unsigned) {
  return api("cudaHostRegister", [&](const Call& call) {
    if (address == nullptr || bytes == 0) return cudaErrorInvalidValue;
    return Engine::instance().register_host(address, bytes, call) == Status::success
               ? cudaSuccess
               : cudaErrorHostMemoryAlreadyRegistered;
  });
}

cudaError_t cudaHostUnregister(void* address) {
  return api("cudaHostUnregister", [&](const Call& call) {
    return Engine::instance().unregister_host(address, call) == Status::success
               ? cudaSuccess
               : cudaErrorHostMemoryNotRegistered;
  });
}

cudaError_t cudaHostGetDevicePointer(void** out, void* host, unsigned) {
  return api("cudaHostGetDevicePointer", [&](const Call&) {
    if (out == nullptr) return cudaErrorInvalidValue;
    const auto known = Engine::instance().pointer_info(host);
    if (!known || known->kind == MemoryKind::device || known->kind == MemoryKind::pool) {
      return cudaErrorInvalidValue;
    }
    *out = host;
    return cudaSuccess;
  });
}

cudaError_t cudaHostGetFlags(unsigned* flags, void* host) {
  return api("cudaHostGetFlags", [&](const Call&) {
    const auto known = Engine::instance().pointer_info(host);
    if (flags == nullptr || !known || known->kind != MemoryKind::pinned) {
      return cudaErrorInvalidValue;
    }
    *flags = cudaHostAllocMapped | cudaHostAllocPortable;
    return cudaSuccess;
  });
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return api("cudaMemGetInfo", [&](const Call&) {
    if (free == nullptr || total == nullptr) return cudaErrorInvalidValue;
    Engine& engine = Engine::instance();
    const auto [unused, all] = engine.memory_info(engine.current_device());
    *free = unused;
    *total = all;
    return cudaSuccess;
  });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* out, const void* pointer) {
  return api("cudaPointerGetAttributes", [&](const Call&) {
    if (out == nullptr) return cudaErrorInvalidValue;
    *out = {};
    void* const same = const_cast<void*>(pointer);
    const auto known = Engine::instance().pointer_info(pointer);
    if (!known) {
      out->type = cudaMemoryTypeUnregistered;
      out->device = cudaInvalidDeviceId;
      out->hostPointer = same;
      return cudaSuccess;
    }
    out->device = known->device;
    out->devicePointer = same;
    switch (known->kind) {
      case MemoryKind::device:
      case MemoryKind::pool:
        out->type = cudaMemoryTypeDevice;
        break;
      case MemoryKind::managed:
        out->type = cudaMemoryTypeManaged;
        out->hostPointer = same;
        break;
      case MemoryKind::pinned:
      case MemoryKind::registered:
        out->type = cudaMemoryTypeHost;
        out->hostPointer = same;
        break;
    }
    return cudaSuccess;
  });
}

// Hints about managed memory have nothing to do here.

cudaError_t cudaMemAdvise(const void*, size_t, cudaMemoryAdvise, cudaMemLocation) {
  return api("cudaMemAdvise", [](const Call&) { return cudaSuccess; });
}

cudaError_t cudaMemPrefetchAsync(const void*, size_t, cudaMemLocation, unsigned,
                                 cudaStream_t stream) {
  return on_stream("cudaMemPrefetchAsync", stream,
                   [](const Call&, const auto&) { return cudaSuccess; });
}

}  // extern "C"
