// One rank's forward window in host tensors, whatever tensors the backend has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <lockstep/collective.hpp>
#include <lockstep/differentiation/scope.hpp>
#include <lockstep/error.hpp>
#include <lockstep/operation.hpp>
#include <lockstep/tensor.hpp>

namespace lockstep::kit {

// Calls are recorded, and taken back all at once. Those that return are numbered from 0.
class SubjectWindow {
 public:
  virtual ~SubjectWindow() = default;

  // What a call takes: a tensor of this rank's own, or what an earlier call gave it.
  struct Input {
    std::optional<int> from_call;
    Tensor tensor;
  };
  struct Returned {
    Tensor value;
    std::vector<std::int64_t> receive_counts;
  };

  // Makes a call on the communicator of the window, or on the sub-communicator of these ranks where
  // there are any. Throws what calls throw.
  virtual Returned call(std::span<const int> group, Operation operation, const Input& input,
                        std::int64_t root, std::span<const std::int64_t> send_counts) = 0;

  // Entered once, by every rank. Entry i of `upstream` is the gradient of this rank's loss with
  // respect to what call i gave it, nothing where its loss does not use that. Entry i of what comes
  // back is the gradient of all losses with respect to what this rank passed to call i, nothing
  // where none reaches it and for integers.
  virtual std::vector<std::optional<FloatTensor>> backward(
      std::span<const std::optional<FloatTensor>> upstream) = 0;
};

// A window that is a scope of the library. `Transfer` takes host tensors to C's and back.
template <VariableTensorCollective C, class Transfer>
class ScopeWindow final : public SubjectWindow {
  using T = typename C::float_tensor;
  using Value = differentiation::Tracked<T>;

 public:
  explicit ScopeWindow(C communicator)
      : bare_(std::move(communicator)), scope_(bare_), world_(scope_.communicator()) {}

  Returned call(std::span<const int> group, Operation operation, const Input& input,
                std::int64_t root, std::span<const std::int64_t> send_counts) override {
    const auto c = group.empty() ? world_ : group_of(group);
    if (takes_integers(operation)) return integer_call(c, operation, input, send_counts);
    Call made;
    const Value x = taken(input, made);
    std::vector<std::int64_t> receive_counts;
    switch (operation) {
      case Operation::all_gather_float:
        made.result = c.all_gather_float(x);
        break;
      case Operation::reduce_scatter_sum:
        made.result = c.reduce_scatter_sum(x);
        break;
      case Operation::all_reduce_sum:
        made.result = c.all_reduce_sum(x);
        break;
      case Operation::broadcast_float:
        made.result = c.broadcast_float(x, root);
        break;
      default: {
        auto exchange = c.all_to_all_v_float(x, send_counts);
        made.result = std::move(exchange.value);
        receive_counts = std::move(exchange.receive_counts);
      }
    }
    made.host = Transfer::download(bare_, made.result->value());
    calls_.push_back(std::move(made));
    return {calls_.back().host, std::move(receive_counts)};
  }

  std::vector<std::optional<FloatTensor>> backward(
      std::span<const std::optional<FloatTensor>> upstream) override {
    std::vector<differentiation::Seed<T>> seeds;
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      if (!upstream[i]) continue;
      if (!calls_[i].result) throw InvalidArgument("integers have no upstream gradient");
      seeds.push_back({*calls_[i].result, Transfer::upload(bare_, *upstream[i])});
    }
    const auto gradients = scope_.backward(seeds);
    std::vector<std::optional<FloatTensor>> all(calls_.size());
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      const Call& call = calls_[i];
      if (call.variable && gradients.reach(*call.variable)) {
        all[i] = Transfer::download(bare_, gradients.of(*call.variable));
      } else if (call.passed_back && *call.passed_back) {
        all[i] = Transfer::download(bare_, **call.passed_back);
      }
    }
    return all;
  }

 private:
  struct Call {
    std::optional<Value> variable;  // what it took, if that was a tensor of the rank's own
    std::shared_ptr<std::optional<T>> passed_back;  // else what came back there
    std::optional<Value> result;                    // nothing for integers
    Tensor host;
  };

  differentiation::Differentiable<C> group_of(std::span<const int> ranks) {
    if constexpr (requires(C c) { c.group(ranks); }) {
      return world_.group(ranks);
    } else {
      throw Error("communicators of chosen ranks are not offered");
    }
  }

  Value taken(const Input& input, Call& made) {
    if (!input.from_call) {
      made.variable = scope_.variable(Transfer::upload(bare_, FloatTensor(input.tensor)));
      return *made.variable;
    }
    // Through a local operation that changes nothing, which sees what comes back.
    const Value& earlier = *calls_[static_cast<std::size_t>(*input.from_call)].result;
    made.passed_back = std::make_shared<std::optional<T>>();
    return scope_.local(earlier.value(), {earlier}, [seen = made.passed_back](const T& upstream) {
      *seen = upstream;
      return std::vector<T>{upstream};
    });
  }

  Returned integer_call(const differentiation::Differentiable<C>& c, Operation operation,
                        const Input& input, std::span<const std::int64_t> send_counts) {
    const IntTensor x(input.from_call ? calls_[static_cast<std::size_t>(*input.from_call)].host
                                      : input.tensor);
    Call made;
    std::vector<std::int64_t> receive_counts;
    if (operation == Operation::all_gather_int) {
      made.host = Transfer::download(bare_, c.all_gather_int(Transfer::upload(bare_, x)));
    } else {
      auto exchange = c.all_to_all_v_int(Transfer::upload(bare_, x), send_counts);
      made.host = Transfer::download(bare_, std::move(exchange.value));
      receive_counts = std::move(exchange.receive_counts);
    }
    calls_.push_back(std::move(made));
    return {calls_.back().host, std::move(receive_counts)};
  }

  C bare_;
  differentiation::Scope<C> scope_;
  differentiation::Differentiable<C> world_;
  std::vector<Call> calls_;
};

}  // namespace lockstep::kit
