// The sum of a few floating numbers, infinitely precise and then rounded once: fast where a cheap
// certificate proves the fast sum right, by a long accumulator where it does not.
//
// Certificates. Let N addends be given, L = ceil(log2 N), and call "the exponent of x" the e with
// 2^e <= |x| < 2^(e+1).
//
// * f32 and bf16 are summed in double. An addend of exponent e and precision p (24 or 8 bits) is a
//   multiple of 2^(e+1-p). So with e_min and e_max over the nonzero addends, every partial sum is a
//   multiple of 2^(e_min+1-p) and at most N 2^(e_max+1) <= 2^(e_max+1+L) in magnitude. Such a
//   number is a double when the two are no more than 53 bits apart:
//
//       (e_max + 1 + L) - (e_min + 1 - p) <= 53     that is     e_max - e_min <= 53 - p - L.
//
//   Then no addition rounded, the double is the sum, and only the final conversion rounds. Exponent
//   fields stand for exponents: a subnormal's field 0 claims one less than the 2^(1-bias) that its
//   last bit belongs to, which errs on the safe side.
//
// * f16 needs no certificate: a f16 is a multiple of 2^-24 below 2^16, so the sum of 2^13 of them
// is
//   a multiple of 2^-24 of at most 2^29, again 53 bits.
//
// * f64 keeps the sum as an unevaluated pair s + e. Knuth's TwoSum gives for s and an addend x the
//   rounded s' = fl(s + x) and the exact error r = (s + x) - s'. The errors are summed in e with
//   TwoSum again, and what e could not hold is only measured: the sum lies within d of s + e, where
//   d bounds the sum of the magnitudes of what was lost, often zero. With s + e = s'' + e'' by one
//   more TwoSum, and since rounding preserves order, the sum is certified when s'' + (e'' - d) and
//   s'' + (e'' + d) round to the same double. Overflow on the way leaves an infinity or a NaN in
//   s + e, which is not certified.
//
// * f32 and bf16 with exponents too far apart get a second chance, CompensatedSum: the same with
// one
//   level less, since a double has bits to spare. The errors are summed in a plain e, which is
//   wrong by at most (N-1) 2^-53 times the sum of their magnitudes; the sum is certified when both
//   ends of an interval around fl(s + e) that holds it round to the same T. Only ties, and what
//   lies within a double's last bits of one, are left to the long accumulator.
//
// NaN, infinities, zeros. The arithmetic of IEEE 754 already is the contract: NaN and infinities
// propagate in a double sum, which finite f32 cannot overflow, and a sum that starts with -0.0, the
// neutral element, is -0.0 exactly when all addends are. What comes out as a NaN is replaced by the
// positive quiet one, since the payload that a processor picks depends on the order of operands
// that a compiler chose.
//
// The certified sums need IEEE arithmetic: no -ffast-math, no x87 (and in CUDA no -ftz=true). Where
// the compiler says that it is otherwise, exact_sum goes through the integers of the long
// accumulator throughout: slow, and right.
#pragma once

#include <cfloat>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <lockstep/half.hpp>
#include <lockstep/host_device.hpp>
#include <lockstep/long_accumulator.hpp>

