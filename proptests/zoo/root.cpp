// Broadcasts from somebody else.
#include <cmath>

#include "spoiling.hpp"

namespace lockstep::zoo {
namespace {

constexpr Concerns broadcasts = only<Operation::broadcast_float>;

// What rank `whose(root, ranks)` passed.
Fault broadcasting(std::int64_t (*whose)(std::int64_t root, int ranks)) {
  return spoiling(broadcasts, [=](Rank& rank, const Call& call, Answer& answer) {
    const auto source = static_cast<std::size_t>(whose(call.root, rank.size()));
    answer.value = copied(rank.everybody()[source].x);
  });
}

// The root's elements plus zero times everybody else's, which an infinity or a NaN makes a NaN.
void leak(Rank& rank, const Call& call, Answer& answer) {
  const auto calls = rank.everybody();
  for (std::int64_t i = 0; i < answer.value.elements(); ++i) {
    for (std::size_t other = 0; other < calls.size(); ++other) {
      if (static_cast<std::int64_t>(other) == call.root) continue;
      if (!std::isfinite(number(calls[other].x, i))) set_number(answer.value, i, std::nan(""));
    }
  }
}

// The root's elements plus everybody else's zeros, which changes the sign of a negative zero.
void add_zeros(Rank& rank, const Call&, Answer& answer) {
  if (rank.size() == 1) return;
  change_floats(answer.value,
                [](auto format, auto bits) { return bits == format.sign_bit ? 0 : bits; });
}

// The length in bytes is taken for one of a dtype half as wide.
void half_of_it(Rank& rank, const Call& call, Answer& answer) {
  if (call.root == rank.rank() || call.x.elements() < 2) return;
  const std::int64_t half = answer.value.size_bytes() / 2 / size_of(call.x.dtype());
  replace_from(answer.value, half * size_of(call.x.dtype()), call.x);
}

void wrap(Rank& rank, Call& call) {
  call.root = ((call.root % rank.size()) + rank.size()) % rank.size();
}
void narrow(Rank&, Call& call) {
  call.root = static_cast<std::int32_t>(call.root);
}

}  // namespace

std::vector<Mutant> root_mutants() {
  constexpr std::string_view kind = "root";
  return {
      {"root_ignored", kind, "Rank 0 is always the root.",
       broadcasting([](std::int64_t, int) { return std::int64_t{0}; })},
      {"root_off_by_one", kind, "The rank after the root is the root.",
       broadcasting([](std::int64_t root, int ranks) { return (root + 1) % ranks; })},
      {"root_mirrored", kind, "Roots are counted from the last rank.",
       broadcasting([](std::int64_t root, int ranks) { return ranks - 1 - root; })},
      {"root_wraps", kind, "Roots out of range are taken modulo the number of ranks.",
       passing(broadcasts, wrap)},
      {"root_in_32_bits", kind, "Roots are read in 32 bits.", passing(broadcasts, narrow)},
      {"non_root_leaks", kind, "Infinities and NaNs of other ranks get into the root's elements.",
       spoiling(broadcasts, leak)},
      {"broadcast_by_sum", kind, "The root's elements are added to the others' zeros.",
       spoiling(broadcasts, add_zeros)},
      {"broadcast_half", kind, "Only the first half of the bytes reaches the others.",
       spoiling(broadcasts, half_of_it)},
  };
}

}  // namespace lockstep::zoo
