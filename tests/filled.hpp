// Tensors whose elements are computed, for tests on data too large to write out.
#pragma once

#include <type_traits>

#include <lockstep/half.hpp>

#include "expect.hpp"

namespace lockstep::testing {

template <Element T>
T element(double value) {
  if constexpr (std::is_same_v<T, f16>)
    return to_f16(value);
  else if constexpr (std::is_same_v<T, bf16>)
    return to_bf16(value);
  else
    return static_cast<T>(value);
}

// The tensor whose element i, counted in row-major order, is value(i).
template <Element T, class Value>
TensorFor<T> filled(const Shape& shape, Value value) {
  auto x = TensorFor<T>::uninitialized(*dtype_of<T>, shape);
  std::int64_t i = 0;
  for (T& one : x.template mutable_values<T>()) one = element<T>(static_cast<double>(value(i++)));
  return x;
}

// first, first + 1, ...
template <Element T>
TensorFor<T> counting(const Shape& shape, std::int64_t first = 0) {
  return filled<T>(shape, [first](std::int64_t i) { return first + i; });
}

}  // namespace lockstep::testing
