// How the elements of a tensor lie in memory when a rank passes it.
//
// The contract knows elements and nothing of memory: whichever layout a rank's tensor has, the
// answer is the same, and layouts are no part of what ranks must agree on. Libraries get it wrong
// all the same, by moving a view's storage in place of its elements.
//
// The tensors of reference/ are dense, always; a part of a larger block is all that they can be. A
// backend whose own tensors can be strided views shows the kit how to make one (`view` of
// HostTransfer, lockstep/kit/subject.hpp). For the others a strided tensor of a case is read
// through its strides beforehand (Tensor::from_strided) and passed like any other.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include <lockstep/tensor.hpp>

namespace lockstep::kit {

enum class MemoryLayout : std::uint8_t {
  dense,    // a block of its own, row-major
  slice,    // row-major, in the middle of a block that is longer at either end
  strided,  // the leading axis runs fastest, and there is a gap before every element: a transposed
            // tensor of which every other entry is taken
};
// "slice".
std::string_view name(MemoryLayout layout);

// Where the elements of a view are in a block of one axis: element (i, j, ...) is entry
// origin + i * strides[0] + j * strides[1] + ...
struct StridedView {
  Shape shape;
  std::vector<std::int64_t> strides;  // one per axis, in elements
  std::int64_t origin = 0;
};

struct Laid {
  Tensor block;  // what is not part of the view has all bits set: NaN, -1, 255
  StridedView view;
};
// A tensor's elements in that layout.
Laid laid_out(const Tensor& x, MemoryLayout layout);

}  // namespace lockstep::kit
