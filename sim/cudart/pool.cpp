// Stream-ordered memory and its pools.

#include <cstring>
#include <map>
#include <memory>
#include <unordered_set>

#include "runtime.hpp"

namespace lockstep::cudart {
namespace {

struct Pool {
  int device;
  bool is_default;
  std::map<int, std::uint64_t> attributes = {};
  // Other devices that may use what is allocated from here on.
  std::shared_ptr<const std::unordered_set<int>> shared =
      std::make_shared<const std::unordered_set<int>>();
};

// All of them, by handle; guarded by the engine's lock.
struct Pools {
  std::map<void*, std::unique_ptr<Pool>> all;
  std::vector<Pool*> defaults;  // by device
  std::vector<Pool*> current;
};

Pools& pools() {
  static Pools& one = *new Pools;
  return one;
}

Pool* make_pool(int device, bool is_default) {
  auto pool = std::make_unique<Pool>(Pool{device, is_default});
  Pool* const made = pool.get();
  pools().all.emplace(made, std::move(pool));
  return made;
}

Pool* default_pool(int device) {
  Pools& one = pools();
  const auto count = static_cast<std::size_t>(Engine::instance().device_count());
  if (one.defaults.empty()) one.defaults.resize(count), one.current.resize(count);
  Pool*& pool = one.defaults[static_cast<std::size_t>(device)];
  if (pool == nullptr) pool = make_pool(device, true);
  return pool;
}

Pool*& current_pool(int device) {
  Pool* const otherwise = default_pool(device);
  Pool*& pool = pools().current[static_cast<std::size_t>(device)];
  if (pool == nullptr) pool = otherwise;
  return pool;
}

Pool* find(cudaMemPool_t handle) {
  const auto found = pools().all.find(handle);
  return found == pools().all.end() ? nullptr : found->second.get();
}

bool exists(int device) {
  return device >= 0 && device < Engine::instance().device_count();
}

cudaMemPool_t handle_of(Pool* pool) {
  return reinterpret_cast<cudaMemPool_t>(pool);
}

bool is_flag(cudaMemPoolAttr attribute) {
  return attribute == cudaMemPoolReuseFollowEventDependencies ||
         attribute == cudaMemPoolReuseAllowOpportunistic ||
         attribute == cudaMemPoolReuseAllowInternalDependencies;
}

cudaError_t allocate(const Call& call, const devices::StreamRef& stream, Pool* pool, size_t bytes,
                     void** address) {
  if (address == nullptr) return cudaErrorInvalidValue;
  int device = 0;
  std::shared_ptr<const std::unordered_set<int>> shared;
  {
    Engine& engine = Engine::instance();
    const devices::Lock held = engine.lock();
    if (pool == nullptr) pool = current_pool(engine.device_of(stream));
    device = pool->device;
    shared = pool->shared;
  }
  return translate(
      Engine::instance().allocate_ordered(stream, device, bytes, call, std::move(shared), address));
}

}  // namespace
}  // namespace lockstep::cudart

using namespace lockstep::cudart;
using lockstep::devices::Lock;
using lockstep::devices::StreamRef;

