// The little that reverse passes ask of a backend's floating tensors.
//
// A backend whose tensors are FloatTensor needs nothing; another one specializes TensorOperations
// for its own type.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>

#include <lockstep/dtype.hpp>
#include <lockstep/shape.hpp>
#include <lockstep/tensor.hpp>

namespace lockstep::differentiation {

// All of a tensor but its elements.
struct TensorType {
  DType dtype;
  Shape shape;

  friend bool operator==(const TensorType&, const TensorType&) = default;
};
// "bf16 [2, 3]"
std::string to_string(const TensorType& type);

template <class T>
struct TensorOperations;

template <>
struct TensorOperations<FloatTensor> {
  static TensorType type(const FloatTensor& x) { return {x.dtype(), x.shape()}; }

  // +0.0 in every element, whatever `x` holds.
  static FloatTensor zeros_like(const FloatTensor& x) {
    return FloatTensor::zeros(x.dtype(), x.shape());
  }

  // Elementwise, rounded once to the dtype. Both have the same type.
  static FloatTensor add(const FloatTensor& a, const FloatTensor& b);

  // For lockstep/differentiation/derived.hpp.

  // Every element over a divisor of 1 to 2^29, rounded once to the dtype.
  static FloatTensor divide(const FloatTensor& x, std::int64_t divisor);
  // The same elements with axis `from` moved to position `to`, the others keeping their order:
  // moving axis 2 of [a, b, c, d] to position 0 gives [c, a, b, d]. Throws InvalidArgument for an
  // axis that is not there.
  static FloatTensor move_axis(const FloatTensor& x, std::size_t from, std::size_t to);
};

template <class T>
concept DifferentiableTensor = std::copyable<T> && requires(const T& x) {
  { TensorOperations<T>::type(x) } -> std::same_as<TensorType>;
  { TensorOperations<T>::zeros_like(x) } -> std::same_as<T>;
  { TensorOperations<T>::add(x, x) } -> std::same_as<T>;
};

}  // namespace lockstep::differentiation
