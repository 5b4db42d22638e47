// Sub-communicators that take themselves for the world, or for one another.
#include <algorithm>
#include <numeric>

#include "spoiling.hpp"

namespace lockstep::zoo {
namespace {

// The rank's number in the world, where its number in the group was meant.
int mistaken(const Rank& rank) {
  return rank.world_rank() % rank.size();
}

void scatter_by_world_rank(Rank& rank, const Call& call, Answer& answer) {
  std::vector<Call> calls(rank.everybody().begin(), rank.everybody().end());
  for (Call& other : calls) other.operation = Operation::all_reduce_sum;
  const std::int64_t rows = call.x.rows() / rank.size();
  answer.value = copied(rank.had_they_passed(calls).value.slice_rows(mistaken(rank) * rows,
                                                                     (mistaken(rank) + 1) * rows));
}

// The root is looked for among the world ranks; where it is none of the group's it stays.
void root_by_world_rank(Rank& rank, const Call& call, Answer& answer) {
  const auto& ranks = rank.world_ranks();
  const auto root = std::ranges::find(ranks, static_cast<int>(call.root));
  if (root == ranks.end()) return;
  answer.value = copied(rank.everybody()[static_cast<std::size_t>(root - ranks.begin())].x);
}

void counts_by_world_rank(Rank& rank, const Call&, Answer& answer) {
  std::vector<std::int64_t> counts = answer.receive_counts;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const auto place = static_cast<std::size_t>(rank.world_ranks()[i] % rank.size());
    counts[place] = answer.receive_counts[i];
  }
  answer.receive_counts = counts;
}

std::vector<int> sorted(std::vector<int> asked, int) {
  std::ranges::sort(asked);
  return asked;
}

// Whoever asks for as many ranks as there are gets the world.
std::vector<int> whole_world(std::vector<int> asked, int world) {
  if (static_cast<int>(asked.size()) == world) std::iota(asked.begin(), asked.end(), 0);
  return asked;
}

Answer right(Rank& rank, const Call& call) {
  return rank.right(call);
}

// A group of one still adds rank 0 of the world.
void group_of_one_is_empty(Rank& rank, const Call&, Answer& answer) {
  if (!rank.is_world() && rank.size() == 1) answer.value = zeros_like(answer.value);
}

// What is lost on one communicator is lost on all.
Answer loss_spreads(Rank& rank, const Call& call) {
  if (rank.everywhere().lost) throw TransportError("a peer was lost", {});
  return rank.right(call);
}

// An error on one communicator is reported again by the next call on another.
Answer breach_spreads(Rank& rank, const Call& call) {
  Answer answer = rank.right(call);
  if (rank.everywhere().breached && !rank.here().breached) {
    answer.value = zeros_like(answer.value);
  }
  return answer;
}

}  // namespace

std::vector<Mutant> group_mutants() {
  constexpr std::string_view kind = "groups";
  return {
      {"group_scatters_by_world_rank", kind, "Shares of a group are counted by world ranks.",
       spoiling(only<Operation::reduce_scatter_sum>, scatter_by_world_rank)},
      {"group_root_is_world_rank", kind, "The root of a group is taken for a world rank.",
       spoiling(only<Operation::broadcast_float>, root_by_world_rank)},
      {"group_counts_by_world_rank", kind, "Receive counts of a group are placed by world ranks.",
       spoiling(is_all_to_all_v, counts_by_world_rank)},
      {"group_sorted", kind, "Groups are in ascending order, whatever order was asked for.", right,
       SumRule::exact, sorted},
      {"group_of_all_is_world", kind, "A group of all ranks is in the order of the world.", right,
       SumRule::exact, whole_world},
      {"group_of_one_empty", kind, "Groups of a single rank return zeros.",
       spoiling(any, group_of_one_is_empty)},
      {"loss_spreads", kind, "A lost rank ends communicators that do not need it.", loss_spreads},
      {"breach_spreads", kind,
       "A broken contract on one communicator spoils the next call on another.", breach_spreads},
  };
}

}  // namespace lockstep::zoo
