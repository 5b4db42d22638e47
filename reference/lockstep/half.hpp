// The two 16-bit floating formats, as bit patterns with exact conversions. They have no arithmetic
// of their own: sums go through lockstep/fold.hpp, which rounds once.
//
// The conversions are written on integers, so they are constant expressions, mean the same on every
// machine and under every floating-point compiler flag, and never trap a signalling NaN.
#pragma once

#include <cstdint>

#include <lockstep/host_device.hpp>

namespace lockstep {

// IEEE 754 binary16: 1 sign, 5 exponent, 10 fraction bits.
struct f16 {
  std::uint16_t bits = 0;
  friend constexpr bool operator==(f16, f16) = default;  // of bits: NaN equals itself, 0 is not -0
};

// bfloat16: 1 sign, 8 exponent, 7 fraction bits (the upper half of a binary32).
struct bf16 {
  std::uint16_t bits = 0;
  friend constexpr bool operator==(bf16, bf16) = default;
};

// A binary interchange format: its fields, and the constants that follow from them.
template <class BitsType, int ExponentBits, int FractionBits>
struct BinaryFormat {
  using Bits = BitsType;  // unsigned, as wide as the format
  static constexpr int exponent_bits = ExponentBits;
  static constexpr int fraction_bits = FractionBits;
  static constexpr int precision = FractionBits + 1;  // significant bits of a normal number
  static constexpr int bias = (1 << (ExponentBits - 1)) - 1;
  static constexpr int largest_exponent_field = (1 << ExponentBits) - 1;  // infinities and NaNs
  // The weight of the last bit of a subnormal: every finite value is a multiple of 2^lowest_bit.
  static constexpr int lowest_bit = 1 - bias - FractionBits;
  // Every finite magnitude is below 2^(highest_bit + 1).
  static constexpr int highest_bit = bias;

