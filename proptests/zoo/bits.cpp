// Elements that only had to move and arrive changed.
#include <cmath>
#include <limits>

#include "spoiling.hpp"

namespace lockstep::zoo {
namespace {

template <class Change>
Fault floats_through(Change change) {
  return spoiling(moves,
                  [=](Rank&, const Call&, Answer& answer) { change_floats(answer.value, change); });
}

template <class Change>
Fault integers_through(Change change) {
  return spoiling(
      moves, [=](Rank&, const Call&, Answer& answer) { change_integers(answer.value, change); });
}

// What is left of an integer that a floating carrier has held.
template <class Carrier>
struct Carried {
  template <class T>
  T operator()(T value) const {
    const auto carried = static_cast<Carrier>(value);
    // The largest integers round up to a number that is none any more.
    const auto beyond = std::ldexp(Carrier(1), std::numeric_limits<T>::digits);
    return carried >= beyond ? std::numeric_limits<T>::max() : static_cast<T>(carried);
  }
};

template <class Format>
bool is_nan(Format, typename Format::Bits bits) {
  return (bits & static_cast<typename Format::Bits>(~Format::sign_bit)) > Format::infinity;
}

constexpr auto quiet = [](auto format, auto bits) {
  return is_nan(format, bits) ? bits | format.quiet_bit : bits;
};
constexpr auto canonical = [](auto format, auto bits) {
  return is_nan(format, bits) ? format.quiet_nan : bits;
};
constexpr auto unsigned_zero = [](auto format, auto bits) {
  return bits == format.sign_bit ? 0 : bits;
};
constexpr auto flushed = [](auto format, auto bits) {
  const bool tiny = (bits & format.infinity) == 0;
  return tiny ? bits & format.sign_bit : bits;
};
constexpr auto finite = [](auto format, auto bits) {
  using Bits = decltype(bits);
  const bool infinite = static_cast<Bits>(bits & ~format.sign_bit) == format.infinity;
  return infinite ? static_cast<Bits>(bits - 1) : bits;
};
constexpr auto nan_to_zero = [](auto format, auto bits) { return is_nan(format, bits) ? 0 : bits; };
// double to float and back, in the narrower formats nothing.
constexpr auto through_float = [](auto format, auto bits) {
  if constexpr (sizeof(bits) == 8) {
    return widen_bits<double, float>(narrow_bits<float, double>(bits));
  } else {
    (void)format;
    return bits;
  }
};
// f16 carried as bf16.
constexpr auto through_bf16 = [](auto format, auto bits) {
  if constexpr (format.precision == FormatOf<f16>::precision && sizeof(bits) == 2) {
    return to_f16(to_float(to_bf16(to_double(f16{bits})))).bits;
  } else {
    return bits;
  }
};

constexpr auto swapped_halves = [](auto value) {
  if constexpr (sizeof(value) == 8) {
    const auto bits = static_cast<std::uint64_t>(value);
    return static_cast<std::int64_t>(bits << 32 | bits >> 32);
  } else {
    return value;
  }
};
constexpr auto without_top_bit = [](auto value) {
  if constexpr (std::is_same_v<decltype(value), std::uint32_t>) {
    return value & 0x7fffffffu;
  } else {
    return value;
  }
};

}  // namespace

std::vector<Mutant> bit_mutants() {
  constexpr std::string_view kind = "bits";
  return {
      {"integers_through_float", kind, "Integers travel as floats.",
       integers_through(Carried<float>())},
      {"integers_through_double", kind, "Integers travel as doubles.",
       integers_through(Carried<double>())},
      {"wide_halves_swapped", kind, "64-bit integers arrive with their halves swapped.",
       integers_through(swapped_halves)},
      {"unsigned_as_signed", kind, "u32 elements lose their highest bit.",
       integers_through(without_top_bit)},
      {"f64_through_float", kind, "f64 elements travel as f32.", floats_through(through_float)},
      {"f16_through_bf16", kind, "f16 elements travel as bf16.", floats_through(through_bf16)},
      {"nan_quieted", kind, "Signalling NaNs arrive quiet.", floats_through(quiet)},
      {"nan_canonical", kind, "Every NaN arrives as the same one.", floats_through(canonical)},
      {"nan_to_zero", kind, "NaNs arrive as zeros.", floats_through(nan_to_zero)},
      {"zero_sign_lost", kind, "Negative zeros arrive positive.", floats_through(unsigned_zero)},
      {"subnormals_flushed", kind, "Subnormals arrive as zeros.", floats_through(flushed)},
      {"infinity_saturated", kind, "Infinities arrive as the largest finite number.",
       floats_through(finite)},
  };
}

}  // namespace lockstep::zoo
