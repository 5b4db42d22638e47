// How a request to the engine ended. The runtime and NCCL translate these to their own codes.
#pragma once

#include <cstdint>

namespace lockstep::devices {

enum class Status : std::uint8_t {
  success,
  not_ready,       // of polls
  invalid_value,   // an argument that cannot be; a finding says why where it is a broken rule
  invalid_device,  // no such device
  invalid_handle,  // a stream, event or pool that is none, or was destroyed, or of another device
  out_of_memory,
  illegal_address,  // work touched memory that is not there; stays with the device
  launch_failure,   // work could never finish or failed; stays with the device
  not_permitted,    // not from here, such as from a host function
  not_supported,
};

}  // namespace lockstep::devices
