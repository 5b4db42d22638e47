// What tests say about tensors.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include <lockstep/tensor.hpp>

namespace lockstep::testing {

template <Element T>
using TensorFor = std::conditional_t<is_floating(*dtype_of<T>), FloatTensor, IntTensor>;

// tensor<float>({2, 3}, {1, 2, 3, 4, 5, 6})
template <Element T>
TensorFor<T> tensor(const Shape& shape, const std::vector<T>& values) {
  return TensorFor<T>::template of<T>(shape, std::span<const T>(values));
}

inline ::testing::AssertionResult same_tensor(const char*, const char*, const Tensor& expected,
                                              const Tensor& actual) {
  if (same_bits(expected, actual)) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "expected " << expected << "\nreceived " << actual;
}

}  // namespace lockstep::testing

// Equal dtype, shape and bits.
#define EXPECT_TENSOR(expected, actual) \
  EXPECT_PRED_FORMAT2(::lockstep::testing::same_tensor, expected, actual)

// `statement` throws `Type`, and its message contains `fragment`.
#define EXPECT_ERROR(statement, Type, fragment)                                       \
  do {                                                                                \
    try {                                                                             \
      statement;                                                                      \
      ADD_FAILURE() << #statement " threw nothing";                                   \
    } catch (const Type& error) {                                                     \
      EXPECT_NE(std::string(error.what()).find(fragment), std::string::npos)          \
          << "the message is: " << error.what();                                      \
    }                                                                                 \
  } while (false)
