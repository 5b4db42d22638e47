// What simulated devices say of themselves.
#pragma once

#include <cuda_runtime_api.h>

namespace lockstep::cudart {

// PCI addresses: one bus per device, more domains for more than 255 of them.
inline int domain_of(int device) {
  return device / 255;
}
inline int bus_of(int device) {
  return device % 255 + 1;
}

cudaDeviceProp properties(int device);

// False for an attribute that follows from nothing known here: it is refused by name rather than
// answered with a zero.
bool attribute(cudaDeviceAttr which, int device, int& value);

}  // namespace lockstep::cudart
