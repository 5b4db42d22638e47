// The judge of sums under the rule `unspecified` must not refuse what an honest backend returns.
//
// Honest is: any order, any tree of partial sums, each of them rounded to the dtype or kept in a
// wider accumulator. So such evaluations are made up, thousands of them, from addends that hit
// ties, cancellation, subnormals and the edge of overflow, and the judge must accept every one.
#include <algorithm>
#include <string>
#include <vector>

#include <rapidcheck.h>

#include <lockstep/dtype.hpp>
#include <lockstep/element_text.hpp>
#include <lockstep/fold.hpp>

#include "sum_judge.hpp"

namespace lockstep::kit {
namespace {

template <class T>
double to_wide(T x) {
  if constexpr (std::is_floating_point_v<T>) {
    return x;
  } else {
    return to_double(x);
  }
}

template <class T, class Wide>
T narrow(Wide x) {
  if constexpr (std::is_same_v<T, f16>) {
    return to_f16(x);
  } else if constexpr (std::is_same_v<T, bf16>) {
    return to_bf16(x);
  } else {
    return static_cast<T>(x);
  }
}

// Adds in a random tree in a wider format that has at least twice the digits of T and two more (or
// is long double for double), so that where every partial sum is rounded on to T that is the same
// as rounding it once (Figueroa, 1995). `keeps` is the chance in percent that one stays wide.
template <class T, class Wide>
T evaluate(const std::vector<T>& addends, int keeps) {
  std::vector<Wide> partial;
  for (T x : addends) partial.push_back(static_cast<Wide>(to_wide(x)));
  while (partial.size() > 1) {
    const auto a = *rc::gen::inRange<std::size_t>(0, partial.size());
    std::swap(partial[a], partial.back());
    const Wide last = partial.back();
    partial.pop_back();
    Wide& other = partial[*rc::gen::inRange<std::size_t>(0, partial.size())];
    other += last;
    if (*rc::gen::inRange(0, 100) >= keeps) {
      other = static_cast<Wide>(to_wide(narrow<T>(other)));
    }
  }
  return narrow<T>(partial[0]);
}

// Addends whose exponents lie around a common one, which may be the lowest or the highest; many are
// powers of two or next to one.
template <class T>
std::vector<T> draw_addends() {
  using Format = FormatOf<T>;
  using Bits = typename Format::Bits;
  const int count = *rc::gen::weightedOneOf<int>(
      {{4, rc::gen::inRange(2, 5)}, {2, rc::gen::inRange(5, 20)}, {1, rc::gen::inRange(20, 400)}});
  const int highest = Format::largest_exponent_field - 1;
  const int centre = *rc::gen::weightedOneOf<int>(
      {{1, rc::gen::just(0)}, {2, rc::gen::just(highest)}, {2, rc::gen::inRange(0, highest + 1)}});
  const int spread = *rc::gen::element(0, 1, 3, Format::precision, 2 * Format::precision);
  const bool one_sign = *rc::gen::inRange(0, 3) == 0;
  std::vector<T> addends;
  for (int i = 0; i < count; ++i) {
    const int field = std::clamp(centre + *rc::gen::inRange(-spread, spread + 1), 0, highest);
    const auto random = static_cast<Bits>(*rc::gen::arbitrary<std::uint64_t>());
    const Bits choices[] = {0, 1, Format::fraction_mask, random, random};
    const auto fraction =
        static_cast<Bits>(choices[*rc::gen::inRange(0, 5)] & Format::fraction_mask);
    Bits bits = static_cast<Bits>(
        static_cast<Bits>(static_cast<Bits>(field) << Format::fraction_bits) | fraction);
    if (*rc::gen::inRange(0, 60) == 0) bits = 0;
    if (*rc::gen::inRange(0, 400) == 0) bits = Format::infinity;
    const bool negative = one_sign ? false : *rc::gen::arbitrary<bool>();
    if (negative) bits = static_cast<Bits>(bits | Format::sign_bit);
    addends.push_back(from_bits<T>(bits));
  }
  if (*rc::gen::inRange(0, 20) == 0) {
    std::ranges::fill(addends, from_bits<T>(Format::sign_bit));  // nothing but -0
  }
  return addends;
}

template <class T>
std::vector<const std::byte*> pointers(const std::vector<T>& addends) {
  std::vector<const std::byte*> all;
  for (const T& x : addends) all.push_back(reinterpret_cast<const std::byte*>(&x));
  return all;
}

template <class T>
void require_accepted(const std::vector<T>& addends, T result, const char* how) {
  constexpr DType dtype = *dtype_of<T>;
  const auto all = pointers(addends);
  const auto* element = reinterpret_cast<const std::byte*>(&result);
  const auto refusal = refute_sum(dtype, all, element);
  if (!refusal) return;
  std::string text =
      std::string(how) + ": " + *refusal + "\n" + element_bits(dtype, element) + " from";
  for (const std::byte* addend : all) text += " " + element_bits(dtype, addend);
  RC_FAIL(text);
}

template <class T, class Wide>
bool check(const char* accumulator) {
  const std::string sums = std::string(name(*dtype_of<T>)) + " sums beside " + accumulator + ": ";
  bool ok = rc::check(sums + "every tree of partial sums is accepted", [] {
    const std::vector<T> addends = draw_addends<T>();
    const int keeps = *rc::gen::element(0, 0, 30, 70, 100);
    require_accepted(addends, evaluate<T, Wide>(addends, keeps), "a tree");
  });
  ok &= rc::check(sums + "the exact sum and the one in rank order are accepted", [] {
    const std::vector<T> addends = draw_addends<T>();
    for (SumRule rule : {SumRule::exact, SumRule::rank_order}) {
      T result;
      fold(rule, *dtype_of<T>, pointers(addends), 1, reinterpret_cast<std::byte*>(&result));
      require_accepted(addends, result, name(rule).data());
    }
  });
  return ok;
}

}  // namespace
}  // namespace lockstep::kit

int main() {
  using namespace lockstep;
  using namespace lockstep::kit;
  bool ok = check<f16, float>("float");
  ok &= check<f16, double>("double");
  ok &= check<bf16, float>("float");
  ok &= check<bf16, double>("double");
  ok &= check<float, double>("double");
  ok &= check<double, long double>("long double");
  return ok ? 0 : 1;
}
