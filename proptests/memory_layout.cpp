#include <algorithm>

#include <lockstep/kit/memory_layout.hpp>

namespace lockstep::kit {
namespace {

// The view, and the block without its elements.
Laid empty_block(const Tensor& x, MemoryLayout layout) {
  const Shape& shape = x.shape();
  const bool strided = layout == MemoryLayout::strided;
  Laid laid;
  laid.view = {shape, std::vector<std::int64_t>(shape.size()), 0};
  std::int64_t step = strided ? 2 : 1;  // from one element to its neighbour
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const std::size_t axis = strided ? i : shape.size() - 1 - i;
    laid.view.strides[axis] = step;
    // The axes of an empty tensor may multiply to more than any number holds.
    if (x.elements() > 0) step *= shape[axis];
  }
  std::int64_t length = strided ? 2 * x.elements() : x.elements();
  if (layout == MemoryLayout::slice) length += 2;
  if (layout != MemoryLayout::dense) laid.view.origin = 1;
  laid.block = Tensor::uninitialized(x.dtype(), Shape{length});
  std::ranges::fill(laid.block.mutable_bytes(), std::byte{0xff});
  return laid;
}

}  // namespace

std::string_view name(MemoryLayout layout) {
  constexpr std::string_view names[] = {"dense", "slice", "strided"};
  return names[static_cast<std::size_t>(layout)];
}

Laid laid_out(const Tensor& x, MemoryLayout layout) {
  Laid laid = empty_block(x, layout);
  if (x.elements() == 0) return laid;
  const StridedView& view = laid.view;
  const auto size = static_cast<std::size_t>(size_of(x.dtype()));
  std::byte* block = laid.block.mutable_bytes().data();
  // The index of the element, the last axis first.
  std::vector<std::int64_t> index(view.shape.size(), 0);
  std::int64_t entry = view.origin;
  for (std::int64_t i = 0; i < x.elements(); ++i) {
    std::copy_n(x.data() + static_cast<std::size_t>(i) * size, size,
                block + static_cast<std::size_t>(entry) * size);
    for (std::size_t axis = index.size(); axis-- > 0;) {
      entry += view.strides[axis];
      if (++index[axis] < view.shape[axis]) break;
      entry -= index[axis] * view.strides[axis];
      index[axis] = 0;
    }
  }
  return laid;
}

}  // namespace lockstep::kit
