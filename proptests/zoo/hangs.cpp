// Calls that never return.
#include <algorithm>

#include "spoiling.hpp"

namespace lockstep::zoo {
namespace {

Answer mismatch_hangs(Rank& rank, const Call& call) {
  try {
    return rank.right(call);
  } catch (const ContractError& error) {
    if (error.violation() != Violation::dtype) throw;
    rank.hang();
  }
}

Answer group_without_zero_hangs(Rank& rank, const Call& call) {
  const auto& ranks = rank.world_ranks();
  if (std::ranges::count(ranks, 0) == 0) rank.hang();
  return rank.right(call);
}

Answer hangs_after_error(Rank& rank, const Call& call) {
  if (rank.here().breached) rank.hang();
  return rank.right(call);
}

Answer loss_hangs(Rank& rank, const Call& call) {
  try {
    return rank.right(call);
  } catch (const TransportError&) {
    rank.hang();
  }
}

// Workers outnumber the pieces, and one of them waits for a piece.
Answer small_scatter_hangs(Rank& rank, const Call& call) {
  const bool small = call.operation == Operation::reduce_scatter_sum && call.x.elements() > 0 &&
                     call.x.elements() == rank.size() && rank.size() > 1;
  if (small && rank.last()) rank.hang();
  return rank.right(call);
}

// Rank 0 skips a call that has nothing for it and waits for a signal of its end.
Answer empty_root_hangs(Rank& rank, const Call& call) {
  const bool empty = call.operation == Operation::broadcast_float && call.x.elements() == 0;
  if (empty && rank.rank() == call.root) rank.hang();
  return rank.right(call);
}

}  // namespace

std::vector<Mutant> hang_mutants() {
  constexpr std::string_view kind = "hangs";
  return {
      {"mismatch_hangs", kind, "Ranks that pass different dtypes wait for ever.", mismatch_hangs},
      {"group_without_rank_0_hangs", kind, "A group without rank 0 of the world waits for ever.",
       group_without_zero_hangs},
      {"hangs_after_error", kind, "The call after a broken contract waits for ever.",
       hangs_after_error},
      {"loss_hangs", kind, "Whoever needs a missing rank waits for ever.", loss_hangs},
      {"small_scatter_hangs", kind, "A reduce-scatter of one element to each rank waits for ever.",
       small_scatter_hangs},
      {"empty_root_hangs", kind, "The root of a broadcast without elements waits for ever.",
       empty_root_hangs},
  };
}

}  // namespace lockstep::zoo
