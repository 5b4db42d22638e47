// The size of a row, also where there is none.
#pragma once

#include <cstdint>

#include <lockstep/dtype.hpp>
#include <lockstep/shape.hpp>

namespace lockstep {

// Bytes of one row of a tensor of this dtype and shape, which must have a leading axis. Tensor's
// own row_bytes() is 0 when the tensor has no rows, and a rank without rows may still receive some.
// 0 when a row would be beyond 2^63-1 bytes: then no tensor of these trailing axes has any.
inline std::int64_t row_bytes(DType dtype, const Shape& shape) {
  const auto elements = Shape::product(shape.trailing());
  if (!elements) return 0;
  return checked_multiply(*elements, size_of(dtype)).value_or(0);
}

}  // namespace lockstep