namespace lockstep {

#if defined(__FAST_MATH__) || FLT_EVAL_METHOD != 0
inline constexpr bool arithmetic_is_ieee = false;
#else
inline constexpr bool arithmetic_is_ieee = true;
#endif

// ceil(log2 count), for count >= 1.
LOCKSTEP_HOST_DEVICE constexpr int ceil_log2(std::int64_t count) {
  int log = 0;
  while (log < 62 && (std::int64_t{1} << log) < count) ++log;
  return log;
}

// A double rounded to 24 bits "to odd": cut off, and the last bit set when anything nonzero was cut
// off. A later rounding to 22 bits or fewer then sees on which side of a midpoint the double lay,
// so that the two roundings together are the one from double (Boldo and Melquiond, 2008). Exact for
// doubles within the range of float whose bits below 2^-149 are zero, which sums of narrower types
// are; larger ones become infinity.
LOCKSTEP_HOST_DEVICE constexpr float to_float_odd(double x) {
  constexpr std::uint64_t cut = (std::uint64_t{1} << 29) - 1;
  const std::uint64_t bits = to_bits(x);
  // Adding `cut` carries into the last kept bit exactly when something is to be cut off.
  const std::uint64_t sticky = ((bits & cut) + cut) & (cut + 1);
  return static_cast<float>(from_bits<double>((bits & ~cut) | sticky));
}

// Rounds a float that is no NaN with low payload bits, ties to even, to the bits of a bf16; a carry
// out of the largest finite value gives infinity.
LOCKSTEP_HOST_DEVICE constexpr std::uint16_t round_to_bf16_bits(float x) {
  const std::uint32_t bits = to_bits(x);
  return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// A running sum, its certificate, and the rounding. `add` takes a T (or, for the 16-bit formats,
// the same value as a float, which spares a vector loop the conversion).
template <class T>
struct CertifiedSum;

// f32 and bf16: a double and the extreme exponents.
template <class T>
requires std::is_same_v<T, float> || std::is_same_v<T, bf16>
struct CertifiedSum<T> {
  double sum = -0.0;
  // The extremes of (the bits of |x|) - 1. Zero wraps around to the largest number as unsigned and
  // to -1 as signed, which keeps it out of both.
  std::uint32_t smallest = 0xffffffff;
  std::int32_t largest = -1;

  LOCKSTEP_HOST_DEVICE constexpr void add(float x) {
    sum += static_cast<double>(x);
    const std::uint32_t magnitude = (to_bits(x) & 0x7fffffff) - 1;
    smallest = magnitude < smallest ? magnitude : smallest;
    const auto as_signed = static_cast<std::int32_t>(magnitude);
    largest = as_signed > largest ? as_signed : largest;
  }
  LOCKSTEP_HOST_DEVICE constexpr void add(bf16 x) { add(to_float(x)); }

  // The largest e_max - e_min that is certified, negative for none.
  LOCKSTEP_HOST_DEVICE static constexpr int widest_spread(std::int64_t count) {
    return 53 - FormatOf<T>::precision - ceil_log2(count);
  }
  LOCKSTEP_HOST_DEVICE constexpr bool certified(int spread) const {
    const auto e_max = static_cast<std::int32_t>((static_cast<std::uint32_t>(largest) + 1) >> 23);
    const auto e_min = static_cast<std::int32_t>((smallest + 1) >> 23);
    return (e_max - e_min <= spread) | (e_max == 255);  // infinities and NaNs go by IEEE rules
  }
  LOCKSTEP_HOST_DEVICE constexpr T rounded() const {
    if constexpr (std::is_same_v<T, float>) {
      const auto result = static_cast<float>(sum);
      return result == result ? result : from_bits<float>(FormatOf<float>::quiet_nan);
    } else {
      const float odd = to_float_odd(sum);
      return bf16{odd == odd ? round_to_bf16_bits(odd) : FormatOf<bf16>::quiet_nan};
    }
  }
};

// f16: a double.
template <>
struct CertifiedSum<f16> {
  double sum = -0.0;

  LOCKSTEP_HOST_DEVICE constexpr void add(float x) { sum += static_cast<double>(x); }
  LOCKSTEP_HOST_DEVICE constexpr void add(f16 x) { sum += to_double(x); }

  static constexpr std::int64_t most_addends = 1 << 13;
  LOCKSTEP_HOST_DEVICE static constexpr int widest_spread(std::int64_t count) {
    return count <= most_addends ? 0 : -1;
  }
  LOCKSTEP_HOST_DEVICE constexpr bool certified(int spread) const { return spread >= 0; }
  // Still to be rounded to f16, so that hardware can do it for a whole vector.
  LOCKSTEP_HOST_DEVICE constexpr float rounded_to_odd() const {
    const float odd = to_float_odd(sum);
    return odd == odd ? odd : from_bits<float>(FormatOf<float>::quiet_nan);
  }
  LOCKSTEP_HOST_DEVICE constexpr f16 rounded() const { return to_f16(rounded_to_odd()); }
};

// |x|
LOCKSTEP_HOST_DEVICE constexpr double magnitude(double x) {
  return from_bits<double>(to_bits(x) & ~FormatOf<double>::sign_bit);
}

// s = fl(a + b) and the exact r = (a + b) - s (Knuth), where nothing overflows.
LOCKSTEP_HOST_DEVICE constexpr double two_sum(double a, double b, double& error) {
  const double s = a + b;
  const double b_part = s - a;
  const double a_part = s - b_part;
  error = (a - a_part) + (b - b_part);
  return s;
}

// f64: an unevaluated pair, and how much it could not hold.
template <>
struct CertifiedSum<double> {
  double sum = -0.0;
  double error = 0.0;
  double lost = 0.0;  // the sum of the magnitudes

  LOCKSTEP_HOST_DEVICE constexpr void add(double x) {
    double from_sum = 0.0;
    double from_error = 0.0;
    sum = two_sum(sum, x, from_sum);
    error = two_sum(error, from_sum, from_error);
    lost += magnitude(from_error);
  }

  LOCKSTEP_HOST_DEVICE static constexpr int widest_spread(std::int64_t) { return 0; }
  LOCKSTEP_HOST_DEVICE constexpr bool certified(int) const {
    double rest = 0.0;
    const double total = two_sum(sum, error, rest);
    // A multiple of `lost` makes up for its own roundings, the other term for those of the two
    // sums below. Among subnormals, where that term vanishes, sums are exact.
    const double some = 3 * lost + magnitude(rest) * 0x1p-51;
    const std::uint64_t any = lost == 0.0 ? 0 : ~std::uint64_t{0};  // a mask, for vector loops
    const double margin = from_bits<double>(to_bits(some) & any);
    const double low = total + (rest - margin);
    const double high = total + (rest + margin);
    return (low == high) & (total - total == 0.0);  // the latter: neither infinite nor a NaN
  }
  LOCKSTEP_HOST_DEVICE constexpr double rounded() const {
    const double total = sum + error;
    return error == 0.0 ? sum : total;  // -0.0 + 0.0 would lose the sign
  }
};

// f32 and bf16 whose exponents are too far apart for a CertifiedSum. All addends are finite.
template <class T>
requires std::is_same_v<T, float> || std::is_same_v<T, bf16>
struct CompensatedSum {
  double sum = 0.0;
  double error = 0.0;
  double magnitudes = 0.0;  // of the errors

  LOCKSTEP_HOST_DEVICE constexpr void add(float x) {
    double from_sum = 0.0;
    sum = two_sum(sum, static_cast<double>(x), from_sum);
    error += from_sum;
    magnitudes += magnitude(from_sum);
  }
  LOCKSTEP_HOST_DEVICE constexpr void add(bf16 x) { add(to_float(x)); }

  LOCKSTEP_HOST_DEVICE constexpr bool certified(std::int64_t count) const {
    // 2^-52 rather than 2^-53 makes up for the roundings of `magnitudes`; 2^-51 of the total is two
    // of its last bits or more, for its own rounding and for those of the two ends. Every number
    // here is a multiple of 2^-149 before it is scaled, so that nothing underflows.
    const double total = sum + error;
    const double margin =
        static_cast<double>(count) * 0x1p-52 * magnitudes + magnitude(total) * 0x1p-51;
    return to_bits(narrowed(total - margin)) == to_bits(narrowed(total + margin));
  }
  // A sum that is zero is not all of -0.0, which a CertifiedSum would have certified.
  LOCKSTEP_HOST_DEVICE constexpr T rounded() const { return narrowed(sum + error); }

 private:
  LOCKSTEP_HOST_DEVICE static constexpr T narrowed(double x) {
    if constexpr (std::is_same_v<T, float>) {
      return static_cast<float>(x);
    } else {
      return bf16{round_to_bf16_bits(to_float_odd(x))};
    }
  }
};

// The sum of any finite addends of type T, always right. Written for speed where LongAccumulator is
// written for arithmetic: 32-bit digits in signed 64-bit words, so that adding touches two or three
// words and propagates no carry (after Neal, "Fast exact summation using small and large
// superaccumulators", 2015). Carries are settled once, before rounding.
template <class T>
class DigitAccumulator {
 public:
  LOCKSTEP_HOST_DEVICE constexpr void add(T value) {
    const Term term = take_apart(value);
    const int i = term.shift / 32;
    const int part = term.shift % 32;
    const std::int64_t sign = term.negative ? -1 : 0;
    const auto put = [&](int at, std::uint64_t digit) {
      words_[at] += (static_cast<std::int64_t>(digit) ^ sign) - sign;
    };
    put(i, (term.significand << part) & digit_mask);
    put(i + 1, (term.significand >> (32 - part)) & digit_mask);
    if constexpr (FormatOf<T>::precision + 31 > 64) {
      put(i + 2, (term.significand >> 32) >> (32 - part));
    }
    if constexpr (tracks_range) {
      lowest_ = i < lowest_ ? i : lowest_;
      highest_ = i > highest_ ? i : highest_;
    }
    if (++unsettled_ == most_unsettled) settle();
  }

  // The nearest T, with +0.0 for zero; leaves the accumulator empty, for the next sum.
  LOCKSTEP_HOST_DEVICE constexpr T take() {
    settle();
    const std::int64_t sign = words_[highest()] < 0 ? -1 : 0;
    for (int i = lowest(); i <= highest(); ++i) words_[i] = (words_[i] ^ sign) - sign;
    settle();
    int top = highest();
    while (top > lowest() && words_[top] == 0) --top;
    const auto digit = [&](int i) {
      return i < lowest() ? std::uint64_t{0} : static_cast<std::uint64_t>(words_[i]);
    };
    T result = from_bits<T>(0);
    if (digit(top) != 0) {
      const int zeros = __builtin_clzll(digit(top)) - 32;
      const std::uint64_t third = digit(top - 2) << zeros;
      const std::uint64_t leading =
          (((digit(top) << 32) | digit(top - 1)) << zeros) | (third >> 32);
      std::uint64_t rest = third & digit_mask;
      for (int i = lowest(); i <= top - 3; ++i) rest |= digit(i);
      result = round_leading<T>(sign != 0, leading,
                                FormatOf<T>::lowest_bit + 32 * (top - 1) - zeros, rest != 0);
    }
    for (int i = lowest(); i <= highest(); ++i) words_[i] = 0;
    lowest_ = words - 1;
    highest_ = 0;
    return result;
  }

 private:
  static constexpr std::uint64_t digit_mask = 0xffffffff;
  // A word takes this many digits of either sign without overflow, with room for a carry.
  static constexpr std::int64_t most_unsettled = std::int64_t{1} << 30;
  // A significand of at most 53 bits reaches two digits beyond its first; two more leave room for
  // 2^63 addends.
  static constexpr int reach = 2;
  static constexpr int spare = 2;
  static constexpr int words =
      (FormatOf<T>::highest_bit - FormatOf<T>::fraction_bits - FormatOf<T>::lowest_bit) / 32 + 1 +
      reach + spare;

  // Few words are faster handled all than through loops whose lengths no processor can predict.
  static constexpr bool tracks_range = words > 16;
  LOCKSTEP_HOST_DEVICE constexpr int lowest() const { return tracks_range ? lowest_ : 0; }
  LOCKSTEP_HOST_DEVICE constexpr int highest() const { return tracks_range ? highest_ : words - 1; }

  // Makes every word but the highest a digit in [0, 2^32); the highest has the sign of the number.
  LOCKSTEP_HOST_DEVICE constexpr void settle() {
    if (unsettled_ != 0) {
      highest_ = highest_ + reach + spare < words ? highest_ + reach + spare : words - 1;
      unsettled_ = 0;
    }
    for (int i = lowest(); i < highest(); ++i) {
      words_[i + 1] += words_[i] >> 32;
      words_[i] &= static_cast<std::int64_t>(digit_mask);
    }
  }

  // The number is the sum of words_[i] * 2^(32 i + lowest_bit).
  std::int64_t words_[std::size_t{words}]{};
  // The first and last word that may be nonzero, as far as settled; before that `highest_` is where
  // the highest significand begins.
  int lowest_ = words - 1;
  int highest_ = 0;
  std::int64_t unsettled_ = 0;
};

// The exact sum of addend(0), ..., addend(count - 1), each a T, count >= 1, in integers throughout.
// `total` is empty before and after: clearing a new one for each sum would cost more than the sum.
template <class T, class Addend>
LOCKSTEP_HOST_DEVICE constexpr T long_sum(std::int64_t count, Addend addend,
                                          DigitAccumulator<T>& total) {
  using Format = FormatOf<T>;
  using Bits = typename Format::Bits;
  constexpr Bits negative_infinity = static_cast<Bits>(Format::infinity | Format::sign_bit);
  Bits unlike_negative_zero = 0;
  bool nan = false;
  bool infinite[2] = {false, false};  // positive, negative
  for (std::int64_t r = 0; r < count; ++r) {
    const T x = addend(r);
    const Bits bits = to_bits(x);
    const Bits magnitude = static_cast<Bits>(bits & static_cast<Bits>(~Format::sign_bit));
    unlike_negative_zero = static_cast<Bits>(unlike_negative_zero | (bits ^ Format::sign_bit));
    if (magnitude < Format::infinity) {
      total.add(x);
    } else if (magnitude == Format::infinity) {
      infinite[bits == magnitude ? 0 : 1] = true;
    } else {
      nan = true;
    }
  }
  const T sum = total.take();
  if (nan || (infinite[0] && infinite[1])) return from_bits<T>(Format::quiet_nan);
  if (infinite[0]) return from_bits<T>(Format::infinity);
  if (infinite[1]) return from_bits<T>(negative_infinity);
  return unlike_negative_zero == 0 ? from_bits<T>(Format::sign_bit) : sum;
}

// The same sum, fast where it can be certified. A single addend keeps its bits.
template <class T, class Addend>
LOCKSTEP_HOST_DEVICE constexpr T exact_sum(std::int64_t count, Addend addend) {
  if (count == 1) return addend(0);
  if constexpr (arithmetic_is_ieee) {
    CertifiedSum<T> sum;
    for (std::int64_t r = 0; r < count; ++r) sum.add(addend(r));
    if (sum.certified(CertifiedSum<T>::widest_spread(count))) return sum.rounded();
  }
  DigitAccumulator<T> total;
  return long_sum<T>(count, addend, total);
}

}  // namespace lockstep
