// Lets lockstep/differentiation/ work on tensors that lie on a device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <lockstep/differentiation/host_integers.hpp>
#include <lockstep/differentiation/tensor_operations.hpp>
#include <lockstep/gpu/communicator.hpp>
#include <lockstep/gpu/tensor.hpp>

namespace lockstep::differentiation {

// Everything is enqueued on the stream of `x` (or `a`).
template <>
struct TensorOperations<gpu::FloatTensor> {
  static TensorType type(const gpu::FloatTensor& x) { return {x.dtype(), x.shape()}; }
  static gpu::FloatTensor zeros_like(const gpu::FloatTensor& x) {
    return gpu::FloatTensor::zeros(x.dtype(), x.shape(), x.stream());
  }
  static gpu::FloatTensor add(const gpu::FloatTensor& a, const gpu::FloatTensor& b);
  static gpu::FloatTensor divide(const gpu::FloatTensor& x, std::int64_t divisor);
  static gpu::FloatTensor move_axis(const gpu::FloatTensor& x, std::size_t from, std::size_t to);
};

// They travel on the control plane.
template <>
struct HostIntegers<gpu::Communicator> {
  static std::vector<std::vector<std::int64_t>> gather(const gpu::Communicator& c,
                                                       std::span<const std::int64_t> mine) {
    return c.gather_integers(mine);
  }
};

}  // namespace lockstep::differentiation
