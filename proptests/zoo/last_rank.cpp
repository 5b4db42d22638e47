// Right on every rank but the last, which a verdict of rank 0 never shows.
#include <algorithm>

#include "spoiling.hpp"

namespace lockstep::zoo {
namespace {

Fault on_the_last(Concerns concerns, Spoil spoil) {
  return spoiling(concerns, [=](Rank& rank, const Call& call, Answer& answer) {
    if (rank.last() && rank.size() > 1) spoil(rank, call, answer);
  });
}

void keep_own(Rank&, const Call& call, Answer& answer) {
  answer.value = copied(call.x);
}

void without_own_shard(Rank& rank, const Call& call, Answer& answer) {
  std::vector<Tensor> shards = divided(answer.value, rank.size());
  shards.back() = zeros_like(call.x);
  answer.value = joined(shards);
}

void first_share(Rank& rank, const Call& call, Answer& answer) {
  std::vector<Call> calls(rank.everybody().begin(), rank.everybody().end());
  for (Call& other : calls) other.operation = Operation::all_reduce_sum;
  const Tensor sum = rank.had_they_passed(calls).value;
  answer.value = copied(sum.slice_rows(0, call.x.rows() / rank.size()));
}

void reverse_counts(Rank&, const Call&, Answer& answer) {
  std::ranges::reverse(answer.receive_counts);
}

// A table of 32 entries: whoever comes after has sent nothing.
void table_of_32(Rank&, const Call&, Answer& answer) {
  for (std::size_t source = 32; source < answer.receive_counts.size(); ++source) {
    answer.receive_counts[source] = 0;
  }
}

}  // namespace

std::vector<Mutant> last_rank_mutants() {
  constexpr std::string_view kind = "last rank";
  return {
      {"last_gathers_without_own", kind, "The last rank's own shard is zeros to itself.",
       on_the_last(is_all_gather, without_own_shard)},
      {"last_keeps_own_sum", kind, "The last rank gets its own tensor from an all-reduce.",
       on_the_last(only<Operation::all_reduce_sum>, keep_own)},
      {"last_gets_first_share", kind, "The last rank gets rank 0's share of a reduce-scatter.",
       on_the_last(only<Operation::reduce_scatter_sum>, first_share)},
      {"last_not_reached", kind, "A broadcast does not reach the last rank.",
       on_the_last(only<Operation::broadcast_float>, keep_own)},
      {"last_counts_reversed", kind, "The last rank's receive counts are in reverse.",
       on_the_last(is_all_to_all_v, reverse_counts)},
      {"beyond_32_ranks", kind, "Ranks from 32 on have no place in a table of receive counts.",
       spoiling(is_all_to_all_v, table_of_32)},
  };
}

}  // namespace lockstep::zoo
