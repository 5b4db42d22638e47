#include "mutant.hpp"

namespace lockstep::zoo {
namespace {

Answer right(Rank& rank, const Call& call) {
  return rank.right(call);
}

// In pairs, then pairs of pairs, each sum rounded: what a tree gives. One of the results that
// `unspecified` allows, and not what `rank_order` gives.
Answer right_in_a_tree(Rank& rank, const Call& call) {
  const Answer answer = rank.right(call);
  if (!is_sum(call.operation) || rank.size() == 1) return answer;
  std::vector<Tensor> partial;
  for (const Call& other : rank.everybody()) partial.push_back(other.x);
  while (partial.size() > 1) {
    std::vector<Tensor> halved;
    for (std::size_t i = 0; i + 1 < partial.size(); i += 2) {
      const FloatTensor pair[] = {FloatTensor(partial[i]), FloatTensor(partial[i + 1])};
      halved.push_back(reference::all_reduce_sum(pair, SumRule::exact).results()[0]);
    }
    if (partial.size() % 2 == 1) halved.push_back(partial.back());
    partial = std::move(halved);
  }
  if (call.operation == Operation::all_reduce_sum) return {partial[0], {}};
  const std::int64_t rows = answer.value.rows();
  return {partial[0].slice_rows(rows * rank.rank(), rows * (rank.rank() + 1)), {}};
}

}  // namespace

const std::vector<Mutant>& mutants() {
  static const std::vector<Mutant> all = [] {
    std::vector<Mutant> list;
    for (const auto kind :
         {order_mutants, count_mutants, zero_row_mutants, bit_mutants, sum_mutants, root_mutants,
          aliasing_mutants, agreement_mutants, loss_mutants, group_mutants, state_mutants, world_of_one_mutants,
          last_rank_mutants, hang_mutants, gradient_mutants}) {
      for (Mutant& mutant : kind()) list.push_back(std::move(mutant));
    }
    return list;
  }();
  return all;
}

const std::vector<Mutant>& right_backends() {
  static const std::vector<Mutant> all = {
      {"right_exact", "right", "Sums are exact.", right, SumRule::exact},
      {"right_rank_order", "right", "Sums go from rank to rank.", right, SumRule::rank_order},
      {"right_tree", "right", "Sums go up a tree, under the rule unspecified.", right_in_a_tree,
       SumRule::unspecified},
  };
  return all;
}

}  // namespace lockstep::zoo
