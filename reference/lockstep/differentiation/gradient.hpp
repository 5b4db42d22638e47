// The gradients of the five floating collectives as plain functions, for programs that bring their
// own differentiation. Each is entered by every rank, and gives the gradient of the sum of all
// ranks' losses with respect to this rank's input:
//
//   forward                      gradient with respect to the input
//   all_gather_float             reduce_scatter_sum of the upstream gradients
//   reduce_scatter_sum           all_gather_float of them
//   all_reduce_sum               all_reduce_sum of them
//   broadcast_float(root)        all_reduce_sum of them on the root, zeros elsewhere
//   all_to_all_v_float(counts)   all_to_all_v_float of them with the receive counts
//
// They are the transposes of the forward maps, so they are sums and never means. Sums follow the
// communicator's sum rule.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <lockstep/collective.hpp>
#include <lockstep/differentiation/host_integers.hpp>
#include <lockstep/differentiation/tensor_operations.hpp>
#include <lockstep/error.hpp>
#include <lockstep/operation.hpp>

namespace lockstep::differentiation {

template <class C>
using FloatTensorOf = typename C::float_tensor;

// --- The reverse collectives alone. Every rank passes an upstream gradient of the dtype and shape
// of its own result, which nobody checks: where that is not so on some rank, the ranks may get
// errors of another collective, or none.

template <TensorCollective C>
FloatTensorOf<C> reverse_all_gather(C c, const FloatTensorOf<C>& upstream) {
  return c.reduce_scatter_sum(upstream);
}

template <TensorCollective C>
FloatTensorOf<C> reverse_reduce_scatter(C c, const FloatTensorOf<C>& upstream) {
  return c.all_gather_float(upstream);
}

template <ReplicatedTensorCollective C>
FloatTensorOf<C> reverse_all_reduce(C c, const FloatTensorOf<C>& upstream) {
  return c.all_reduce_sum(upstream);
}

// Nothing on ranks that are not the root: what they passed never mattered, so their gradient is
// zero whatever came back.
template <BroadcastTensorCollective C>
std::optional<FloatTensorOf<C>> reverse_broadcast(C c, const FloatTensorOf<C>& upstream,
                                                  std::int64_t root) {
  FloatTensorOf<C> sum = c.all_reduce_sum(upstream);
  if (c.rank() != root) return std::nullopt;
  return sum;
}

template <VariableTensorCollective C>
FloatTensorOf<C> reverse_all_to_all_v(C c, const FloatTensorOf<C>& upstream,
                                      std::span<const std::int64_t> receive_counts) {
  return c.all_to_all_v_float(upstream, receive_counts).value;
}

// --- Agreement on upstream gradients

// An upstream gradient that is not like the value it belongs to.
struct UnlikeUpstream {
  TensorType value;
  TensorType upstream;
};

// What makes each rank's upstream gradients wrong, as integers on the wire. A rank with none sends
// nothing.
std::vector<std::int64_t> encode(std::span<const UnlikeUpstream> unlike);
std::vector<UnlikeUpstream> decode_unlike(std::span<const std::int64_t> integers);

// The sentence for entry r of the list being rank r's, or nothing when none is unlike.
std::optional<std::string> explain_unlike(std::span<const std::vector<UnlikeUpstream>> ranks);

template <class T>
std::optional<UnlikeUpstream> find_unlike(const T& value, const T& upstream) {
  using Operations = TensorOperations<T>;
  if (Operations::type(value) == Operations::type(upstream)) return std::nullopt;
  return UnlikeUpstream{Operations::type(value), Operations::type(upstream)};
}

// A communicator as an error names it: alike on every rank, which its printed form is not.
template <class C>
std::string name_of(const C& c) {
  if constexpr (requires { std::string(c.name()); }) {
    return std::string(c.name());
  } else {
    return "a communicator of " + std::to_string(c.world_size()) + " ranks";
  }
}

// Entered by every rank. Where any rank's upstream gradient is unlike its result, every rank throws
// the same ContractError (`gradient`). Returns the upstream, or where there is none true zeros:
// +0.0 also where the result is infinite or NaN.
template <IntegerTensorCollective C>
FloatTensorOf<C> agreed_upstream(C& c, Operation operation, const FloatTensorOf<C>& result,
                                 const std::optional<FloatTensorOf<C>>& upstream) {
  std::vector<UnlikeUpstream> mine;
  if (upstream) {
    if (const auto unlike = find_unlike(result, *upstream)) mine.push_back(*unlike);
  }
  std::vector<std::vector<UnlikeUpstream>> ranks;
  for (const auto& theirs : HostIntegers<C>::gather(c, encode(mine))) {
    ranks.push_back(decode_unlike(theirs));
  }
  if (const std::optional<std::string> explanation = explain_unlike(ranks)) {
    throw ContractError(Violation::gradient, operation,
                        "gradient of " + std::string(name(operation)) + " on " + name_of(c),
                        *explanation);
  }
  return upstream ? *upstream : TensorOperations<FloatTensorOf<C>>::zeros_like(result);
}

// --- The gradients
//
// `result` is what the forward call returned to this rank. `upstream` is the gradient of this
// rank's loss with respect to it; nothing means that this rank's loss does not use the result, and
// the rank still enters. An upstream unlike its result, on any rank, is the same ContractError
// (`gradient`) on every rank, and no gradient moves.

// Of the shape of this rank's shard.
template <IntegerTensorCollective C>
FloatTensorOf<C> all_gather_gradient(C c, const FloatTensorOf<C>& result,
                                     const std::optional<FloatTensorOf<C>>& upstream) {
  return reverse_all_gather(c, agreed_upstream(c, Operation::all_gather_float, result, upstream));
}

// Of the shape of the tensor that was scattered, and equal on all ranks.
template <IntegerTensorCollective C>
FloatTensorOf<C> reduce_scatter_gradient(C c, const FloatTensorOf<C>& result,
                                         const std::optional<FloatTensorOf<C>>& upstream) {
  return reverse_reduce_scatter(
      c, agreed_upstream(c, Operation::reduce_scatter_sum, result, upstream));
}

// Equal on all ranks.
template <IntegerTensorCollective C>
FloatTensorOf<C> all_reduce_gradient(C c, const FloatTensorOf<C>& result,
                                     const std::optional<FloatTensorOf<C>>& upstream) {
  return reverse_all_reduce(c, agreed_upstream(c, Operation::all_reduce_sum, result, upstream));
}

// The root's is the sum of all ranks' upstreams, the others' are zeros.
template <IntegerTensorCollective C>
FloatTensorOf<C> broadcast_gradient(C c, const FloatTensorOf<C>& result, std::int64_t root,
                                    const std::optional<FloatTensorOf<C>>& upstream) {
  const auto agreed = agreed_upstream(c, Operation::broadcast_float, result, upstream);
  auto gradient = reverse_broadcast(c, agreed, root);
  return gradient ? *std::move(gradient) : TensorOperations<FloatTensorOf<C>>::zeros_like(result);
}

// `forward` is what the exchange returned, with its receive counts. Of the shape of what this rank
// sent, every row's gradient where the row was.
template <VariableTensorCollective C>
FloatTensorOf<C> all_to_all_v_gradient(C c, const VariableTensorExchange<FloatTensorOf<C>>& forward,
                                       const std::optional<FloatTensorOf<C>>& upstream) {
  return reverse_all_to_all_v(
      c, agreed_upstream(c, Operation::all_to_all_v_float, forward.value, upstream),
      forward.receive_counts);
}

// Integer collectives have no derivative: every rank that asks gets this ContractError
// (`not_differentiable`), without waiting for another.
template <IntegerTensorCollective C>
[[noreturn]] void no_gradient(const C& c, Operation operation) {
  throw ContractError(Violation::not_differentiable, operation,
                      "gradient of " + std::string(name(operation)) + " on " + name_of(c),
                      "an operation on integers has no derivative");
}
template <IntegerTensorCollective C>
[[noreturn]] void all_gather_int_gradient(C c) {
  no_gradient(c, Operation::all_gather_int);
}
template <VariableTensorCollective C>
[[noreturn]] void all_to_all_v_int_gradient(C c) {
  no_gradient(c, Operation::all_to_all_v_int);
}

}  // namespace lockstep::differentiation
