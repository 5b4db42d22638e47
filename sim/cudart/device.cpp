// Devices: how many, what they say of themselves, which one is current.

#include <algorithm>
#include <cstdio>
#include <map>

#include "properties.hpp"
#include "runtime.hpp"

namespace lockstep::cudart {
namespace {

bool exists(int device) {
  return device >= 0 && device < Engine::instance().device_count();
}

struct Settings {
  std::map<int, std::size_t> limits;
  unsigned flags = cudaDeviceScheduleAuto;
};
// Of each device; only kept to be read back.
Settings& settings(int device) {
  static auto& all = *new std::map<int, Settings>;
  return all[device];
}

}  // namespace
}  // namespace lockstep::cudart

using namespace lockstep::cudart;
using lockstep::devices::Lock;

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  return api("cudaGetDeviceCount", [&](const Call&) {
    if (count == nullptr) return cudaErrorInvalidValue;
    *count = Engine::instance().device_count();
    return cudaSuccess;
  });
}

cudaError_t cudaGetDevice(int* device) {
  return api("cudaGetDevice", [&](const Call&) {
    if (device == nullptr) return cudaErrorInvalidValue;
    *device = Engine::instance().current_device();
    return cudaSuccess;
  });
}

cudaError_t cudaSetDevice(int device) {
  return api("cudaSetDevice",
             [&](const Call&) { return translate(Engine::instance().set_device(device)); });
}

cudaError_t cudaInitDevice(int device, unsigned, unsigned) {
  return api("cudaInitDevice",
             [&](const Call&) { return exists(device) ? cudaSuccess : cudaErrorInvalidDevice; });
}

cudaError_t cudaSetValidDevices(int* list, int length) {
  return api("cudaSetValidDevices", [&](const Call&) {
    for (int i = 0; i < length; ++i) {
      if (!exists(list[i])) return cudaErrorInvalidValue;
    }
    return cudaSuccess;
  });
}

