// Copies and memset: the parts that the functions of the API share.
#pragma once

#include <cstddef>

#include "runtime.hpp"

namespace lockstep::cudart {

// Rows of `width` bytes, `pitch` bytes apart.
struct Block {
  const void* address;
  std::size_t width;
  std::size_t rows = 1;
  std::size_t pitch = width;

  std::size_t span() const { return width == 0 || rows == 0 ? 0 : (rows - 1) * pitch + width; }
};

// Both blocks have the same width and rows. `wait`: as the synchronous functions do, which is not
// always to the end; see copy.cpp.
cudaError_t copy(const Call& call, const devices::StreamRef& stream, const Block& to,
                 const Block& from, cudaMemcpyKind kind, bool wait);
cudaError_t set(const Call& call, const devices::StreamRef& stream, const Block& to, int value,
                bool wait);
// That device memory is where the caller says.
cudaError_t check_peer(const Call& call, const void* address, int device, const char* argument);

}  // namespace lockstep::cudart
