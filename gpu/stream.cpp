#include <lockstep/gpu/stream.hpp>

#include <lockstep/gpu/error.hpp>

#include "check.hpp"
#include "event.hpp"
#include "stream_state.hpp"

namespace lockstep::gpu {

StreamState::~StreamState() {
  if (owned) cudaStreamDestroy(stream);  // returns at once; what is enqueued still runs
}

void StreamState::add_guard(std::weak_ptr<Guard> guard) {
  std::lock_guard lock(mutex_);
  std::erase_if(guards_, [](const auto& weak) { return weak.expired(); });
  guards_.push_back(std::move(guard));
}

std::vector<std::shared_ptr<Guard>> StreamState::guards() {
  std::vector<std::shared_ptr<Guard>> living;
  std::lock_guard lock(mutex_);
  for (const std::weak_ptr<Guard>& weak : guards_) {
    if (std::shared_ptr<Guard> guard = weak.lock()) living.push_back(std::move(guard));
  }
  return living;
}

Stream::Stream(int device) {
  const OnDevice here(device);
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  state_ = std::make_shared<StreamState>(device, stream, true);
}

Stream Stream::wrap(int device, CUstream_st* stream) {
  return Stream(std::make_shared<StreamState>(device, stream, false));
}

int Stream::device() const {
  return state_->device;
}
CUstream_st* Stream::get() const {
  return state_->stream;
}

void Stream::synchronize() const {
  const OnDevice here(device());
  const std::vector<std::shared_ptr<Guard>> guards = state_->guards();
  if (guards.empty()) {
    check(cudaStreamSynchronize(get()), "cudaStreamSynchronize");
    return;
  }
  for (Pace pace;; pace.pause()) {
    const cudaError_t status = cudaStreamQuery(get());
    if (status == cudaSuccess) return;
    for (const std::shared_ptr<Guard>& guard : guards) guard->look_after(pace);
    if (status != cudaErrorNotReady) check(status, "cudaStreamQuery");
  }
}

void Stream::wait_for(const Stream& other) const {
  if (*this == other) return;
  Event done;
  done.record(other);
  done.hold(*this);
}

int device_count() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  int driver = 0;
  if (status == cudaErrorInsufficientDriver && cudaDriverGetVersion(&driver) == cudaSuccess &&
      driver == 0) {
    cudaGetLastError();
    throw DeviceError("there is no NVIDIA driver");
  }
  if (status != cudaErrorNoDevice) check(status, "no device can be used");
  cudaGetLastError();
  if (count == 0) throw DeviceError("there is no device");
  return count;
}

}  // namespace lockstep::gpu
