// A moment in the work of a stream.
#pragma once

#include <cuda_runtime_api.h>

#include <utility>

#include <lockstep/gpu/stream.hpp>

namespace lockstep::gpu {

// Movable; makes its CUDA event when it is first recorded.
class Event {
 public:
  Event() = default;
  Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  Event& operator=(Event&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }
  ~Event();

  // The moment when all that has been enqueued on `stream` so far has run.
  void record(const Stream& stream);
  // What is enqueued on `stream` from now on waits for the moment.
  void hold(const Stream& stream) const;
  // cudaSuccess when the moment has come, cudaErrorNotReady while it has not, or the device's
  // error.
  cudaError_t state() const;

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace lockstep::gpu
