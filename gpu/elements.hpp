// Work on the elements of device tensors. Two files implement it, one for each kind of device: both
// instantiate element_loops.hpp, so that there is one source of what is computed.
#pragma once

#include <cstddef>
#include <cstdint>

#include <lockstep/dtype.hpp>
#include <lockstep/sum_rule.hpp>

struct CUstream_st;

namespace lockstep::gpu {

// The arrays to add, in device memory: array `own_rank` lies at `own`, array r of the others
// `stride` bytes times r after `blocks`. That is how they lie after an exchange, in which a rank
// sends itself nothing.
struct DeviceAddends {
  const std::byte* own;
  std::int64_t own_rank;
  const std::byte* blocks;
  std::int64_t stride;
  std::int64_t count;
};

// out[i] = the sum over r of addend r's element i, for i in [0, elements). A single addend keeps
// its bits. The arithmetic is that of lockstep/exact_sum.hpp and lockstep/rank_order_sum.hpp,
// compiled for the device, and so are the bits.
struct Fold {
  SumRule rule;  // `exact` or `rank_order`
  DType dtype;   // a floating one
  DeviceAddends addends;
  std::int64_t elements;
  std::byte* out;  // overlaps no addend
};

// out[i] = x[i] / divisor, rounded once to the dtype.
struct Divide {
  DType dtype;
  const std::byte* x;
  std::int64_t divisor;  // 1 to 2^29
  std::int64_t elements;
  std::byte* out;
};

// x has the axes [outer, left, right, inner], out has [outer, right, left, inner].
struct SwapAxes {
  std::int64_t element_bytes;  // 2, 4 or 8
  const std::byte* x;
  std::int64_t outer, left, right, inner;
  std::byte* out;
};

// Each enqueues its work on the stream, which belongs to the current device, and returns. Throws
// DeviceError where the device refuses. There may be no elements.
void enqueue(const Fold& work, CUstream_st* stream);
void enqueue(const Divide& work, CUstream_st* stream);
void enqueue(const SwapAxes& work, CUstream_st* stream);

}  // namespace lockstep::gpu
