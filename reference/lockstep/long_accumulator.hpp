// Exact arithmetic on sums of floating numbers: a fixed-point number wide enough to hold them.
//
// Every finite double is an integer multiple of 2^-1074 below 2^1024 in magnitude, so an integer of
// some 2100 bits that counts multiples of 2^-1074 holds any of them exactly, and a few dozen bits
// on top hold the sum of as many as one likes (Kulisch's accumulator). Nothing here rounds but
// round_to, which rounds once.
//
// Only integer operations touch the numbers: floating-point compiler flags and modes are
// irrelevant.
#pragma once

#include <cstddef>
#include <cstdint>

#include <lockstep/half.hpp>
#include <lockstep/host_device.hpp>

namespace lockstep {

// A finite number taken apart: (-1)^negative * significand * 2^(lowest_bit of its format + shift).
struct Term {
  std::uint64_t significand;
  int shift;
  bool negative;
};

template <class T>
LOCKSTEP_HOST_DEVICE constexpr Term take_apart(T value) {
  using Format = FormatOf<T>;
  const std::uint64_t bits = to_bits(value);
  const int field = static_cast<int>((bits & Format::infinity) >> Format::fraction_bits);
  const std::uint64_t hidden = std::uint64_t{field != 0} << Format::fraction_bits;
  return {(bits & Format::fraction_mask) | hidden, field - static_cast<int>(field != 0),
          (bits & Format::sign_bit) != 0};
}

// (-1)^negative * (leading + rest) * 2^exponent rounded to the nearest T, ties to even, infinity
// beyond the range. The highest bit of `leading` is set; 0 <= rest < 1, and `sticky` says whether
// it is nonzero, which is all that rounding needs to know of it.
template <class T>
LOCKSTEP_HOST_DEVICE constexpr T round_leading(bool negative, std::uint64_t leading, int exponent,
                                               bool sticky) {
  using Format = FormatOf<T>;
  // The last bit to keep is the precision's, or for a subnormal the format's lowest one.
  const int normal_last = exponent + 63 - Format::fraction_bits;
  const int last = normal_last > Format::lowest_bit ? normal_last : Format::lowest_bit;
  const int drop = last - exponent;  // at least 63 - 52
  std::uint64_t kept = 0;
  if (drop <= 64) {
    kept = drop == 64 ? 0 : leading >> drop;
    const std::uint64_t half = std::uint64_t{1} << (drop - 1);
    const bool above_half = (leading & (half - 1)) != 0 || sticky;
    if ((leading & half) != 0 && (above_half || (kept & 1) != 0)) ++kept;
  }
  // `kept` counts multiples of 2^last, and the exponent field counts from the format's lowest bit.
  // The hidden bit of a normal number adds one to the field; so does a carry out of the fraction,
  // and out of the largest finite number it gives exactly infinity.
  const int field = last - Format::lowest_bit;
  std::uint64_t bits = Format::infinity;
  if (field < Format::largest_exponent_field) {
    bits = (static_cast<std::uint64_t>(field) << Format::fraction_bits) + kept;
    if (bits > Format::infinity) bits = Format::infinity;
  }
  if (negative) bits |= Format::sign_bit;
  return from_bits<T>(static_cast<typename Format::Bits>(bits));
}

// A multiple of 2^LowestBit, as a two's complement integer of 64*Limbs bits. It is exact while the
// magnitude stays below 2^(64*Limbs - 1 + LowestBit); keeping to that is up to the caller.
template <int LowestBit, int Limbs>
class FixedPoint {
 public:
  static constexpr int lowest_bit = LowestBit;

  // The value of a finite f16, bf16, float or double; NaN and infinities have none.
  template <class T>
  LOCKSTEP_HOST_DEVICE constexpr void add(T value) {
    static_assert(holds<T>);
    const Term term = take_apart(value);
    add_shifted(term.significand, term.shift + FormatOf<T>::lowest_bit - LowestBit, term.negative);
  }
  template <class T>
  LOCKSTEP_HOST_DEVICE constexpr void subtract(T value) {
    static_assert(holds<T>);
    const Term term = take_apart(value);
    add_shifted(term.significand, term.shift + FormatOf<T>::lowest_bit - LowestBit, !term.negative);
  }

  LOCKSTEP_HOST_DEVICE constexpr void add(const FixedPoint& other) {
    std::uint64_t carry = 0;
    for (int i = 0; i < Limbs; ++i) carry = add_limb(i, other.limbs_[i], carry);
  }
  LOCKSTEP_HOST_DEVICE constexpr void subtract(const FixedPoint& other) {
    std::uint64_t borrow = 0;
    for (int i = 0; i < Limbs; ++i) borrow = subtract_limb(i, other.limbs_[i], borrow);
  }

  LOCKSTEP_HOST_DEVICE constexpr void negate() {
    std::uint64_t carry = 1;
    for (int i = 0; i < Limbs; ++i) {
      limbs_[i] = ~limbs_[i] + carry;
      carry = carry != 0 && limbs_[i] == 0 ? 1 : 0;
    }
  }
  LOCKSTEP_HOST_DEVICE constexpr void make_absolute() {
    if (is_negative()) negate();
  }

