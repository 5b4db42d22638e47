// ncclConfig_t.
#pragma once

#include <string>

#include "nccl_header.hpp"

namespace lockstep::nccl {

struct Configuration {
  bool blocking = true;
  std::string name;  // commName, for reports; may be empty
};

// What a new communicator takes from `config`, and where that leaves a field undefined, from
// `inherited` and the environment (NCCL_COMM_BLOCKING). Null is all undefined. `wrong` becomes a
// sentence about the first field that cannot be, or stays empty. Fields that choose how a GPU does
// its work have no meaning here; they are only checked.
Configuration read_configuration(const ncclConfig_t* config, const Configuration& inherited,
                                 std::string& wrong);

}  // namespace lockstep::nccl