extern "C" {

cudaError_t cudaMallocAsync(void** address, size_t bytes, cudaStream_t handle) {
  return on_stream("cudaMallocAsync", handle, [&](const Call& call, const StreamRef& stream) {
    return allocate(call, stream, nullptr, bytes, address);
  });
}

cudaError_t cudaMallocFromPoolAsync(void** address, size_t bytes, cudaMemPool_t handle,
                                    cudaStream_t stream_handle) {
  return on_stream("cudaMallocFromPoolAsync", stream_handle,
                   [&](const Call& call, const StreamRef& stream) {
                     Lock held = Engine::instance().lock();
                     Pool* const pool = find(handle);
                     held.unlock();
                     if (pool == nullptr) return cudaErrorInvalidValue;
                     return allocate(call, stream, pool, bytes, address);
                   });
}

cudaError_t cudaFreeAsync(void* address, cudaStream_t handle) {
  return on_stream("cudaFreeAsync", handle, [&](const Call& call, const StreamRef& stream) {
    return translate(Engine::instance().release_ordered(stream, address, call));
  });
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  return api("cudaDeviceGetDefaultMemPool", [&](const Call&) {
    if (pool == nullptr) return cudaErrorInvalidValue;
    if (!exists(device)) return cudaErrorInvalidDevice;
    const Lock held = Engine::instance().lock();
    *pool = handle_of(default_pool(device));
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* pool, int device) {
  return api("cudaDeviceGetMemPool", [&](const Call&) {
    if (pool == nullptr) return cudaErrorInvalidValue;
    if (!exists(device)) return cudaErrorInvalidDevice;
    const Lock held = Engine::instance().lock();
    *pool = handle_of(current_pool(device));
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t handle) {
  return api("cudaDeviceSetMemPool", [&](const Call&) {
    if (!exists(device)) return cudaErrorInvalidDevice;
    const Lock held = Engine::instance().lock();
    Pool* const pool = find(handle);
    if (pool == nullptr || pool->device != device) return cudaErrorInvalidValue;
    current_pool(device) = pool;
    return cudaSuccess;
  });
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* properties) {
  return api("cudaMemPoolCreate", [&](const Call& call) {
    if (pool == nullptr || properties == nullptr) return cudaErrorInvalidValue;
    if (properties->handleTypes != cudaMemHandleTypeNone) {
      return refuse(call.function.c_str(), "pools shared between processes are not covered");
    }
    if (properties->allocType != cudaMemAllocationTypePinned ||
        properties->location.type != cudaMemLocationTypeDevice) {
      return refuse(call.function.c_str(), "only pools of device memory are covered");
    }
    if (!exists(properties->location.id)) return cudaErrorInvalidDevice;
    const Lock held = Engine::instance().lock();
    *pool = handle_of(make_pool(properties->location.id, false));
    return cudaSuccess;
  });
}

// What was allocated from it stays until it is freed, as the runtime promises.
cudaError_t cudaMemPoolDestroy(cudaMemPool_t handle) {
  return api("cudaMemPoolDestroy", [&](const Call&) {
    const Lock held = Engine::instance().lock();
    Pool* const pool = find(handle);
    if (pool == nullptr || pool->is_default) return cudaErrorInvalidValue;
    if (current_pool(pool->device) == pool) current_pool(pool->device) = default_pool(pool->device);
    pools().all.erase(handle);
    return cudaSuccess;
  });
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t handle, size_t) {
  return api("cudaMemPoolTrimTo", [&](const Call&) {
    const Lock held = Engine::instance().lock();
    return find(handle) != nullptr ? cudaSuccess : cudaErrorInvalidValue;
  });
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t handle, cudaMemPoolAttr attribute, void* value) {
  return api("cudaMemPoolSetAttribute", [&](const Call&) {
    const Lock held = Engine::instance().lock();
    Pool* const pool = find(handle);
    if (pool == nullptr || value == nullptr) return cudaErrorInvalidValue;
    std::uint64_t number = 0;
    std::memcpy(&number, value, is_flag(attribute) ? sizeof(int) : sizeof number);
    pool->attributes[attribute] = number;
    return cudaSuccess;
  });
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t handle, cudaMemPoolAttr attribute, void* value) {
  return api("cudaMemPoolGetAttribute", [&](const Call&) {
    Lock held = Engine::instance().lock();
    Pool* const pool = find(handle);
    if (pool == nullptr || value == nullptr) return cudaErrorInvalidValue;
    std::uint64_t number = is_flag(attribute) ? 1 : 0;
    if (const auto set = pool->attributes.find(attribute); set != pool->attributes.end()) {
      number = set->second;
    }
    const int device = pool->device;
    held.unlock();
    if (attribute == cudaMemPoolAttrReservedMemCurrent ||
        attribute == cudaMemPoolAttrUsedMemCurrent) {
      const auto [unused, all] = Engine::instance().memory_info(device);
      number = all - unused;
    }
    std::memcpy(value, &number, is_flag(attribute) ? sizeof(int) : sizeof number);
    return cudaSuccess;
  });
}

cudaError_t cudaMemPoolSetAccess(cudaMemPool_t handle, const cudaMemAccessDesc* list,
                                 size_t count) {
  return api("cudaMemPoolSetAccess", [&](const Call&) {
    const Lock held = Engine::instance().lock();
    Pool* const pool = find(handle);
    if (pool == nullptr || (list == nullptr && count != 0)) return cudaErrorInvalidValue;
    auto shared = std::make_shared<std::unordered_set<int>>(*pool->shared);
    for (size_t i = 0; i < count; ++i) {
      if (list[i].location.type != cudaMemLocationTypeDevice || !exists(list[i].location.id)) {
        return cudaErrorInvalidValue;
      }
      if (list[i].flags == cudaMemAccessFlagsProtNone) {
        shared->erase(list[i].location.id);
      } else {
        shared->insert(list[i].location.id);
      }
    }
    pool->shared = std::move(shared);
    return cudaSuccess;
  });
}

cudaError_t cudaMemPoolGetAccess(cudaMemAccessFlags* flags, cudaMemPool_t handle,
                                 cudaMemLocation* location) {
  return api("cudaMemPoolGetAccess", [&](const Call&) {
    const Lock held = Engine::instance().lock();
    Pool* const pool = find(handle);
    if (pool == nullptr || flags == nullptr || location == nullptr ||
        location->type != cudaMemLocationTypeDevice) {
      return cudaErrorInvalidValue;
    }
    *flags = location->id == pool->device || pool->shared->contains(location->id)
                 ? cudaMemAccessFlagsProtReadWrite
                 : cudaMemAccessFlagsProtNone;
    return cudaSuccess;
  });
}

}  // extern "C"
