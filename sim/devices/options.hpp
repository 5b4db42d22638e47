// How the simulated devices behave, as the environment of the process says. `lockstep simulate`
// sets these variables from its command line; docs/simulated-devices.md lists them for users.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace lockstep::devices {

struct Options {
  int devices = 8;                             // LOCKSTEP_SIM_DEVICES, 1 to 1024
  std::uint64_t seed = 0;                      // LOCKSTEP_SIM_SEED; 0: as late as possible
  std::size_t memory = std::size_t{16} << 30;  // LOCKSTEP_SIM_MEMORY, bytes per device
  std::chrono::milliseconds timeout{30'000};   // LOCKSTEP_SIM_TIMEOUT, in seconds
  bool abort = false;                          // LOCKSTEP_SIM_ABORT=1: at the first finding
  std::string report = {};                     // LOCKSTEP_SIM_REPORT: a file for JSON lines
  bool guard = true;                           // LOCKSTEP_SIM_GUARD=0: no protected pages
  bool uninitialized = true;                   // LOCKSTEP_SIM_UNINITIALIZED=0: may be read
};

// Reads the environment. A value that is not of its form ends the process with a message that names
// the variable: a simulation that silently ignores what it was told misleads.
Options read_options();

}  // namespace lockstep::devices
