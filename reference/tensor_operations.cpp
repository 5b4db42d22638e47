#include <lockstep/differentiation/tensor_operations.hpp>

#include <array>
#include <string>
#include <vector>

#include <lockstep/error.hpp>
#include <lockstep/fold.hpp>
#include <lockstep/quotient.hpp>

#include "parallel.hpp"

namespace lockstep::differentiation {
namespace {

constexpr std::int64_t part_bytes = 512 * 1024;

}  // namespace

std::string to_string(const TensorType& type) {
  return std::string(name(type.dtype)) + " " + lockstep::to_string(type.shape);
}

FloatTensor TensorOperations<FloatTensor>::add(const FloatTensor& a, const FloatTensor& b) {
  FloatTensor sum = FloatTensor::uninitialized(a.dtype(), a.shape());
  std::byte* out = sum.mutable_bytes().data();
  const std::int64_t element = size_of(a.dtype());
  for_parts(a.elements(), 3 * element, part_bytes, [&](std::int64_t begin, std::int64_t end) {
    const std::array<const std::byte*, 2> addends = {a.data() + begin * element,
                                                     b.data() + begin * element};
    fold(SumRule::rank_order, a.dtype(), addends, end - begin, out + begin * element);
  });
  return sum;
}

FloatTensor TensorOperations<FloatTensor>::divide(const FloatTensor& x, std::int64_t divisor) {
  FloatTensor result = FloatTensor::uninitialized(x.dtype(), x.shape());
  dispatch(x.dtype(), [&]<class T>(TypeTag<T>) {
    if constexpr (is_floating(*dtype_of<T>)) {
      const T* from = x.values<T>().data();
      T* to = result.mutable_values<T>().data();
      for_parts(x.elements(), 2 * size_of(x.dtype()), part_bytes,
                [&](std::int64_t begin, std::int64_t end) {
                  for (std::int64_t i = begin; i < end; ++i) {
                    to[i] = quotient(from[i], static_cast<double>(divisor));
                  }
                });
    }
  });
  return result;
}

FloatTensor TensorOperations<FloatTensor>::move_axis(const FloatTensor& x, std::size_t from,
                                                     std::size_t to) {
  const std::size_t axes = x.shape().size();
  if (from >= axes || to >= axes) {
    throw InvalidArgument("a tensor of shape " + lockstep::to_string(x.shape()) + " has no axis " +
                          std::to_string(from >= axes ? from : to));
  }
  if (from == to) return x;
  std::vector<std::int64_t> lengths;
  std::vector<std::int64_t> strides(axes, 1);
  for (std::size_t axis = axes; axis-- > 1;) {
    // Not multiplied where a tensor is empty: its other axes may be of any length.
    strides[axis - 1] = x.elements() == 0 ? 0 : strides[axis] * x.shape()[axis];
  }
  for (std::int64_t length : x.shape().axes()) lengths.push_back(length);
  const auto move = [&](std::vector<std::int64_t>& list) {
    const std::int64_t moved = list[from];
    list.erase(list.begin() + static_cast<std::ptrdiff_t>(from));
    list.insert(list.begin() + static_cast<std::ptrdiff_t>(to), moved);
  };
  move(lengths);
  move(strides);
  return FloatTensor::from_strided(x.dtype(), Shape(std::span<const std::int64_t>(lengths)),
                                   strides, x.data());
}

}  // namespace lockstep::differentiation
