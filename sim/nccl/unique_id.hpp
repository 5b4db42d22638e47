// What an ncclUniqueId of this library holds: which process made it, and a name of its own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "nccl_header.hpp"

namespace lockstep::nccl {

struct UniqueId {
  std::int32_t process = 0;  // that made it
  std::string token;         // of that process, at random: the name of its meeting point
  std::uint64_t number = 0;  // of the ids of that process

  std::string key() const { return token + "." + std::to_string(number); }
  // For reports.
  std::string name() const {
    return "communicator " + std::to_string(number) + " of process " + std::to_string(process);
  }
  bool of_this_process() const;
};

// A new one of this process.
UniqueId make_unique_id();
ncclUniqueId pack(const UniqueId& id);
// Nothing when the bytes are none of this library's, such as zeros of a broadcast that did not
// happen.
std::optional<UniqueId> unpack(const ncclUniqueId& bytes);

}  // namespace lockstep::nccl
