#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>

#include <lockstep/half.hpp>
#include <lockstep/long_accumulator.hpp>

#include "sum_judge.hpp"

namespace lockstep::kit {
namespace {

std::string approximately(const LongAccumulator& x) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", x.round_to<double>());
  return text;
}

// 2^exponent.
LongAccumulator power_of_two(int exponent) {
  LongAccumulator power;
  power.add(from_bits<double>(1));  // 2^-1074
  power.multiply_by_power_of_two(exponent - LongAccumulator::lowest_bit);
  return power;
}

template <class T>
class SumJudge {
  using Format = FormatOf<T>;
  using Bits = typename Format::Bits;

 public:
  explicit SumJudge(std::span<const std::byte* const> addends) : count_(addends.size()) {
    for (const std::byte* addend : addends) add(load(addend));
    exact_.add(positive_.sum);
    exact_.subtract(negative_.sum);
    total_.add(positive_.sum);
    total_.add(negative_.sum);
  }

  std::optional<std::string> refute(const std::byte* element) const {
    const T result = load(element);
    const Bits magnitude = magnitude_of(result);
    const bool below_zero = to_bits(result) != magnitude;
    if (nan_ || (positive_.infinite && negative_.infinite)) {
      if (magnitude > Format::infinity) return std::nullopt;
      return nan_ ? "an addend is a NaN, so the sum is one"
                  : "addends are infinite with both signs, so the sum is a NaN";
    }
    if (magnitude > Format::infinity) return refute_nan();
    if (magnitude == Format::infinity) return refute_infinity(below_zero);
    return refute_finite(result, magnitude, below_zero);
  }

 private:
  static T load(const std::byte* element) {
    T value;
    std::memcpy(&value, element, sizeof value);
    return value;
  }
  static Bits magnitude_of(T value) {
    return static_cast<Bits>(to_bits(value) & static_cast<Bits>(~Format::sign_bit));
  }

  void add(T addend) {
    const Bits magnitude = magnitude_of(addend);
    const bool below_zero = to_bits(addend) != magnitude;
    all_negative_zeros_ = all_negative_zeros_ && below_zero && magnitude == 0;
    Side& side = below_zero ? negative_ : positive_;
    if (magnitude > Format::infinity) {
      nan_ = true;
    } else if (magnitude == Format::infinity) {
      side.infinite = true;
    } else if (magnitude != 0) {
      ++side.count;
      side.sum.add(from_bits<T>(magnitude));
      last_bit_ = std::min(last_bit_, last_bit_of(magnitude));
    }
  }

  // The exponent of the last nonzero bit.
  static int last_bit_of(Bits magnitude) {
    const int field = static_cast<int>(magnitude >> Format::fraction_bits);
    const auto fraction = static_cast<Bits>(magnitude & Format::fraction_mask);
    const int unit = (field == 0 ? 0 : field - 1) + Format::lowest_bit;
    return unit + (fraction == 0 ? Format::fraction_bits : std::countr_zero(fraction));
  }

  // The addends of one sign; magnitudes.
  struct Side {
    LongAccumulator sum;
    std::uint64_t count = 0;
    bool infinite = false;
  };

  // Can a partial sum of some order reach infinity on this side?
  static bool can_overflow(const Side& side) {
    if (side.count < 2) return false;
    // In units of u 2^-8.
    const std::uint64_t error = 256 * (side.count - 2) + (side.count - 1);
    LongAccumulator highest = side.sum;
    highest.multiply_by_power_of_two(Format::precision + 8);
    LongAccumulator errors = side.sum;
    errors.multiply(static_cast<std::uint32_t>(error));
    highest.add(errors);
    LongAccumulator threshold = largest();
    threshold.add(power_of_two(Format::highest_bit - Format::precision));
    threshold.multiply_by_power_of_two(Format::precision + 8);
    return compare(highest, threshold) >= 0;
  }

  static LongAccumulator largest() {
    LongAccumulator largest;
    largest.add(from_bits<T>(static_cast<Bits>(Format::infinity - 1)));
    return largest;
  }

  static bool can_be_infinite(const Side& side) { return side.infinite || can_overflow(side); }

  std::optional<std::string> refute_nan() const {
    if (can_be_infinite(positive_) && can_be_infinite(negative_)) return std::nullopt;
    return "no addend is a NaN, and partial sums cannot be infinite with both signs";
  }

  std::optional<std::string> refute_infinity(bool below_zero) const {
    const Side& same = below_zero ? negative_ : positive_;
    const Side& other = below_zero ? positive_ : negative_;
    if (other.infinite) return "an addend is infinite with the other sign";
    if (can_be_infinite(same)) return std::nullopt;
    return "no addend is infinite, and no partial sum in any order overflows";
  }

  std::optional<std::string> refute_finite(T result, Bits magnitude, bool below_zero) const {
    if (positive_.infinite || negative_.infinite)
      return "an addend is infinite, so the sum is not finite";
    if (magnitude == 0 && below_zero != all_negative_zeros_) {
      return below_zero ? "a zero sum is -0 only where all addends are -0"
                        : "the sum of nothing but -0 is -0";
    }
    LongAccumulator error = exact_;
    error.subtract(result);
    error.make_absolute();
    if (error.sign() == 0) return std::nullopt;
    if (every_partial_sum_is_exact()) {
      return "the sum is exact in every order, " + approximately(exact_) + ", and this is off by " +
             approximately(error);
    }
    const auto factor = static_cast<std::uint32_t>(257 * (count_ - 1));
    LongAccumulator bound = total_;
    bound.multiply(factor);
    LongAccumulator scaled = error;
    scaled.multiply_by_power_of_two(Format::precision + 8);
    if (compare(scaled, bound) <= 0) return std::nullopt;
    return "the exact sum is about " + approximately(exact_) + ", and this is off by " +
           approximately(error) + ", beyond what any order of summation explains";
  }

  bool every_partial_sum_is_exact() const {
    if (total_.sign() == 0) return true;
    return compare(total_, largest()) <= 0 &&
           compare(total_, power_of_two(last_bit_ + Format::precision)) <= 0;
  }

  std::size_t count_;
  bool nan_ = false;
  bool all_negative_zeros_ = true;
  int last_bit_ = Format::highest_bit;  // the lowest of all addends
  Side positive_;
  Side negative_;
  LongAccumulator exact_;  // the sum
  LongAccumulator total_;  // the sum of the magnitudes
};

}  // namespace

std::optional<std::string> refute_sum(DType dtype, std::span<const std::byte* const> addends,
                                      const std::byte* result) {
  switch (dtype) {
    case DType::f16:
      return SumJudge<f16>(addends).refute(result);
    case DType::bf16:
      return SumJudge<bf16>(addends).refute(result);
    case DType::f32:
      return SumJudge<float>(addends).refute(result);
    default:
      return SumJudge<double>(addends).refute(result);
  }
}

}  // namespace lockstep::kit
