#include "bench_measure.hpp"

#include <bit>
#include <cmath>
#include <cstring>
#include <random>

#include <lockstep/half.hpp>

namespace lockstep::bench {
namespace {

template <class T>
T from_double(double value) {
  if constexpr (std::is_same_v<T, f16>) {
    return to_f16(value);
  } else if constexpr (std::is_same_v<T, bf16>) {
    return to_bf16(value);
  } else {
    return static_cast<T>(value);
  }
}

// Calls next() for every element of type T.
template <class T, class Next>
void generate(std::span<std::byte> elements, const Next& next) {
  for (std::size_t at = 0; at < elements.size(); at += sizeof(T)) {
    const T value = next();
    std::memcpy(elements.data() + at, &value, sizeof(T));
  }
}

template <class T>
void fill_floats(std::span<std::byte> elements, Data data, int ranks, std::mt19937_64& random) {
  if (data == Data::normal) {
    std::normal_distribution<double> normal;
    return generate<T>(elements, [&] { return from_double<T>(normal(random)); });
  }
  using Format = FormatOf<T>;
  using Bits = typename Format::Bits;
  constexpr int fraction_bits = Format::fraction_bits;
  // Normal numbers, small enough for the sum of one from each rank to be finite.
  const auto log_ranks = static_cast<int>(std::bit_width(static_cast<unsigned>(ranks)));
  const int most = static_cast<int>(Format::infinity >> fraction_bits) - 1 - log_ranks;
  std::uniform_int_distribution<int> exponent(1, most);
  constexpr Bits kept = static_cast<Bits>(~Format::infinity);  // the sign and the fraction
  generate<T>(elements, [&] {
    const Bits bits = static_cast<Bits>(random());
    return from_bits<T>(static_cast<Bits>(
        (bits & kept) | static_cast<Bits>(static_cast<Bits>(exponent(random)) << fraction_bits)));
  });
}

}  // namespace

void fill(DType dtype, std::span<std::byte> elements, Data data, int rank, int ranks) {
  std::mt19937_64 random(static_cast<std::uint64_t>(rank) + 1);
  switch (dtype) {
    case DType::f16:
      return fill_floats<f16>(elements, data, ranks, random);
    case DType::bf16:
      return fill_floats<bf16>(elements, data, ranks, random);
    case DType::f32:
      return fill_floats<float>(elements, data, ranks, random);
    case DType::f64:
      return fill_floats<double>(elements, data, ranks, random);
    default:
      return generate<std::uint8_t>(elements, [&] { return static_cast<std::uint8_t>(random()); });
  }
}

}  // namespace lockstep::bench
