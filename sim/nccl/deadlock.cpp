// Ranks that wait for each other in a circle.

#include "meeting.hpp"

namespace lockstep::nccl {

// Launches of one rank run one after the other. So when a rank has arrived and waits for a later
// launch of a rank that has itself arrived and waits, and so on in a circle, none can ever finish.
bool Clique::find_deadlock(const Launch& launch) {
  const auto waiting_launch = [&](int rank) -> LaunchRef {
    const auto& queue = unfinished_[static_cast<std::size_t>(rank)];
    return !queue.empty() && queue.front()->arrived ? queue.front() : nullptr;
  };
  const auto waits_for_stuck = [&](const Launch& mine, const std::vector<bool>& stuck) {
    for (const int rank : awaited_ranks(mine)) {
      if (rank != mine.rank && stuck[static_cast<std::size_t>(rank)]) return true;
      if (rank == mine.rank) return true;  // its own later launch
    }
    return false;
  };

  std::vector<bool> stuck(seats_.size());
  for (int rank = 0; rank < ranks(); ++rank) {
    stuck[static_cast<std::size_t>(rank)] = waiting_launch(rank) != nullptr;
  }
  // Nearly always this rank waits for ranks that are still on their way.
  if (!waits_for_stuck(launch, stuck)) return false;
  for (bool changed = true; changed;) {
    changed = false;
    for (int rank = 0; rank < ranks(); ++rank) {
      if (!stuck[static_cast<std::size_t>(rank)]) continue;
      if (waits_for_stuck(*waiting_launch(rank), stuck)) continue;
      stuck[static_cast<std::size_t>(rank)] = false;
      changed = true;
    }
  }
  if (!stuck[static_cast<std::size_t>(launch.rank)]) return false;

  std::vector<std::string> rows;
  for (int rank = 0; rank < ranks(); ++rank) {
    if (!stuck[static_cast<std::size_t>(rank)]) continue;
    const LaunchRef theirs = waiting_launch(rank);
    for (std::size_t at = 0; at < theirs->calls.size(); ++at) {
      if (!theirs->meetings[at]->done) {
        rows.push_back(row(*theirs, theirs->calls[at]) + ", waits for " + awaited(*theirs));
        break;
      }
    }
  }
  blame("deadlock", "ranks of " + name_ + " wait for each other's later calls in a circle",
        std::move(rows),
        "Transfers that depend on each other belong into one group; calls of different ranks must "
        "come in the same order.",
        launch, launch.calls.front(), ncclInvalidUsage);
  return true;
}

}  // namespace lockstep::nccl
