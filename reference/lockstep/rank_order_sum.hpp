// The sum ((x0 + x1) + x2) + ..., each step rounded to the dtype.
//
// The 16-bit formats have no addition of their own: a step is a float addition, rounded again to 16
// bits. That is the same as rounding the exact sum of the two addends once. Rounding first to q
// bits and then to p is innocuous for an addition of two p-bit numbers when q >= 2p + 2 (Figueroa,
// 1995): 24 >= 2*11 + 2 for f16, 24 >= 2*8 + 2 for bf16. Where the 16-bit result is subnormal, the
// sum of two multiples of the format's last bit is such a multiple itself, and exact throughout.
// Overflow happens at the second rounding, at the same threshold as for one.
#pragma once

#include <cstdint>
#include <type_traits>

#include <lockstep/exact_sum.hpp>
#include <lockstep/half.hpp>
#include <lockstep/host_device.hpp>

namespace lockstep {

// A running sum. It starts with -0.0, the neutral element of addition.
template <class T>
struct RankOrderSum {
  // Always a value of T.
  using Value = std::conditional_t<std::is_same_v<T, double>, double, float>;
  Value sum = Value(-0.0);

  LOCKSTEP_HOST_DEVICE constexpr void add(Value x) {
    sum += x;
    // A NaN here came from a widened 16-bit one or from the processor, whose own have no low
    // payload bits: rounding keeps it a NaN.
    if constexpr (std::is_same_v<T, bf16>) sum = to_float(bf16{round_to_bf16_bits(sum)});
    if constexpr (std::is_same_v<T, f16>) sum = to_float(to_f16(sum));
  }

  LOCKSTEP_HOST_DEVICE constexpr void add(T x) requires(sizeof(T) == 2) { add(to_float(x)); }

  // Every NaN becomes the positive quiet one, see exact_sum.hpp.
  LOCKSTEP_HOST_DEVICE constexpr T rounded() const {
    const Value value = sum == sum ? sum : from_bits<Value>(FormatOf<Value>::quiet_nan);
    if constexpr (std::is_same_v<T, bf16>) {
      return bf16{static_cast<std::uint16_t>(to_bits(value) >> 16)};
    } else if constexpr (std::is_same_v<T, f16>) {
      return to_f16(value);
    } else {
      return value;
    }
  }
};

}  // namespace lockstep