  static constexpr Bits fraction_mask = static_cast<Bits>((Bits{1} << FractionBits) - 1);
  static constexpr Bits infinity = static_cast<Bits>(Bits{largest_exponent_field} << FractionBits);
  static constexpr Bits quiet_bit = static_cast<Bits>(Bits{1} << (FractionBits - 1));
  static constexpr Bits quiet_nan = static_cast<Bits>(infinity | quiet_bit);  // positive, payload 0
  static constexpr Bits sign_bit = static_cast<Bits>(Bits{1} << (ExponentBits + FractionBits));
};

template <class T>
struct FormatOf;
template <>
struct FormatOf<f16> : BinaryFormat<std::uint16_t, 5, 10> {};
template <>
struct FormatOf<bf16> : BinaryFormat<std::uint16_t, 8, 7> {};
template <>
struct FormatOf<float> : BinaryFormat<std::uint32_t, 8, 23> {};
template <>
struct FormatOf<double> : BinaryFormat<std::uint64_t, 11, 52> {};

// A floating element as its bits and back. (The builtin rather than std::bit_cast, which device
// code may not call.)
template <class T>
LOCKSTEP_HOST_DEVICE constexpr typename FormatOf<T>::Bits to_bits(T value) {
  return __builtin_bit_cast(typename FormatOf<T>::Bits, value);
}
template <class T>
LOCKSTEP_HOST_DEVICE constexpr T from_bits(typename FormatOf<T>::Bits bits) {
  return __builtin_bit_cast(T, bits);
}

// The same value in a wider format: exact, a NaN keeps its payload and stays quiet or signalling.
template <class To, class From>
LOCKSTEP_HOST_DEVICE constexpr typename FormatOf<To>::Bits widen_bits(
    typename FormatOf<From>::Bits bits) {
  using Narrow = FormatOf<From>;
  using Wide = FormatOf<To>;
  using Bits = typename Wide::Bits;
  constexpr int longer = Wide::fraction_bits - Narrow::fraction_bits;
  static_assert(longer >= 0 && Wide::exponent_bits >= Narrow::exponent_bits);

  const Bits sign = (bits & Narrow::sign_bit) != 0 ? Wide::sign_bit : Bits{0};
  int exponent = static_cast<int>((bits & Narrow::infinity) >> Narrow::fraction_bits);
  Bits fraction =
      static_cast<Bits>(Bits{static_cast<Bits>(bits & Narrow::fraction_mask)} << longer);
  if (exponent == Narrow::largest_exponent_field) {
    exponent = Wide::largest_exponent_field;
  } else if (exponent != 0) {
    exponent += Wide::bias - Narrow::bias;
  } else if (fraction != 0 && Wide::bias != Narrow::bias) {
    // A subnormal that is normal in the wider format.
    exponent = 1 + Wide::bias - Narrow::bias;
    while ((fraction >> Wide::fraction_bits) == 0) {
      fraction = static_cast<Bits>(fraction << 1);
      --exponent;
    }
    fraction = static_cast<Bits>(fraction & Wide::fraction_mask);
  }
  return static_cast<Bits>(
      sign | (Bits{static_cast<Bits>(static_cast<unsigned>(exponent))} << Wide::fraction_bits) |
      fraction);
}

// The nearest value of a narrower format, ties to even: subnormals are rounded at their own last
// bit, and what rounds beyond the largest finite value becomes infinity. A NaN stays a NaN of the
// same sign, is made quiet, and keeps the leading bits of its payload (as x86 and ARM do).
template <class To, class From>
LOCKSTEP_HOST_DEVICE constexpr typename FormatOf<To>::Bits narrow_bits(
    typename FormatOf<From>::Bits bits) {
  using Wide = FormatOf<From>;
  using Narrow = FormatOf<To>;
  using Bits = typename Wide::Bits;
  constexpr int shorter = Wide::fraction_bits - Narrow::fraction_bits;
  static_assert(shorter > 0 && Wide::exponent_bits >= Narrow::exponent_bits);

  const Bits sign = (bits & Wide::sign_bit) != 0 ? Bits{Narrow::sign_bit} : Bits{0};
  const Bits magnitude = static_cast<Bits>(bits & static_cast<Bits>(~Wide::sign_bit));
  const Bits fraction = static_cast<Bits>(bits & Wide::fraction_mask);
  Bits rounded = 0;
  if (magnitude > Wide::infinity) {
    rounded = static_cast<Bits>(Narrow::quiet_nan | (fraction >> shorter));
  } else if (magnitude == Wide::infinity) {
    rounded = Narrow::infinity;
  } else {
    // value = significand * 2^(exponent - Wide::bias - Wide::fraction_bits)
    const int field = static_cast<int>(magnitude >> Wide::fraction_bits);
    const int exponent = field == 0 ? 1 : field;
    const Bits hidden = field == 0 ? Bits{0} : static_cast<Bits>(Bits{1} << Wide::fraction_bits);
    const Bits significand = static_cast<Bits>(fraction | hidden);
    // Drop the bits below the last one of the narrow format, which for its subnormals stands
    // higher. Two bits more than the significand has are enough to drop it all and leave zero.
    const int narrow_exponent = exponent - Wide::bias + Narrow::bias;
    int drop = narrow_exponent >= 1 ? shorter : shorter + 1 - narrow_exponent;
    if (drop > Wide::precision + 1) drop = Wide::precision + 1;
    const Bits half = static_cast<Bits>(Bits{1} << (drop - 1));
    const Bits dropped = static_cast<Bits>(significand & static_cast<Bits>(half + half - 1));
    Bits kept = static_cast<Bits>(significand >> drop);
    if (dropped > half || (dropped == half && (kept & 1) != 0)) kept = static_cast<Bits>(kept + 1);
    // The hidden bit of `kept`, or a carry into that place, adds one to the exponent field; a carry
    // out of the largest finite value gives exactly infinity.
    const int below = narrow_exponent >= 1 ? narrow_exponent - 1 : 0;
    rounded = below >= Narrow::largest_exponent_field
                  ? Bits{Narrow::infinity}
                  : static_cast<Bits>((Bits{static_cast<Bits>(static_cast<unsigned>(below))}
                                       << Narrow::fraction_bits) +
                                      kept);
    if (rounded > Narrow::infinity) rounded = Narrow::infinity;
  }
  return static_cast<typename Narrow::Bits>(sign | rounded);
}

LOCKSTEP_HOST_DEVICE constexpr float to_float(f16 x) {
  return from_bits<float>(widen_bits<float, f16>(x.bits));
}
LOCKSTEP_HOST_DEVICE constexpr float to_float(bf16 x) {
  return from_bits<float>(std::uint32_t{x.bits}
                          << 16);  // what widen_bits gives, in one instruction
}
LOCKSTEP_HOST_DEVICE constexpr double to_double(f16 x) {
  return from_bits<double>(widen_bits<double, f16>(x.bits));
}
LOCKSTEP_HOST_DEVICE constexpr double to_double(bf16 x) {
  return from_bits<double>(widen_bits<double, bf16>(x.bits));
}
LOCKSTEP_HOST_DEVICE constexpr f16 to_f16(float x) {
  return f16{narrow_bits<f16, float>(to_bits(x))};
}
LOCKSTEP_HOST_DEVICE constexpr f16 to_f16(double x) {
  return f16{narrow_bits<f16, double>(to_bits(x))};
}
LOCKSTEP_HOST_DEVICE constexpr bf16 to_bf16(float x) {
  return bf16{narrow_bits<bf16, float>(to_bits(x))};
}
LOCKSTEP_HOST_DEVICE constexpr bf16 to_bf16(double x) {
  return bf16{narrow_bits<bf16, double>(to_bits(x))};
}

}  // namespace lockstep
