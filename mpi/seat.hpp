// What a Communicator's handles share.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/error.hpp>
#include <lockstep/mpi/communicator.hpp>
#include <lockstep/turn.hpp>

#include "link.hpp"
#include "runtime.hpp"

namespace lockstep::mpi {

// One rank's place in one communicator. A *root* seat (the world, a wrapped communicator, a part of
// a split) has its link from the start and owns the seats of all groups made from it, directly or
// from its groups; handles on a group's seat hold the root. A group's link is made in its first
// call, by its members, over the root's link.
struct Seat {
  // A root seat.
  Seat(std::shared_ptr<Runtime> runtime, Options options, std::shared_ptr<Link> link,
       std::vector<int> outer_ranks);
  // A group of `members`, ranks of `root`.
  Seat(Seat& root, std::vector<int> members, const std::string& parent_name);
  ~Seat();
  Seat(const Seat&) = delete;
  Seat& operator=(const Seat&) = delete;

  template <class Body>
  auto call(const Signature& mine, Body body) {
    const Turn turn(in_use(), rank, name);
    return connected().call(
        mine, [&](std::span<const Message> messages) { return body(*link, messages); });
  }

  // The group of these ranks of this seat's communicator; throws InvalidArgument as
  // Communicator::group says.
  Seat& group(std::span<const int> ranks);

  std::shared_ptr<Runtime> runtime;
  Options options;
  Seat* root;
  std::vector<int> members;      // by rank: the rank in the root's communicator
  std::vector<int> outer_ranks;  // by rank: the rank in the communicator that the name starts with
  int rank;
  std::string name;
  std::shared_ptr<Link> link;  // null for a group that has not been called yet

 private:
  std::atomic<bool>& in_use();
  Link& connected();
  void own(std::unique_ptr<Seat> group);

  std::atomic<bool> in_use_ = false;
  std::optional<TransportError> failed_to_form_;
  std::mutex groups_mutex_;
  std::map<std::vector<int>, Seat*> groups_;  // by the ranks in this communicator
  std::mutex owned_mutex_;
  std::vector<std::unique_ptr<Seat>> owned_;  // a root's: all groups below it
};

// "{2, 0}"
std::string braced(const std::vector<int>& ranks);

}  // namespace lockstep::mpi
