#include "reduction.hpp"

#include <cmath>
#include <cstring>
#include <type_traits>

#include <lockstep/half.hpp>

namespace lockstep::nccl {
namespace {

// The float8 formats, as bit patterns.
template <__nv_fp8_interpretation_t Format>
struct Float8 {
  std::uint8_t bits;
};
using E4m3 = Float8<__NV_E4M3>;
using E5m2 = Float8<__NV_E5M2>;

template <class T>
inline constexpr bool is_integer = std::is_integral_v<T>;

// The type in which a step of T is computed, and the way there and back.
template <class T>
struct Wide {
  using Type = T;
  static T from(T value) { return value; }
  static T to(T value) { return value; }
};
template <class Half>
struct WideHalf {
  using Type = float;
  static float from(Half value) { return to_float(value); }
};
template <>
struct Wide<f16> : WideHalf<f16> {
  static f16 to(float value) { return to_f16(value); }
};
template <>
struct Wide<bf16> : WideHalf<bf16> {
  static bf16 to(float value) { return to_bf16(value); }
};
template <__nv_fp8_interpretation_t Format>
struct Wide<Float8<Format>> {
  using Type = double;
  static double from(Float8<Format> value) {
    return to_double(f16{__nv_cvt_fp8_to_halfraw(value.bits, Format).x});
  }
  static Float8<Format> to(double value) {
    return {__nv_cvt_double_to_fp8(value, __NV_SATFINITE, Format)};
  }
};

// Signed overflow is undefined in C++ and wraps on a GPU.
template <class T>
T wrapped(T a, T b, Operator op) {
  using Unsigned = std::make_unsigned_t<T>;
  // Of at least the width of int, so that no product of two is promoted to a signed type.
  using Word = std::conditional_t<(sizeof(T) < sizeof(unsigned)), unsigned, Unsigned>;
  const Word x = static_cast<Unsigned>(a);
  const Word y = static_cast<Unsigned>(b);
  return static_cast<T>(static_cast<Unsigned>(op == Operator::prod ? x * y : x + y));
}

template <class F>
F larger(F a, F b) {
  if (std::isnan(a)) return b;
  if (std::isnan(b)) return a;
  if (a == b) return std::signbit(a) ? b : a;
  return a > b ? a : b;
}
template <class F>
F smaller(F a, F b) {
  if (std::isnan(a)) return b;
  if (std::isnan(b)) return a;
  if (a == b) return std::signbit(a) ? a : b;
  return a < b ? a : b;
}

template <class T, Operator Op>
T step(T a, T b) {
  if constexpr (is_integer<T>) {
    if constexpr (Op == Operator::max) return a > b ? a : b;
    if constexpr (Op == Operator::min) return a < b ? a : b;
    return wrapped(a, b, Op);
  } else {
    const auto x = Wide<T>::from(a);
    const auto y = Wide<T>::from(b);
    if constexpr (Op == Operator::prod) return Wide<T>::to(x * y);
    if constexpr (Op == Operator::max) return Wide<T>::to(larger(x, y));
    if constexpr (Op == Operator::min) return Wide<T>::to(smaller(x, y));
    return Wide<T>::to(x + y);
  }
}

// Device buffers need not be aligned for the host.
template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
template <class T>
void store(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

template <class T, Operator Op>
void combine_as(std::span<std::byte> partial, std::span<const std::byte> addend) {
  for (std::size_t at = 0; at < partial.size(); at += sizeof(T)) {
    store(&partial[at], step<T, Op>(load<T>(&partial[at]), load<T>(&addend[at])));
  }
}

// Calls `body` with a null pointer of the type that `datatype` stands for.
template <class Body>
void with_type(ncclDataType_t datatype, Body body) {
  switch (datatype) {
    case ncclInt8:
      return body(static_cast<std::int8_t*>(nullptr));
    case ncclUint8:
      return body(static_cast<std::uint8_t*>(nullptr));
    case ncclInt32:
      return body(static_cast<std::int32_t*>(nullptr));
    case ncclUint32:
      return body(static_cast<std::uint32_t*>(nullptr));
    case ncclInt64:
      return body(static_cast<std::int64_t*>(nullptr));
    case ncclUint64:
      return body(static_cast<std::uint64_t*>(nullptr));
    case ncclFloat16:
      return body(static_cast<f16*>(nullptr));
    case ncclFloat32:
      return body(static_cast<float*>(nullptr));
    case ncclFloat64:
      return body(static_cast<double*>(nullptr));
    case ncclBfloat16:
      return body(static_cast<bf16*>(nullptr));
    case ncclFloat8e4m3:
      return body(static_cast<E4m3*>(nullptr));
    case ncclFloat8e5m2:
      return body(static_cast<E5m2*>(nullptr));
    default:
      return;
  }
}

}  // namespace

std::string name_of(Operator op) {
  constexpr const char* names[] = {"sum", "prod", "max", "min", "avg", "premultiplied sum"};
  return names[static_cast<int>(op)];
}

void combine(std::span<std::byte> partial, std::span<const std::byte> addend,
             ncclDataType_t datatype, Operator op) {
  with_type(datatype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    switch (op) {
      case Operator::prod:
        return combine_as<T, Operator::prod>(partial, addend);
      case Operator::max:
        return combine_as<T, Operator::max>(partial, addend);
      case Operator::min:
        return combine_as<T, Operator::min>(partial, addend);
      default:
        return combine_as<T, Operator::sum>(partial, addend);
    }
  });
}

void multiply(std::span<std::byte> values, ncclDataType_t datatype, const Scalar& scalar) {
  with_type(datatype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const T factor = load<T>(scalar.data());
    for (std::size_t at = 0; at < values.size(); at += sizeof(T)) {
      store(&values[at], step<T, Operator::prod>(load<T>(&values[at]), factor));
    }
  });
}

void divide(std::span<std::byte> values, ncclDataType_t datatype, int ranks) {
  with_type(datatype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    if constexpr (is_integer<T>) {
      // In 64 bits, since 200 ranks do not fit an int8. A sum of unsigned 64 bits is no int64.
      using Word = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;
      for (std::size_t at = 0; at < values.size(); at += sizeof(T)) {
        store(&values[at],
              static_cast<T>(static_cast<Word>(load<T>(&values[at])) / static_cast<Word>(ranks)));
      }
    }
  });
}

Scalar reciprocal(int ranks, ncclDataType_t datatype) {
  Scalar scalar{};
  with_type(datatype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    if constexpr (!is_integer<T>) {
      using Type = typename Wide<T>::Type;
      store(scalar.data(), Wide<T>::to(static_cast<Type>(1) / static_cast<Type>(ranks)));
    }
  });
  return scalar;
}

}  // namespace lockstep::nccl
