// Communicators of a single rank, where every answer is what was passed.
#include "spoiling.hpp"

namespace lockstep::zoo {
namespace {

Fault alone(Concerns concerns, Spoil spoil) {
  return spoiling(concerns, [=](Rank& rank, const Call& call, Answer& answer) {
    if (rank.size() == 1) spoil(rank, call, answer);
  });
}

void canonical_nans(Rank&, const Call&, Answer& answer) {
  change_floats(answer.value, [](auto format, auto bits) {
    using Bits = decltype(bits);
    const bool nan = static_cast<Bits>(bits & ~format.sign_bit) > format.infinity;
    return nan ? static_cast<Bits>(format.quiet_nan) : bits;
  });
}

void add_positive_zero(Rank&, const Call&, Answer& answer) {
  change_floats(answer.value,
                [](auto format, auto bits) { return bits == format.sign_bit ? 0 : bits; });
}

void add_axis(Rank&, const Call&, Answer& answer) {
  std::vector<std::int64_t> axes = {1};
  for (std::int64_t axis : answer.value.shape().axes()) axes.push_back(axis);
  answer.value = answer.value.reshape(Shape(std::span<const std::int64_t>(axes)));
}

void return_zeros(Rank&, const Call&, Answer& answer) {
  answer.value = zeros_like(answer.value);
}

void return_no_counts(Rank&, const Call&, Answer& answer) {
  answer.receive_counts.clear();
}

// Nothing to agree on, so nothing is checked.
Answer unchecked(Rank& rank, const Call& call) {
  try {
    return rank.right(call);
  } catch (const ContractError&) {
    if (rank.size() > 1) throw;
    return {copied(call.x), call.send_counts};
  }
}

}  // namespace

std::vector<Mutant> world_of_one_mutants() {
  constexpr std::string_view kind = "world of one";
  return {
      {"alone_unchecked", kind, "A single rank may break the contract.", unchecked},
      {"alone_sum_loses_nan", kind, "Sums of a single rank lose the payloads of NaNs.",
       alone(is_sum, canonical_nans)},
      {"alone_sum_loses_sign", kind, "Sums of a single rank lose the sign of zero.",
       alone(is_sum, add_positive_zero)},
      {"alone_gather_adds_axis", kind, "Gathers of a single rank have one axis more.",
       alone(is_all_gather, add_axis)},
      {"alone_broadcast_waits", kind, "Broadcasts of a single rank return zeros.",
       alone(only<Operation::broadcast_float>, return_zeros)},
      {"alone_without_counts", kind, "Exchanges of a single rank return no counts.",
       alone(is_all_to_all_v, return_no_counts)},
  };
}

}  // namespace lockstep::zoo
