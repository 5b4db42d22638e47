#include <lockstep/gpu/differentiation.hpp>

#include <algorithm>
#include <string>
#include <vector>

#include <lockstep/error.hpp>

#include "check.hpp"
#include "elements.hpp"
#include "memory.hpp"

namespace lockstep::differentiation {

using gpu::FloatTensor;

FloatTensor TensorOperations<FloatTensor>::add(const FloatTensor& a, const FloatTensor& b) {
  FloatTensor sum = FloatTensor::uninitialized(a.dtype(), a.shape(), a.stream());
  const gpu::OnDevice here(a.device());
  const gpu::Borrow borrowed(b, a.stream());
  gpu::enqueue(
      gpu::Fold{SumRule::rank_order,
                a.dtype(),
                {.own = a.data(), .own_rank = 0, .blocks = b.data(), .stride = 0, .count = 2},
                a.elements(),
                sum.mutable_data()},
      a.stream().get());
  return sum;
}

FloatTensor TensorOperations<FloatTensor>::divide(const FloatTensor& x, std::int64_t divisor) {
  FloatTensor result = FloatTensor::uninitialized(x.dtype(), x.shape(), x.stream());
  const gpu::OnDevice here(x.device());
  gpu::enqueue(gpu::Divide{x.dtype(), x.data(), divisor, x.elements(), result.mutable_data()},
               x.stream().get());
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
  // Moving an axis swaps it with all those that it passes, taken as one.
  std::vector<std::int64_t> lengths(x.shape().axes().begin(), x.shape().axes().end());
  const auto product = [&](std::size_t begin, std::size_t end) {
    std::int64_t all = 1;
    for (std::size_t axis = begin; axis < end; ++axis) all *= x.shape()[axis];
    return all;
  };
  gpu::SwapAxes swap{};
  if (x.elements() > 0) {  // or the other axes may be of any length
    const std::size_t low = std::min(from, to);
    const std::size_t high = std::max(from, to);
    swap.outer = product(0, low);
    swap.left = from < to ? x.shape()[from] : product(low, high);
    swap.right = from < to ? product(low + 1, high + 1) : x.shape()[from];
    swap.inner = product(high + 1, axes);
  }
  const std::int64_t moved = lengths[from];
  lengths.erase(lengths.begin() + static_cast<std::ptrdiff_t>(from));
  lengths.insert(lengths.begin() + static_cast<std::ptrdiff_t>(to), moved);

  FloatTensor result = FloatTensor::uninitialized(
      x.dtype(), Shape(std::span<const std::int64_t>(lengths)), x.stream());
  const gpu::OnDevice here(x.device());
  swap.element_bytes = size_of(x.dtype());
  swap.x = x.data();
  swap.out = result.mutable_data();
  gpu::enqueue(swap, x.stream().get());
  return result;
}

}  // namespace lockstep::differentiation
