#include "zoo_backend.hpp"

#include <numeric>

#include "communicator.hpp"

namespace lockstep::zoo {

SumRule right_rule(const Mutant& mutant) {
  return mutant.sum_rule == SumRule::exact ? SumRule::exact : SumRule::rank_order;
}

kit::BackendInfo ZooBackend::info() const {
  kit::BackendInfo info;
  info.name = mutant_.name;
  info.description = mutant_.description;
  info.sum_rule = mutant_.sum_rule;
  return info;
}

void ZooBackend::launch(int ranks, const RankBody& body) {
  const SumRule rule = right_rule(mutant_);
  const auto boards = std::make_shared<Boards>();
  std::vector<int> everybody(static_cast<std::size_t>(ranks));
  std::iota(everybody.begin(), everybody.end(), 0);
  patience_.begin_case();
  worlds_.of(ranks, rule).run([&](sim::Communicator right) {
    const int number = right.rank();
    const auto rank = std::make_shared<Rank>(std::move(right), true, everybody, rule, boards,
                                             std::make_shared<Rank::Memory>(), patience_);
    kit::SubjectOf<Communicator> subject(Communicator(mutant_, rank));
    body(number, subject);
  });
}

}  // namespace lockstep::zoo
