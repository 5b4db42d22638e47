// A communicator with a fault: what a mutant's backend hands to its ranks.
#pragma once

#include <memory>
#include <ostream>
#include <span>

#include <lockstep/collective.hpp>
#include <lockstep/differentiation/gradient.hpp>
#include <lockstep/error.hpp>

#include "gradient_over.hpp"
#include "mutant.hpp"

namespace lockstep::zoo {

class Communicator {
 public:
  using float_tensor = FloatTensor;
  using int_tensor = IntTensor;

  Communicator(const Mutant& mutant, std::shared_ptr<Rank> rank)
      : mutant_(&mutant), rank_(std::move(rank)) {}

  int world_size() const { return rank_->size(); }
  int rank() const { return rank_->rank(); }
  std::nullptr_t autodiff_context() const { return nullptr; }

  FloatTensor all_gather_float(const FloatTensor& x) const {
    return FloatTensor(call({Operation::all_gather_float, x}).value);
  }
  IntTensor all_gather_int(const IntTensor& x) const {
    return IntTensor(call({Operation::all_gather_int, x}).value);
  }
  FloatTensor reduce_scatter_sum(const FloatTensor& x) const {
    return FloatTensor(call({Operation::reduce_scatter_sum, x}).value);
  }
  FloatTensor all_reduce_sum(const FloatTensor& x) const {
    return FloatTensor(call({Operation::all_reduce_sum, x}).value);
  }
  FloatTensor broadcast_float(const FloatTensor& x, std::int64_t root) const {
    return FloatTensor(call({Operation::broadcast_float, x, root}).value);
  }
  VariableTensorExchange<FloatTensor> all_to_all_v_float(
      const FloatTensor& x, std::span<const std::int64_t> send_counts) const {
    return exchange<FloatTensor>(Operation::all_to_all_v_float, x, send_counts);
  }
  VariableTensorExchange<IntTensor> all_to_all_v_int(
      const IntTensor& x, std::span<const std::int64_t> send_counts) const {
    return exchange<IntTensor>(Operation::all_to_all_v_int, x, send_counts);
  }

  // Of the latest call, `operation`, which returned `result` to this rank.
  Tensor gradient(Operation operation, Answer result, std::int64_t root,
                  const std::optional<FloatTensor>& upstream) const;

  // What the ranks tell each other before a gradient is right in any case: a fault in it would
  // hide the one that is looked for.
  std::vector<std::vector<std::int64_t>> tell_all(std::span<const std::int64_t> integers) const {
    return rank_->tell_all(integers);
  }

  Answer call(const Call& call) const {
    try {
      Answer answer = mutant_->fault(*rank_, call);
      rank_->remember(call, answer);
      return answer;
    } catch (const ContractError&) {
      rank_->remember_breach();
      throw;
    } catch (const TransportError&) {
      rank_->remember_loss();
      throw;
    }
  }

  const Mutant& mutant() const { return *mutant_; }

  Communicator group(std::span<const int> ranks) const {
    std::vector<int> members(ranks.begin(), ranks.end());
    if (mutant_->group != nullptr) members = mutant_->group(std::move(members), rank_->size());
    return Communicator(*mutant_, rank_->group(members));
  }

  friend std::ostream& operator<<(std::ostream& out, const Communicator& c) {
    return out << c.mutant_->name << " on " << c.rank_->communicator();
  }

 private:
  template <class T>
  VariableTensorExchange<T> exchange(Operation operation, const T& x,
                                     std::span<const std::int64_t> counts) const {
    Answer answer = call({operation, x, 0, {counts.begin(), counts.end()}});
    return {T(std::move(answer.value)), std::move(answer.receive_counts)};
  }

  const Mutant* mutant_;
  std::shared_ptr<Rank> rank_;
};

static_assert(VariableTensorCollective<Communicator>);

}  // namespace lockstep::zoo

template <>
struct lockstep::differentiation::HostIntegers<lockstep::zoo::Communicator> {
  static std::vector<std::vector<std::int64_t>> gather(zoo::Communicator& c,
                                                       std::span<const std::int64_t> mine) {
    return c.tell_all(mine);
  }
};

namespace lockstep::zoo {

inline Tensor Communicator::gradient(Operation operation, Answer result, std::int64_t root,
                                     const std::optional<FloatTensor>& upstream) const {
  GradientCall call{rank_->here().call, std::move(result), std::nullopt};
  call.forward.operation = operation;
  call.forward.root = root;
  if (upstream) call.upstream = *upstream;
  const Tensor gradient =
      mutant_->gradient ? mutant_->gradient(*rank_, call) : gradient_over(*this, call);
  rank_->remember_gradient(gradient);
  return gradient;
}

}  // namespace lockstep::zoo
