// What a Communicator's handles share.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include <lockstep/turn.hpp>

#include "link.hpp"

namespace lockstep::gpu {

// One rank's place in one communicator, with the places in the groups made from it. Handles on a
// group's seat hold the seat that it was made from.
struct Seat {
  Seat(std::shared_ptr<ControlPlane> control, const Stream& stream, const Options& options)
      : link(std::move(control), stream, options) {}

  Seat& group(std::span<const int> ranks);

  Turn take_turn() { return Turn(in_use_, link.rank(), link.name()); }

  Link link;

 private:
  std::atomic<bool> in_use_ = false;
  std::mutex groups_mutex_;
  std::map<std::vector<int>, std::unique_ptr<Seat>> groups_;  // by the ranks in this communicator
};

}  // namespace lockstep::gpu
