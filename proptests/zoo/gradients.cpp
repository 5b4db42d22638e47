// Gradients that are not the transposes of their calls.
#include <algorithm>
#include <cmath>

#include <lockstep/differentiation/gradient.hpp>

#include "spoiling.hpp"

namespace lockstep::zoo {
namespace {

constexpr Concerns gathers = only<Operation::all_gather_float>;
constexpr Concerns scatters = only<Operation::reduce_scatter_sum>;
constexpr Concerns reduces = only<Operation::all_reduce_sum>;
constexpr Concerns broadcasts = only<Operation::broadcast_float>;
constexpr Concerns exchanges = only<Operation::all_to_all_v_float>;

// The gradients that are sums, and those that only move elements.
bool sums_back(Operation operation) {
  return gathers(operation) || reduces(operation) || broadcasts(operation);
}
bool moves_back(Operation operation) {
  return scatters(operation) || exchanges(operation);
}

// --- What faults are made of

using SpoilGradient = std::function<void(Rank&, const GradientCall&, Tensor& gradient)>;

// The gradient is right, then spoiled.
GradientFault spoiling_gradient(Concerns concerns, SpoilGradient spoil) {
  return [=](Rank& rank, const GradientCall& call) {
    Tensor gradient = rank.right_gradient(call);
    if (concerns(call.forward.operation)) spoil(rank, call, gradient);
    return gradient;
  };
}

using FromUpstream = Tensor (*)(Rank&, const GradientCall&, const Tensor& upstream);

// All agree on the upstreams, then each makes a gradient out of its own.
GradientFault made_of_upstream(Concerns concerns, FromUpstream make) {
  return [=](Rank& rank, const GradientCall& call) {
    if (!concerns(call.forward.operation)) return rank.right_gradient(call);
    return make(rank, call, rank.agreed_upstream(call));
  };
}

// The gradient is right for another upstream.
GradientFault with_upstream(std::function<void(const GradientCall&, std::optional<Tensor>&)> change) {
  return [=](Rank& rank, const GradientCall& call) {
    GradientCall changed = call;
    if (!takes_integers(call.forward.operation)) change(call, changed.upstream);
    return rank.right_gradient(changed);
  };
}

// As above, where a rank's loss does not use the result.
GradientFault absent_as(std::function<void(Tensor& like_the_result)> fill) {
  return with_upstream([=](const GradientCall& call, std::optional<Tensor>& upstream) {
    if (upstream) return;
    upstream = copied(call.result.value);
    fill(*upstream);
  });
}

// Ranks for which `skips` holds do not enter, and whoever does waits for them for ever.
GradientFault skipped_by(bool (*skips)(const GradientCall&)) {
  return [=](Rank& rank, const GradientCall& call) {
    if (takes_integers(call.forward.operation)) return rank.right_gradient(call);
    rank.agreed_upstream(call);
    const bool skip = skips(call);
    const bool somebody = rank.anybody(skip);
    if (skip) return Tensor::zeros(call.result.value.dtype(), call.forward.x.shape());
    if (somebody) rank.hang();
    return rank.right_gradient(call);
  };
}

Tensor own_block(Rank& rank, const Tensor& blocks) {
  return copied(divided(blocks, rank.size())[static_cast<std::size_t>(rank.rank())]);
}

// As it should be: exact.
Tensor sum_over_all(Rank& rank, const Tensor& upstream) {
  return rank.right({Operation::all_reduce_sum, upstream}).value;
}

Tensor rounded_sum(std::span<const Tensor> tensors) {
  Tensor sum = copied(tensors[0]);
  for (std::int64_t i = 0; i < sum.elements(); ++i) {
    double value = number(sum, i);
    for (const Tensor& other : tensors.subspan(1)) {
      value = rounded(sum.dtype(), value + number(other, i));
    }
    set_number(sum, i, value);
  }
  return sum;
}

void scale(Tensor& x, double factor) {
  for (std::int64_t i = 0; i < x.elements(); ++i) set_number(x, i, number(x, i) * factor);
}

// A world of one has nothing to divide by.
GradientFault scaled(Concerns concerns, double (*factor)(int ranks)) {
  return spoiling_gradient(concerns, [=](Rank& rank, const GradientCall&, Tensor& gradient) {
    if (rank.size() > 1) scale(gradient, factor(rank.size()));
  });
}
double mean(int ranks) {
  return 1.0 / ranks;
}
double times(int ranks) {
  return ranks;
}

// --- Gathers

Tensor sliced(Rank& rank, const GradientCall&, const Tensor& upstream) {
  return own_block(rank, upstream);
}

Tensor summed_unsliced(Rank& rank, const GradientCall&, const Tensor& upstream) {
  return sum_over_all(rank, upstream);
}

Tensor block_from_the_end(Rank& rank, const GradientCall&, const Tensor& upstream) {
  const auto own = static_cast<std::size_t>(rank.size() - 1 - rank.rank());
  return copied(divided(sum_over_all(rank, upstream), rank.size())[own]);
}

Tensor block_of_world_rank(Rank& rank, const GradientCall&, const Tensor& upstream) {
  const Tensor sum = sum_over_all(rank, upstream);
  if (rank.world_rank() >= rank.size()) throw Error("index out of range");
  return copied(divided(sum, rank.size())[static_cast<std::size_t>(rank.world_rank())]);
}

// --- Scatters

Tensor own_rows_only(Rank& rank, const GradientCall& call, const Tensor& upstream) {
  std::vector<Tensor> blocks(static_cast<std::size_t>(rank.size()), zeros_like(upstream));
  blocks[static_cast<std::size_t>(rank.rank())] = upstream;
  return rank.size() == 1 ? upstream : joined(blocks).reshape(call.forward.x.shape());
}

Tensor repeated(Rank& rank, const GradientCall&, const Tensor& upstream) {
  return joined(std::vector<Tensor>(static_cast<std::size_t>(rank.size()), upstream));
}

void reverse_blocks(Rank& rank, const GradientCall&, Tensor& gradient) {
  std::vector<Tensor> blocks = divided(gradient, rank.size());
  std::ranges::reverse(blocks);
  gradient = joined(blocks);
}

void forget(Rank&, const GradientCall&, Tensor& gradient) {
  gradient = zeros_like(gradient);
}

// --- All-reduces

Tensor unchanged(Rank&, const GradientCall&, const Tensor& upstream) {
  return upstream;
}

Tensor unchanged_on_the_last(Rank& rank, const GradientCall&, const Tensor& upstream) {
  const Tensor sum = sum_over_all(rank, upstream);
  return rank.last() ? upstream : sum;
}

void only_to_rank_0(Rank& rank, const GradientCall&, Tensor& gradient) {
  if (rank.rank() != 0) gradient = zeros_like(gradient);
}

void into_the_upstream(Rank&, const GradientCall& call, Tensor& gradient) {
  if (call.upstream) overwrite(*call.upstream, gradient);
}

// --- Broadcasts

// The sum of all upstreams on the rank that `takes` says, zeros elsewhere.
GradientFault given_to(bool (*takes)(const Rank&, std::int64_t root)) {
  return [=](Rank& rank, const GradientCall& call) {
    if (!broadcasts(call.forward.operation)) return rank.right_gradient(call);
    const Tensor upstream = rank.agreed_upstream(call);
    const Tensor sum = sum_over_all(rank, upstream);
    return takes(rank, call.forward.root) ? sum : zeros_like(sum);
  };
}

Tensor root_keeps_its_own(Rank& rank, const GradientCall& call, const Tensor& upstream) {
  return rank.rank() == call.forward.root ? upstream : zeros_like(upstream);
}

void zero_times_own(Rank& rank, const GradientCall& call, Tensor& gradient) {
  if (rank.rank() == call.forward.root) return;
  gradient = copied(call.forward.x);
  scale(gradient, 0);
}

// --- Exchanges

GradientFault by_sent_counts() {
  return [](Rank& rank, const GradientCall& call) {
    if (!exchanges(call.forward.operation)) return rank.right_gradient(call);
    const Tensor upstream = rank.agreed_upstream(call);
    return rank.right({call.forward.operation, upstream, 0, call.forward.send_counts}).value;
  };
}

void blocks_from_the_last(Rank&, const GradientCall& call, Tensor& gradient) {
  std::vector<Tensor> blocks = divided(gradient, call.forward.send_counts);
  std::ranges::reverse(blocks);
  gradient = joined(blocks);
}

// Where as many rows came as went, they are taken for the same ones.
void rows_in_place(Rank&, const GradientCall& call, Tensor& gradient) {
  if (call.result.value.shape() != gradient.shape()) return;
  gradient = call.upstream ? copied(*call.upstream) : zeros_like(gradient);
}

// --- Absent upstreams

void zero_times(Tensor& x) {
  scale(x, 0);
}
void negative_zeros(Tensor& x) {
  change_floats(x, [](auto format, auto) { return format.sign_bit; });
}
void garbage(Tensor& x) {
  std::ranges::fill(x.mutable_bytes(), std::byte{0x5a});
}

bool has_none(const GradientCall& call) {
  return !call.upstream;
}
bool passed_nothing(const GradientCall& call) {
  return call.forward.x.elements() == 0;
}

// Goes on to the next call at once; whoever waits meets it there.
Tensor goes_on(Rank& rank, const GradientCall& call) {
  if (call.upstream || takes_integers(call.forward.operation)) return rank.right_gradient(call);
  return Tensor::zeros(call.result.value.dtype(), call.forward.x.shape());
}

// --- Upstreams unlike their results

bool is_unlike(const GradientCall& call) {
  const Tensor& result = call.result.value;
  return !takes_integers(call.forward.operation) && call.upstream &&
         (call.upstream->dtype() != result.dtype() || call.upstream->shape() != result.shape());
}

void convert(const GradientCall& call, std::optional<Tensor>& upstream) {
  if (!upstream || upstream->shape() != call.result.value.shape()) return;
  Tensor converted = zeros_like(call.result.value);
  for (std::int64_t i = 0; i < converted.elements(); ++i) {
    set_number(converted, i, number(*upstream, i));
  }
  if (converted.dtype() != upstream->dtype()) upstream = converted;
}

void reshape(const GradientCall& call, std::optional<Tensor>& upstream) {
  if (!upstream || upstream->elements() != call.result.value.elements()) return;
  upstream = upstream->reshape(call.result.value.shape());
}

void replace_by_zeros(const GradientCall& call, std::optional<Tensor>& upstream) {
  if (is_unlike(call)) upstream.reset();
}

[[noreturn]] void complain(const GradientCall& call, const std::string& who) {
  throw ContractError(Violation::gradient, call.forward.operation, "a gradient",
                      who + " passed an upstream unlike its result");
}

Tensor noticed_alone(Rank& rank, const GradientCall& call) {
  const bool somebody = rank.anybody(is_unlike(call));
  if (is_unlike(call)) complain(call, "this rank");
  if (somebody) rank.hang();
  return rank.right_gradient(call);
}

Tensor told_by_each(Rank& rank, const GradientCall& call) {
  if (!rank.anybody(is_unlike(call))) return rank.right_gradient(call);
  complain(call, is_unlike(call) ? "rank " + std::to_string(rank.rank()) : "another rank");
}

// --- Elements

void quieten(Rank&, const GradientCall&, Tensor& gradient) {
  change_floats(gradient, [](auto format, auto bits) {
    const auto magnitude = bits & ~format.sign_bit;
    const auto quiet_bit = (format.infinity >> 1) & ~format.infinity;
    return magnitude > format.infinity ? bits | quiet_bit : bits;
  });
}
void quieten_alone(Rank& rank, const GradientCall& call, Tensor& gradient) {
  if (rank.size() == 1) quieten(rank, call, gradient);
}
void lose_zero_sign(Rank&, const GradientCall&, Tensor& gradient) {
  change_floats(gradient, [](auto format, auto bits) { return bits == format.sign_bit ? 0 : bits; });
}
void narrow(Rank& rank, const GradientCall&, Tensor& gradient) {
  if (rank.size() == 1 || gradient.dtype() == DType::f16) return;
  for (std::int64_t i = 0; i < gradient.elements(); ++i) {
    set_number(gradient, i, rounded(DType::bf16, number(gradient, i)));
  }
}

// A sum whose every step is rounded, where the backend says that it is exact.
Tensor step_by_step(Rank& rank, const GradientCall& call) {
  if (!reduces(call.forward.operation) || rank.size() == 1) return rank.right_gradient(call);
  return rounded_sum(rank.everybodys(rank.agreed_upstream(call)));
}

// Nobody has set the gradient to zero since the call before.
void accumulate(Rank& rank, const GradientCall&, Tensor& gradient) {
  const std::optional<Tensor>& before = rank.here().gradient;
  if (!before || before->dtype() != gradient.dtype() || before->shape() != gradient.shape()) return;
  const Tensor both[] = {*before, gradient};
  gradient = rounded_sum(both);
}

void lose_axes(Rank&, const GradientCall&, Tensor& gradient) {
  if (gradient.elements() == 0) gradient = Tensor::zeros(gradient.dtype(), Shape{0});
}
void default_dtype(Rank&, const GradientCall&, Tensor& gradient) {
  if (gradient.elements() == 0) gradient = Tensor::zeros(DType::f32, gradient.shape());
}

Tensor zeros_of_integers(Rank& rank, const GradientCall& call) {
  if (!takes_integers(call.forward.operation)) return rank.right_gradient(call);
  return Tensor::zeros(DType::f32, call.forward.x.shape());
}

struct Wrong {
  std::string_view name;
  std::string_view description;
  GradientFault gradient;
};

struct WrongWindow {
  std::string_view name;
  std::string_view description;
  WindowFault fault;
};

}  // namespace

std::vector<Mutant> gradient_mutants() {
  const auto right = [](Rank& rank, const Call& call) { return rank.right(call); };
  const Wrong all[] = {
      {"gather_gradient_sliced", "A gather's gradient is the rank's slice of its own upstream.",
       made_of_upstream(gathers, sliced)},
      {"gather_gradient_unsliced", "A gather's gradient is the sum of all upstreams, not a slice.",
       made_of_upstream(gathers, summed_unsliced)},
      {"gather_gradient_mean", "A gather's gradient is a mean.", scaled(gathers, mean)},
      {"gather_gradient_reversed", "A gather's gradient goes to the ranks in reverse.",
       made_of_upstream(gathers, block_from_the_end)},
      {"gather_gradient_by_world_rank",
       "In a group, a gather's gradient is the slice of the rank's number in the world.",
       made_of_upstream(gathers, block_of_world_rank)},
      {"scatter_gradient_own_rows", "A scatter's gradient is zero but for the rank's own rows.",
       made_of_upstream(scatters, own_rows_only)},
      {"scatter_gradient_repeated", "A scatter's gradient is the rank's own upstream repeated.",
       made_of_upstream(scatters, repeated)},
      {"scatter_gradient_times_world", "A scatter's gradient is too large by the world size.",
       scaled(scatters, times)},
      {"scatter_gradient_mean", "A scatter's gradient is divided by the world size.",
       scaled(scatters, mean)},
      {"scatter_gradient_reversed", "A scatter's gradient is gathered from the last rank on.",
       spoiling_gradient(scatters, reverse_blocks)},
      {"scatter_gradient_zero", "A scatter ignores backward in silence.",
       spoiling_gradient(scatters, forget)},
      {"all_reduce_gradient_identity", "An all-reduce's gradient is the rank's own upstream.",
       made_of_upstream(reduces, unchanged)},
      {"all_reduce_gradient_mean", "An all-reduce's gradient is a mean.", scaled(reduces, mean)},
      {"all_reduce_gradient_times_world", "An all-reduce's gradient is too large by the world size.",
       scaled(reduces, times)},
      {"all_reduce_gradient_to_rank_0", "Only rank 0 has the gradient of an all-reduce.",
       spoiling_gradient(reduces, only_to_rank_0)},
      {"all_reduce_gradient_last_rank", "The last rank's gradient of an all-reduce is its upstream.",
       made_of_upstream(reduces, unchanged_on_the_last)},
      {"all_reduce_gradient_stepwise", "An all-reduce's gradient is rounded at every step.",
       step_by_step},
      {"all_reduce_gradient_in_place", "An all-reduce's gradient is put into the upstream.",
       spoiling_gradient(reduces, into_the_upstream)},
      {"broadcast_gradient_everywhere", "All ranks have the gradient of a broadcast.",
       given_to([](const Rank&, std::int64_t) { return true; })},
      {"broadcast_gradient_nowhere", "The root of a broadcast has a gradient of zeros.",
       given_to([](const Rank& rank, std::int64_t) { return rank.size() == 1; })},
      {"broadcast_gradient_to_rank_0", "Rank 0 has the gradient of every broadcast.",
       given_to([](const Rank& rank, std::int64_t) { return rank.rank() == 0; })},
      {"broadcast_gradient_by_world_rank",
       "In a group, the rank with the root's number in the world has a broadcast's gradient.",
       given_to([](const Rank& rank, std::int64_t root) { return rank.world_rank() == root; })},
      {"broadcast_gradient_of_root", "A broadcast's gradient is the root's own upstream.",
       made_of_upstream(broadcasts, root_keeps_its_own)},
      {"broadcast_gradient_mean", "A broadcast's gradient is a mean.", scaled(broadcasts, mean)},
      {"broadcast_gradient_zero_times",
       "Where a rank is not the root, its gradient is zero times what it passed.",
       spoiling_gradient(broadcasts, zero_times_own)},
      {"exchange_gradient_sent_counts", "An exchange goes back by the counts that were sent.",
       by_sent_counts()},
      {"exchange_gradient_reversed", "An exchange's rows come back from the last rank first.",
       spoiling_gradient(exchanges, blocks_from_the_last)},
      {"exchange_gradient_in_place", "Rows do not go back where as many were received as sent.",
       spoiling_gradient(exchanges, rows_in_place)},
      {"absent_upstream_garbage", "A rank without an upstream enters with what memory holds.",
       absent_as(garbage)},
      {"absent_upstream_zero_times", "A rank without an upstream enters with zero times the result.",
       absent_as(zero_times)},
      {"absent_upstream_negative_zero", "A rank without an upstream enters with negative zeros.",
       absent_as(negative_zeros)},
      {"absent_upstream_goes_on", "A rank without an upstream goes on to its next call.", goes_on},
      {"absent_upstream_hangs", "A rank without an upstream skips backward.", skipped_by(has_none)},
      {"no_rows_backward_hangs", "A rank that passed no rows skips backward.",
       skipped_by(passed_nothing)},
      {"upstream_converted", "An upstream of another dtype is converted.", with_upstream(convert)},
      {"upstream_reshaped", "An upstream of another shape and as many elements is taken.",
       with_upstream(reshape)},
      {"upstream_ignored", "An upstream unlike its result counts as none.",
       with_upstream(replace_by_zeros)},
      {"unlike_upstream_hangs", "Only the rank with a wrong upstream hears of it; the others wait.",
       noticed_alone},
      {"unlike_upstream_told_by_each", "Each rank names another culprit for a wrong upstream.",
       told_by_each},
      {"integer_gradient_zero", "The gradient of an operation on integers is zero.",
       zeros_of_integers},
      {"gradient_quietens_nans", "NaNs become quiet on their way back.",
       spoiling_gradient(moves_back, quieten)},
      {"gradient_loses_zero_sign", "Negative zeros become positive on their way back.",
       spoiling_gradient(moves_back, lose_zero_sign)},
      {"gradient_in_bf16", "Gradients that are sums have the precision of bf16.",
       spoiling_gradient(sums_back, narrow)},
      {"gradient_accumulates", "A gradient is added to that of the call before.",
       spoiling_gradient(any, accumulate)},
      {"alone_gradient_quietens", "In a world of one, NaNs become quiet on their way back.",
       spoiling_gradient(any, quieten_alone)},
      {"empty_gradient_loses_axes", "Gradients without elements have no trailing axes.",
       spoiling_gradient(any, lose_axes)},
      {"empty_gradient_default_dtype", "Gradients without elements have the default dtype.",
       spoiling_gradient(any, default_dtype)},
  };
  const WrongWindow windows[] = {
      {"window_forward_order", "A window is taken back in the order of the forward calls.",
       WindowFault::forward_order},
      {"window_world_first", "A window's calls on the world are taken back before those in groups.",
       WindowFault::world_first},
      {"window_own_losses_first", "A rank begins backward with what its own loss uses.",
       WindowFault::own_losses_first},
      {"window_skips_unused", "A rank skips backward where its own loss reaches nothing.",
       WindowFault::skips_unused},
      {"window_only_direct", "Collectives that are reached through others have no gradient.",
       WindowFault::only_direct},
      {"window_enters_everything", "Collectives that nobody's loss reaches are entered as well.",
       WindowFault::enters_everything},
      {"window_latest_use_only", "A value that is used twice has the gradient of its latest use.",
       WindowFault::latest_use_only},
      {"window_earliest_use_only", "A value that is used twice has the gradient of its first use.",
       WindowFault::earliest_use_only},
      {"window_zero_times", "In a window, an absent gradient is zero times the value.",
       WindowFault::zero_times},
      {"window_flows_into_ignored", "Gradients flow into what a broadcast ignored.",
       WindowFault::flows_into_ignored},
  };
  std::vector<Mutant> mutants;
  const auto add = [&](const auto& wrong) -> Mutant& {
    Mutant& mutant = mutants.emplace_back();
    mutant.name = wrong.name;
    mutant.kind = "gradients";
    mutant.description = wrong.description;
    mutant.fault = right;
    return mutant;
  };
  for (const Wrong& wrong : all) add(wrong).gradient = wrong.gradient;
  for (const WrongWindow& wrong : windows) add(wrong).window = wrong.fault;
  return mutants;
}

}  // namespace lockstep::zoo