  LOCKSTEP_HOST_DEVICE constexpr void multiply(std::uint32_t factor) {
    // By halves of a limb, so that no product needs more than 64 bits.
    std::uint64_t carry = 0;
    for (int i = 0; i < Limbs; ++i) {
      const std::uint64_t low = (limbs_[i] & 0xffffffff) * factor + carry;
      const std::uint64_t high = (limbs_[i] >> 32) * factor + (low >> 32);
      limbs_[i] = (high << 32) | (low & 0xffffffff);
      carry = high >> 32;
    }
  }
  // Times 2^bits, for bits >= 0.
  LOCKSTEP_HOST_DEVICE constexpr void multiply_by_power_of_two(int bits) {
    const int whole = bits / 64;
    const int part = bits % 64;
    for (int i = Limbs - 1; i >= 0; --i) {
      const std::uint64_t upper = i >= whole ? limbs_[i - whole] : 0;
      const std::uint64_t lower = i > whole ? limbs_[i - whole - 1] : 0;
      limbs_[i] = part == 0 ? upper : (upper << part) | (lower >> (64 - part));
    }
  }

  // -1, 0 or 1.
  LOCKSTEP_HOST_DEVICE constexpr int sign() const {
    if (is_negative()) return -1;
    for (int i = 0; i < Limbs; ++i) {
      if (limbs_[i] != 0) return 1;
    }
    return 0;
  }
  // -1, 0 or 1 as a is below, equal to or above b.
  LOCKSTEP_HOST_DEVICE friend constexpr int compare(const FixedPoint& a, const FixedPoint& b) {
    if (a.is_negative() != b.is_negative()) return a.is_negative() ? -1 : 1;
    for (int i = Limbs - 1; i >= 0; --i) {
      if (a.limbs_[i] != b.limbs_[i]) return a.limbs_[i] < b.limbs_[i] ? -1 : 1;
    }
    return 0;
  }

  // The nearest f16, bf16, float or double, ties to even; infinity beyond the range; zero is +0.0.
  template <class T>
  LOCKSTEP_HOST_DEVICE constexpr T round_to() const {
    FixedPoint magnitude = *this;
    if (is_negative()) magnitude.negate();
    int limb = Limbs - 1;
    while (limb > 0 && magnitude.limbs_[limb] == 0) --limb;
    const std::uint64_t top = magnitude.limbs_[limb];
    if (top == 0) return from_bits<T>(0);
    const std::uint64_t below = limb > 0 ? magnitude.limbs_[limb - 1] : 0;
    const int zeros = __builtin_clzll(top);
    const std::uint64_t leading = zeros == 0 ? top : (top << zeros) | (below >> (64 - zeros));
    bool sticky = (below << zeros) != 0;
    for (int i = 0; i < limb - 1; ++i) sticky = sticky || magnitude.limbs_[i] != 0;
    return round_leading<T>(is_negative(), leading, LowestBit + 64 * (limb - 1) + 64 - zeros,
                            sticky);
  }

 private:
  // No bit of a T lies below the lowest one, and its shifted significand lies in two limbs.
  template <class T>
  static constexpr bool holds =
      FormatOf<T>::lowest_bit >= LowestBit &&
      (FormatOf<T>::highest_bit - FormatOf<T>::fraction_bits - LowestBit) / 64 + 1 < Limbs;

  LOCKSTEP_HOST_DEVICE constexpr void add_shifted(std::uint64_t significand, int shift,
                                                  bool negative) {
    int i = shift / 64;
    const int part = shift % 64;
    const std::uint64_t low = significand << part;
    const std::uint64_t high = part == 0 ? 0 : significand >> (64 - part);
    if (negative) {
      std::uint64_t borrow = subtract_limb(i + 1, high, subtract_limb(i, low, 0));
      for (i += 2; borrow != 0 && i < Limbs; ++i) borrow = subtract_limb(i, 0, borrow);
    } else {
      std::uint64_t carry = add_limb(i + 1, high, add_limb(i, low, 0));
      for (i += 2; carry != 0 && i < Limbs; ++i) carry = add_limb(i, 0, carry);
    }
  }

  LOCKSTEP_HOST_DEVICE constexpr std::uint64_t add_limb(int i, std::uint64_t limb,
                                                        std::uint64_t carry) {
    const std::uint64_t half = limbs_[i] + limb;
    limbs_[i] = half + carry;
    return static_cast<std::uint64_t>(half < limb) | static_cast<std::uint64_t>(limbs_[i] < carry);
  }
  LOCKSTEP_HOST_DEVICE constexpr std::uint64_t subtract_limb(int i, std::uint64_t limb,
                                                             std::uint64_t borrow) {
    const std::uint64_t before = limbs_[i];
    const std::uint64_t half = before - limb;
    limbs_[i] = half - borrow;
    return static_cast<std::uint64_t>(before < limb) | static_cast<std::uint64_t>(half < borrow);
  }

  LOCKSTEP_HOST_DEVICE constexpr bool is_negative() const { return limbs_[Limbs - 1] >> 63 != 0; }

  std::uint64_t limbs_[std::size_t{Limbs}]{};  // least significant first
};

// Holds every sum of fewer than 2^64 doubles (or narrower), even when multiplied by another 2^140:
// the last bit is 2^-1074, the sign bit stands at 2^1229.
using LongAccumulator = FixedPoint<-1074, 36>;

}  // namespace lockstep