cudaError_t cudaChooseDevice(int* device, const cudaDeviceProp*) {
  return api("cudaChooseDevice", [&](const Call&) {
    *device = 0;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* out, int device) {
  return api("cudaGetDeviceProperties", [&](const Call&) {
    if (out == nullptr) return cudaErrorInvalidValue;
    if (!exists(device)) return cudaErrorInvalidDevice;
    *out = properties(device);
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int device) {
  return api("cudaDeviceGetAttribute", [&](const Call& call) {
    if (value == nullptr) return cudaErrorInvalidValue;
    if (!exists(device)) return cudaErrorInvalidDevice;
    if (attribute(which, device, *value)) return cudaSuccess;
    const std::string reason =
        "attribute " + std::to_string(which) + " is not covered by the simulated devices";
    return refuse(call.function.c_str(), reason.c_str());
  });
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  return api("cudaDeviceGetPCIBusId", [&](const Call&) {
    if (text == nullptr || length < 13) return cudaErrorInvalidValue;
    if (!exists(device)) return cudaErrorInvalidDevice;
    std::snprintf(text, static_cast<std::size_t>(length), "%04x:%02x:00.0",
                  static_cast<unsigned>(domain_of(device)), static_cast<unsigned>(bus_of(device)));
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetByPCIBusId(int* device, const char* text) {
  return api("cudaDeviceGetByPCIBusId", [&](const Call&) {
    if (device == nullptr || text == nullptr) return cudaErrorInvalidValue;
    unsigned domain = 0;
    unsigned bus = 0;
    if (std::sscanf(text, "%x:%x:", &domain, &bus) != 2 && std::sscanf(text, "%x:", &bus) != 1) {
      return cudaErrorInvalidValue;
    }
    const int found = static_cast<int>(domain * 255 + bus) - 1;
    if (!exists(found)) return cudaErrorInvalidDevice;
    *device = found;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return api("cudaDeviceGetStreamPriorityRange", [&](const Call&) {
    if (least != nullptr) *least = 0;
    if (greatest != nullptr) *greatest = -5;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceSetLimit(cudaLimit limit, size_t value) {
  return api("cudaDeviceSetLimit", [&](const Call&) {
    const Lock held = Engine::instance().lock();
    settings(Engine::instance().current_device()).limits[limit] = value;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetLimit(size_t* value, cudaLimit limit) {
  return api("cudaDeviceGetLimit", [&](const Call&) {
    if (value == nullptr) return cudaErrorInvalidValue;
    const Lock held = Engine::instance().lock();
    const auto& limits = settings(Engine::instance().current_device()).limits;
    const auto found = limits.find(limit);
    *value = found == limits.end() ? 0 : found->second;
    return cudaSuccess;
  });
}

cudaError_t cudaSetDeviceFlags(unsigned flags) {
  return api("cudaSetDeviceFlags", [&](const Call&) {
    const Lock held = Engine::instance().lock();
    settings(Engine::instance().current_device()).flags = flags;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDeviceFlags(unsigned* flags) {
  return api("cudaGetDeviceFlags", [&](const Call&) {
    if (flags == nullptr) return cudaErrorInvalidValue;
    const Lock held = Engine::instance().lock();
    *flags = settings(Engine::instance().current_device()).flags;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetCacheConfig(cudaFuncCache* config) {
  return api("cudaDeviceGetCacheConfig", [&](const Call&) {
    *config = cudaFuncCachePreferNone;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache) {
  return api("cudaDeviceSetCacheConfig", [](const Call&) { return cudaSuccess; });
}

cudaError_t cudaDeviceSynchronize() {
  return api("cudaDeviceSynchronize", [](const Call& call) {
    Engine& engine = Engine::instance();
    return translate(engine.synchronize_device(engine.current_device(), call));
  });
}

// Waits for the device; what was allocated stays, so that a use of it after this goes unnoticed.
cudaError_t cudaDeviceReset() {
  return api("cudaDeviceReset", [](const Call& call) {
    Engine& engine = Engine::instance();
    return translate(engine.synchronize_device(engine.current_device(), call));
  });
}

// --- peers: every device can reach every other one

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  return api("cudaDeviceCanAccessPeer", [&](const Call&) {
    if (can == nullptr) return cudaErrorInvalidValue;
    if (!exists(device) || !exists(peer)) return cudaErrorInvalidDevice;
    *can = device != peer ? 1 : 0;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  return api("cudaDeviceEnablePeerAccess", [&](const Call&) {
    Engine& engine = Engine::instance();
    if (flags != 0) return cudaErrorInvalidValue;
    if (!exists(peer) || peer == engine.current_device()) return cudaErrorInvalidDevice;
    return engine.enable_peer(engine.current_device(), peer) == Status::success
               ? cudaSuccess
               : cudaErrorPeerAccessAlreadyEnabled;
  });
}

cudaError_t cudaDeviceDisablePeerAccess(int peer) {
  return api("cudaDeviceDisablePeerAccess", [&](const Call&) {
    Engine& engine = Engine::instance();
    if (!exists(peer)) return cudaErrorInvalidDevice;
    return engine.disable_peer(engine.current_device(), peer) == Status::success
               ? cudaSuccess
               : cudaErrorPeerAccessNotEnabled;
  });
}

cudaError_t cudaDeviceGetP2PAttribute(int* value, cudaDeviceP2PAttr which, int from, int to) {
  return api("cudaDeviceGetP2PAttribute", [&](const Call&) {
    if (value == nullptr || from == to) return cudaErrorInvalidValue;
    if (!exists(from) || !exists(to)) return cudaErrorInvalidDevice;
    *value = which == cudaDevP2PAttrAccessSupported ? 1 : 0;
    return cudaSuccess;
  });
}

// --- versions: of the headers that this was built with

cudaError_t cudaRuntimeGetVersion(int* version) {
  return api("cudaRuntimeGetVersion", [&](const Call&) {
    if (version == nullptr) return cudaErrorInvalidValue;
    *version = CUDART_VERSION;
    return cudaSuccess;
  });
}

cudaError_t cudaDriverGetVersion(int* version) {
  return api("cudaDriverGetVersion", [&](const Call&) {
    if (version == nullptr) return cudaErrorInvalidValue;
    *version = CUDART_VERSION;
    return cudaSuccess;
  });
}

cudaError_t cudaProfilerStart() {
  return api("cudaProfilerStart", [](const Call&) { return cudaSuccess; });
}

cudaError_t cudaProfilerStop() {
  return api("cudaProfilerStop", [](const Call&) { return cudaSuccess; });
}

}  // extern "C"
