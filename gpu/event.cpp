#include "event.hpp"

#include "check.hpp"

namespace lockstep::gpu {

Event::~Event() {
  if (event_ != nullptr) cudaEventDestroy(event_);
}

void Event::record(const Stream& stream) {
  const OnDevice here(stream.device());
  if (event_ == nullptr) {
    check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  }
  check(cudaEventRecord(event_, stream.get()), "cudaEventRecord");
}

void Event::hold(const Stream& stream) const {
  const OnDevice here(stream.device());
  check(cudaStreamWaitEvent(stream.get(), event_, 0), "cudaStreamWaitEvent");
}

cudaError_t Event::state() const {
  return event_ == nullptr ? cudaSuccess : cudaEventQuery(event_);
}

}  // namespace lockstep::gpu
