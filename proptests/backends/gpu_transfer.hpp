// Host tensors to a GPU communicator's and back.
#pragma once

#include <lockstep/gpu/communicator.hpp>
#include <lockstep/gpu/differentiation.hpp>
#include <lockstep/kit/subject.hpp>

namespace lockstep::kit {

template <>
struct HostTransfer<gpu::Communicator> {
  static gpu::FloatTensor upload(gpu::Communicator& c, const FloatTensor& x) {
    return gpu::FloatTensor::upload(x, c.stream());
  }
  static gpu::IntTensor upload(gpu::Communicator& c, const IntTensor& x) {
    return gpu::IntTensor::upload(x, c.stream());
  }
  static FloatTensor download(gpu::Communicator&, const gpu::FloatTensor& x) {
    return x.download();
  }
  static IntTensor download(gpu::Communicator&, const gpu::IntTensor& x) { return x.download(); }
};

}  // namespace lockstep::kit
