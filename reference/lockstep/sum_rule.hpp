// The rules a floating sum can follow. A backend declares one; the judge holds it to that one.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string_view>

namespace lockstep {

enum class SumRule : std::uint8_t {
  // The infinitely precise sum of the N addends, rounded once to the dtype, ties to even. Any NaN,
  // or infinities of both signs, gives a NaN; all addends -0.0 give -0.0, any other zero is +0.0.
  exact,
  // ((x0 + x1) + x2) + ..., each step rounded to the dtype.
  rank_order,
  // Some order, some intermediate precision no worse than the dtype: what NCCL and MPI promise.
  unspecified,
};

constexpr std::string_view name(SumRule rule) {
  constexpr std::string_view names[] = {"exact", "rank_order", "unspecified"};
  return names[static_cast<int>(rule)];
}
std::optional<SumRule> sum_rule_named(std::string_view name);

std::ostream& operator<<(std::ostream& out, SumRule rule);

}  // namespace lockstep
