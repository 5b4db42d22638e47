#include "zoo_backend.hpp"

#include <numeric>

#include "communicator.hpp"
#include "window.hpp"

namespace lockstep::zoo {
namespace {

// Asks the faulty communicator for its gradients too.
class ZooSubject final : public kit::SubjectOf<Communicator> {
 public:
  using SubjectOf::SubjectOf;
  using Upstream = std::optional<FloatTensor>;

  FloatTensor all_gather_gradient(const FloatTensor& result, const Upstream& upstream) override {
    return gradient(Operation::all_gather_float, {result, {}}, 0, upstream);
  }
  FloatTensor reduce_scatter_gradient(const FloatTensor& result,
                                      const Upstream& upstream) override {
    return gradient(Operation::reduce_scatter_sum, {result, {}}, 0, upstream);
  }
  FloatTensor all_reduce_gradient(const FloatTensor& result, const Upstream& upstream) override {
    return gradient(Operation::all_reduce_sum, {result, {}}, 0, upstream);
  }
  FloatTensor broadcast_gradient(const FloatTensor& result, std::int64_t root,
                                 const Upstream& upstream) override {
    return gradient(Operation::broadcast_float, {result, {}}, root, upstream);
  }
  FloatTensor all_to_all_v_gradient(const VariableTensorExchange<FloatTensor>& result,
                                    const Upstream& upstream) override {
    return gradient(Operation::all_to_all_v_float, {result.value, result.receive_counts}, 0,
                    upstream);
  }
  FloatTensor all_gather_int_gradient(const IntTensor& result, const Upstream& upstream) override {
    return gradient(Operation::all_gather_int, {result, {}}, 0, upstream);
  }
  FloatTensor all_to_all_v_int_gradient(const VariableTensorExchange<IntTensor>& result,
                                        const Upstream& upstream) override {
    return gradient(Operation::all_to_all_v_int, {result.value, result.receive_counts}, 0,
                    upstream);
  }

  std::unique_ptr<kit::SubjectWindow> window() override {
    const WindowFault fault = communicator_.mutant().window;
    if (fault != WindowFault::none) return faulty_window(fault, communicator_);
    return std::make_unique<
        kit::ScopeWindow<Communicator, kit::HostTransfer<Communicator>>>(communicator_);
  }

  std::unique_ptr<kit::Subject> group(std::span<const int> ranks) override {
    return std::make_unique<ZooSubject>(communicator_.group(ranks));
  }

 private:
  FloatTensor gradient(Operation operation, Answer result, std::int64_t root,
                       const Upstream& upstream) {
    return FloatTensor(communicator_.gradient(operation, std::move(result), root, upstream));
  }
};

}  // namespace

SumRule right_rule(const Mutant& mutant) {
  return mutant.sum_rule == SumRule::exact ? SumRule::exact : SumRule::rank_order;
}

kit::BackendInfo ZooBackend::info() const {
  kit::BackendInfo info;
  info.name = mutant_.name;
  info.description = mutant_.description;
  info.sum_rule = mutant_.sum_rule;
  info.offers_throws = true;
  info.offers_stalls = true;
  return info;
}

void ZooBackend::launch(int ranks, const RankBody& body) {
  const SumRule rule = right_rule(mutant_);
  const auto boards = std::make_shared<Boards>();
  std::vector<int> everybody(static_cast<std::size_t>(ranks));
  std::iota(everybody.begin(), everybody.end(), 0);
  patience_.begin_case();
  worlds_.of(ranks, rule, timeout_).run([&](sim::Communicator right) {
    const int number = right.rank();
    const auto rank = std::make_shared<Rank>(std::move(right), true, everybody, rule, boards,
                                             std::make_shared<Rank::Memory>(), patience_);
    ZooSubject subject(Communicator(mutant_, rank));
    body(number, subject);
  });
}

}  // namespace lockstep::zoo
