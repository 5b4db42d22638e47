// What one rank recorded in a forward window, and what all ranks make of it together.
//
// Which of the recorded collectives does anybody's loss reach? A loss on one rank can reach a
// collective that another rank's loss does not, and on through that other rank's part of the
// collective to collectives that the first rank is not even a member of. So every rank describes
// its window to all, and each works out the same answer from the same descriptions. Nothing here
// communicates.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include <lockstep/differentiation/gradient.hpp>
#include <lockstep/error.hpp>
#include <lockstep/operation.hpp>

namespace lockstep::differentiation {

// Recorded collectives of one rank, by their number in its window, latest first: those whose
// results flow into a value without passing through another one of these. A loss that reaches the
// value reaches them.
using Frontier = std::vector<int>;

struct Window {
  // The same communicator has the same description on all its members.
  struct Communicator {
    // Ranks of the scope's communicator, in this one's order. None for the scope's communicator
    // itself: a description should not grow with the world.
    std::vector<int> members;
    std::vector<std::int64_t> origin;  // how it was made, to tell apart two of the same members
  };
  struct Collective {
    int communicator;
    Operation operation;
    Frontier feeds_on;  // what its input depends on, on this rank
  };

  std::vector<Communicator> communicators;
  std::vector<Collective> collectives;  // in the order of the calls
  Frontier loss;                        // what this rank's own loss reaches
  std::vector<UnlikeUpstream> unlike;   // its upstream gradients that are unlike their values
};

std::vector<std::int64_t> encode(const Window& window);
Window decode_window(std::span<const std::int64_t> integers);

// Joins frontiers, and leaves out what follows from the rest: programs that carry a running sum
// along depend on all collectives before, but need to say so of the latest one only.
class Frontiers {
 public:
  // Entry i is what collective i of this rank feeds on; collectives are added in order.
  void add(const Frontier& feeds_on);
  Frontier join(const Frontier& a, const Frontier& b) const;

 private:
  // Entry i: the collectives that are reached on this rank whenever collective i is.
  std::vector<std::vector<bool>> implied_;
};

struct WindowBreach {
  Violation violation;
  std::string explanation;
};

// Entry r of `descriptions` is rank r's window, encoded. For each collective of `rank`, whether
// anybody's loss reaches it: directly, or because it is reached on any rank through what another
// collective feeds on. Or what breaks the contract: ranks that ask for the gradient of one operation
// instead (`operation`), upstream gradients unlike their values (`gradient`), or members of a
// communicator that recorded different collectives on it (`window`).
std::variant<std::vector<bool>, WindowBreach> find_reached(
    std::span<const std::vector<std::int64_t>> descriptions, int rank);

}  // namespace lockstep::differentiation
