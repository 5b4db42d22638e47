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

// --- Agreement on what is asked and on upstream gradients

// An upstream gradient that is not like the value it belongs to.
struct UnlikeUpstream {
  TensorType value;
  TensorType upstream;
};

// What makes each rank's upstream gradients wrong, as integers on the wire. A rank with none sends
// nothing.
std::vector<std::int64_t> encode(std::span<const UnlikeUpstream> unlike);
std::vector<UnlikeUpstream> decode_unlike(std::span<const std::int64_t> integers);

// The first integer that a rank tells the others before a reverse pass: the operation whose gradient
// it asks for, or that it takes back a whole window.
inline constexpr std::int64_t asks_for_window = -1;
// What ranks ask for where that is not the same thing on all, from what they told; else nothing.
std::optional<std::string> explain_asked(std::span<const std::vector<std::int64_t>> told);

// One rank's question for the gradient of one call, and the first thing by which the questions of all
// ranks do not fit together: what they ask for, the root, the upstreams.
std::vector<std::int64_t> encode_question(Operation operation, std::int64_t root,
                                          std::span<const UnlikeUpstream> unlike);
struct GradientBreach {
  Violation violation;
  std::string explanation;
};
std::optional<GradientBreach> find_breach_of_questions(
    std::span<const std::vector<std::int64_t>> told);

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
// the same ContractError (`gradient`), and so it does where ranks ask for the gradients of different
// operations or name different roots. Returns the upstream, or where there is none true zeros: +0.0
// also where the result is infinite or NaN.
template <IntegerTensorCollective C>
FloatTensorOf<C> agreed_upstream(C& c, Operation operation, const FloatTensorOf<C>& result,
                                 const std::optional<FloatTensorOf<C>>& upstream,
                                 std::int64_t root = 0) {
  std::vector<UnlikeUpstream> mine;
  if (upstream) {
    if (const auto unlike = find_unlike(result, *upstream)) mine.push_back(*unlike);
  }
  const auto told = HostIntegers<C>::gather(c, encode_question(operation, root, mine));
  if (const std::optional<GradientBreach> breach = find_breach_of_questions(told)) {
    // Alike on ranks that asked for different things.
    const bool one = breach->violation != Violation::operation;
    throw ContractError(
        breach->violation, one ? std::optional(operation) : std::nullopt,
        "gradient " + (one ? "of " + std::string(name(operation)) + " " : "") + "on " + name_of(c),
        breach->explanation);
  }
  return upstream ? *upstream : TensorOperations<FloatTensorOf<C>>::zeros_like(result);
}

// --- The gradients
//
// `result` is what the forward call returned to this rank. `upstream` is the gradient of this
// rank's loss with respect to it; nothing means that this rank's loss does not use the result, and
// the rank still enters. An upstream unlike its result, on any rank, is the same ContractError
// (`gradient`) on every rank, and no gradient moves; ranks that ask for the gradients of different
// operations (`operation`), or name different roots, are found out in the same way.

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
  const auto agreed = agreed_upstream(c, Operation::broadcast_float, result, upstream, root);
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
