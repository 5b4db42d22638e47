#include "properties.hpp"

#include <cstdio>
#include <cstring>

#include "engine.hpp"

namespace lockstep::cudart {

using devices::Engine;

cudaDeviceProp properties(int device) {
  cudaDeviceProp p;
  std::memset(&p, 0, sizeof p);
  std::snprintf(p.name, sizeof p.name, "Lockstep simulated device");
  std::memcpy(p.uuid.bytes, "lockstep", 8);
  std::memcpy(p.uuid.bytes + 8, &device, sizeof device);
  p.totalGlobalMem = Engine::instance().options().memory;
  p.sharedMemPerBlock = 48 << 10;
  p.sharedMemPerBlockOptin = 227 << 10;
  p.sharedMemPerMultiprocessor = 228 << 10;
  p.reservedSharedMemPerBlock = 1 << 10;
  p.regsPerBlock = p.regsPerMultiprocessor = 65536;
  p.warpSize = 32;
  p.memPitch = 0x7fffffff;
  p.maxThreadsPerBlock = 1024;
  p.maxThreadsPerMultiProcessor = 2048;
  p.maxBlocksPerMultiProcessor = 32;
  p.maxThreadsDim[0] = p.maxThreadsDim[1] = 1024;
  p.maxThreadsDim[2] = 64;
  p.maxGridSize[0] = 0x7fffffff;
  p.maxGridSize[1] = p.maxGridSize[2] = 65535;
  p.totalConstMem = 64 << 10;
  p.major = 9;
  p.minor = 0;
  p.textureAlignment = 512;
  p.texturePitchAlignment = 32;
  p.surfaceAlignment = 512;
  p.multiProcessorCount = 1;
  p.canMapHostMemory = 1;
  p.concurrentKernels = 1;
  p.pciDomainID = domain_of(device);
  p.pciBusID = bus_of(device);
  p.asyncEngineCount = 2;
  p.unifiedAddressing = 1;
  p.memoryBusWidth = 5120;
  p.l2CacheSize = 50 << 20;
  p.streamPrioritiesSupported = 1;
  p.globalL1CacheSupported = p.localL1CacheSupported = 1;
  p.managedMemory = 1;
  p.canUseHostPointerForRegisteredMem = 1;
  p.hostRegisterSupported = 1;
  p.memoryPoolsSupported = 1;
  p.deviceNumaId = -1;
  p.hostNumaId = -1;
  return p;
}

bool attribute(cudaDeviceAttr which, int device, int& value) {
  const cudaDeviceProp p = properties(device);
  switch (which) {
    case cudaDevAttrMaxThreadsPerBlock:
      value = p.maxThreadsPerBlock;
      return true;
    case cudaDevAttrMaxBlockDimX:
      value = p.maxThreadsDim[0];
      return true;
    case cudaDevAttrMaxBlockDimY:
      value = p.maxThreadsDim[1];
      return true;
    case cudaDevAttrMaxBlockDimZ:
      value = p.maxThreadsDim[2];
      return true;
    case cudaDevAttrMaxGridDimX:
      value = p.maxGridSize[0];
      return true;
    case cudaDevAttrMaxGridDimY:
      value = p.maxGridSize[1];
      return true;
    case cudaDevAttrMaxGridDimZ:
      value = p.maxGridSize[2];
      return true;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      value = 48 << 10;
      return true;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      value = 227 << 10;
      return true;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      value = 228 << 10;
      return true;
    case cudaDevAttrReservedSharedMemoryPerBlock:
      value = 1 << 10;
      return true;
    case cudaDevAttrTotalConstantMemory:
      value = 64 << 10;
      return true;
    case cudaDevAttrWarpSize:
      value = p.warpSize;
      return true;
    case cudaDevAttrMaxPitch:
      value = 0x7fffffff;
      return true;
    case cudaDevAttrMaxRegistersPerBlock:
      value = p.regsPerBlock;
      return true;
    case cudaDevAttrMaxRegistersPerMultiprocessor:
      value = p.regsPerMultiprocessor;
      return true;
    case cudaDevAttrMaxBlocksPerMultiprocessor:
      value = p.maxBlocksPerMultiProcessor;
      return true;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      value = p.maxThreadsPerMultiProcessor;
      return true;
    case cudaDevAttrClockRate:
      value = 1'000'000;
      return true;
    case cudaDevAttrMemoryClockRate:
      value = 1'000'000;
      return true;
    case cudaDevAttrTextureAlignment:
      value = 512;
      return true;
    case cudaDevAttrGpuOverlap:
      value = 1;
      return true;
    case cudaDevAttrAsyncEngineCount:
      value = p.asyncEngineCount;
      return true;
    case cudaDevAttrMultiProcessorCount:
      value = p.multiProcessorCount;
      return true;
    case cudaDevAttrKernelExecTimeout:
      value = 0;
      return true;
    case cudaDevAttrIntegrated:
      value = 0;
      return true;
    case cudaDevAttrCanMapHostMemory:
      value = 1;
      return true;
    case cudaDevAttrComputeMode:
      value = cudaComputeModeDefault;
      return true;
    case cudaDevAttrConcurrentKernels:
      value = 1;
      return true;
    case cudaDevAttrEccEnabled:
      value = 0;
      return true;
    case cudaDevAttrPciBusId:
      value = p.pciBusID;
      return true;
    case cudaDevAttrPciDeviceId:
      value = p.pciDeviceID;
      return true;
    case cudaDevAttrPciDomainId:
      value = p.pciDomainID;
      return true;
    case cudaDevAttrTccDriver:
      value = 0;
      return true;
    case cudaDevAttrGlobalMemoryBusWidth:
      value = p.memoryBusWidth;
      return true;
    case cudaDevAttrL2CacheSize:
      value = p.l2CacheSize;
      return true;
    case cudaDevAttrUnifiedAddressing:
      value = 1;
      return true;
    case cudaDevAttrComputeCapabilityMajor:
      value = p.major;
      return true;
    case cudaDevAttrComputeCapabilityMinor:
      value = p.minor;
      return true;
    case cudaDevAttrStreamPrioritiesSupported:
      value = 1;
      return true;
    case cudaDevAttrGlobalL1CacheSupported:
      value = 1;
      return true;
    case cudaDevAttrLocalL1CacheSupported:
      value = 1;
      return true;
    case cudaDevAttrManagedMemory:
      value = 1;
      return true;
    case cudaDevAttrIsMultiGpuBoard:
      value = 0;
      return true;
    case cudaDevAttrMultiGpuBoardGroupID:
      value = device;
      return true;
    case cudaDevAttrHostNativeAtomicSupported:
      value = 0;
      return true;
    case cudaDevAttrPageableMemoryAccess:
      value = 0;
      return true;
    case cudaDevAttrPageableMemoryAccessUsesHostPageTables:
      value = 0;
      return true;
    case cudaDevAttrConcurrentManagedAccess:
      value = 0;
      return true;
    case cudaDevAttrComputePreemptionSupported:
      value = 0;
      return true;
    case cudaDevAttrCanUseHostPointerForRegisteredMem:
      value = 1;
      return true;
    case cudaDevAttrCooperativeLaunch:
      value = 0;
      return true;
    case cudaDevAttrDirectManagedMemAccessFromHost:
      value = 0;
      return true;
    case cudaDevAttrHostRegisterSupported:
      value = 1;
      return true;
    case cudaDevAttrHostRegisterReadOnlySupported:
      value = 0;
      return true;
    case cudaDevAttrMemoryPoolsSupported:
      value = 1;
      return true;
    case cudaDevAttrMemoryPoolSupportedHandleTypes:
      value = 0;
      return true;
    case cudaDevAttrGPUDirectRDMASupported:
      value = 0;
      return true;
    case cudaDevAttrGPUDirectRDMAFlushWritesOptions:
      value = 0;
      return true;
    case cudaDevAttrGPUDirectRDMAWritesOrdering:
      value = 0;
      return true;
    case cudaDevAttrClusterLaunch:
      value = 0;
      return true;
    case cudaDevAttrIpcEventSupport:
      value = 0;
      return true;
    default:
      return false;
  }
}

}  // namespace lockstep::cudart
