// Sums that are something else.
#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "spoiling.hpp"

namespace lockstep::zoo {
namespace {

using Addends = std::span<const double>;

// --- In place of the rule

double mean(DType, Addends x) {
  return std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size());
}
double maximum(DType, Addends x) {
  return std::ranges::max(x);
}
double first_twice(DType, Addends x) {
  return std::accumulate(x.begin(), x.end(), x[0]);
}
// The accumulator is wider than the dtype, and the sum is rounded a second time.
double in_double(DType, Addends x) {
  return std::accumulate(x.begin(), x.end(), -0.0);
}
// From the last rank to the first, each step rounded.
double descending(DType dtype, Addends x) {
  return std::accumulate(x.rbegin(), x.rend(), -0.0,
                         [=](double sum, double next) { return rounded(dtype, sum + next); });
}
// Wide sums in a narrow accumulator.
double in_bf16(DType dtype, Addends x) {
  const DType step = dtype == DType::f16 ? DType::f16 : DType::bf16;
  return std::accumulate(x.begin(), x.end(), -0.0,
                         [=](double sum, double next) { return rounded(step, sum + next); });
}
double without_nans(DType dtype, Addends x) {
  std::vector<double> numbers;
  std::ranges::copy_if(x, std::back_inserter(numbers), [](double one) { return !std::isnan(one); });
  return in_double(dtype, numbers);
}
// A tree over as many ranks as a power of two has.
double largest_power_of_two(DType dtype, Addends x) {
  return in_double(dtype, x.first(std::bit_floor(x.size())));
}

// --- A right sum, spoiled

// The elements from byte `begin` on are the rank's own, nothing has been added to them.
Fault unsummed_from(std::function<std::int64_t(const Tensor&)> begin) {
  return spoiling(only<Operation::all_reduce_sum>, [=](Rank&, const Call& call, Answer& answer) {
    replace_from(answer.value, begin(answer.value), call.x);
  });
}

template <class Change>
Fault results_through(Change change) {
  return spoiling(is_sum, [=](Rank& rank, const Call&, Answer& answer) {
    if (rank.size() > 1) change_floats(answer.value, change);
  });
}

constexpr auto positive_zero = [](auto format, auto bits) {
  return bits == format.sign_bit ? 0 : bits;
};
constexpr auto flushed = [](auto format, auto bits) {
  return (bits & format.infinity) == 0 ? bits & format.sign_bit : bits;
};
constexpr auto saturated = [](auto format, auto bits) {
  using Bits = decltype(bits);
  const bool infinite = static_cast<Bits>(bits & ~format.sign_bit) == format.infinity;
  return infinite ? static_cast<Bits>(bits - 1) : bits;
};

void without_own_part(Rank& rank, const Call& call, Answer& answer) {
  std::vector<Call> calls(rank.everybody().begin(), rank.everybody().end());
  calls[static_cast<std::size_t>(rank.rank())].x = zeros_like(call.x);
  if (rank.size() > 1) answer = rank.had_they_passed(calls);
}

// The last element of the last rank's result differs in its last bit.
void one_bit_apart(Rank& rank, const Call&, Answer& answer) {
  if (!rank.last() || rank.size() == 1 || answer.value.elements() == 0) return;
  std::int64_t left = answer.value.elements();
  change_floats(answer.value, [&](auto format, auto bits) {
    const bool finite = (bits & format.infinity) != format.infinity;
    return --left == 0 && finite ? bits ^ 1 : bits;
  });
}

void rounded_at_every_hop(Rank& rank, const Call&, Answer& answer) {
  if (rank.size() > 1) answer = rank.had_they_passed(rank.everybody(), SumRule::rank_order);
}

// Rounding to the dtype by leaving bits out. Only f16 and bf16, where the double sum of a few is
// mostly exact.
double truncated(DType dtype, Addends x) {
  const double sum = in_double(dtype, x);
  const double nearest = rounded(dtype, sum);
  if (dtype == DType::f64 || dtype == DType::f32 || !(std::fabs(nearest) > std::fabs(sum))) {
    return sum;
  }
  Tensor one = Tensor::zeros(dtype, Shape{1});
  set_number(one, 0, nearest);
  change_floats(one, [](auto, auto bits) { return bits - 1; });
  return number(one, 0);
}

}  // namespace

std::vector<Mutant> sum_mutants() {
  constexpr std::string_view kind = "sums";
  constexpr std::int64_t limit = 64 * 1024;
  const auto last_element = [](const Tensor& x) {
    return std::max<std::int64_t>(0, x.size_bytes() - size_of(x.dtype()));
  };
  const auto tail = [](const Tensor& x) { return x.elements() / 4 * 4 * size_of(x.dtype()); };
  return {
      {"own_part_missing", kind, "The rank's own addend is left out of its reduce-scatter.",
       spoiling(only<Operation::reduce_scatter_sum>, without_own_part)},
      {"first_part_twice", kind, "Rank 0's addend is counted twice.", adding(first_twice)},
      {"mean", kind, "Sums are divided by the number of ranks.", adding(mean)},
      {"maximum", kind, "The largest addend is returned.", adding(maximum)},
      {"tree_of_a_power_of_two", kind, "Ranks beyond the largest power of two are left out.",
       adding(largest_power_of_two)},
      {"seeded_with_zero", kind, "Sums start from +0, so negative zeros add up to a positive one.",
       results_through(positive_zero)},
      {"rounded_at_every_hop", kind, "Claims exact sums and rounds after every addition.",
       spoiling(is_sum, rounded_at_every_hop)},
      {"rounded_twice", kind, "Claims exact sums and adds in double.", adding(in_double)},
      {"truncated", kind, "Claims exact sums and rounds 16-bit ones toward zero.",
       adding(truncated)},
      {"nan_ignored", kind, "NaN addends are left out.", adding(without_nans)},
      {"descending_order", kind, "Claims rank order and adds from the last rank to the first.",
       adding(descending), SumRule::rank_order},
      {"wide_accumulator", kind, "Claims rank order and rounds only at the end.", adding(in_double),
       SumRule::rank_order},
      {"half_accumulator", kind,
       "Adds in bf16 under a rule that allows nothing worse than the dtype.", adding(in_bf16),
       SumRule::unspecified},
      {"sums_flushed", kind, "Subnormal sums become zeros.", results_through(flushed),
       SumRule::unspecified},
      {"overflow_saturated", kind, "Sums beyond the range become the largest finite number.",
       results_through(saturated), SumRule::unspecified},
      {"one_bit_apart", kind, "The last rank's all-reduce differs from the others' in one bit.",
       spoiling(only<Operation::all_reduce_sum>, one_bit_apart), SumRule::unspecified},
      {"last_element_missed", kind, "The last element of an all-reduce is the rank's own.",
       unsummed_from(last_element)},
      {"vector_tail_missed", kind, "Elements beyond a multiple of four are not added.",
       unsummed_from(tail)},
      {"beyond_64_kib_missed", kind, "Elements beyond 64 KiB are not added.",
       unsummed_from([](const Tensor&) { return limit; })},
  };
}

}  // namespace lockstep::zoo
