// Where the ranks' calls of one operation come together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "clique.hpp"

namespace lockstep::nccl {

// One rank's call of an operation.
struct Part {
  LaunchRef launch;      // null before it is announced
  std::size_t call = 0;  // which of the launch's
};

// One operation of all the ranks that take part in it.
struct Meeting {
  bool collective = true;
  std::uint64_t number = 0;  // of a collective
  int source = -1;           // of a transfer
  int destination = -1;
  // By rank, or the sender and the receiver.
  std::vector<Part> parts;
  std::size_t announced = 0;
  std::size_t arrived = 0;
  bool done = false;

  int rank_at(std::size_t seat) const {
    if (collective) return static_cast<int>(seat);
    return seat == 0 ? source : destination;
  }
  const Call& call(std::size_t seat) const { return parts[seat].launch->calls[parts[seat].call]; }
  std::span<const std::byte> input(std::size_t seat, int ranks) const {
    const Part& part = parts[seat];
    const Extents sizes = *extents(call(seat), part.launch->rank, ranks);
    return {part.launch->inputs[part.call], sizes.sent};
  }
  std::byte* output(std::size_t seat) const {
    return parts[seat].launch->outputs[parts[seat].call];
  }
};

}  // namespace lockstep::nccl
