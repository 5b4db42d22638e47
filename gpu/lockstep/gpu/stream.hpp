// CUDA streams as tensors and communicators share them.
#pragma once

#include <memory>

struct CUstream_st;  // *cudaStream_t

namespace lockstep::gpu {

struct StreamState;

// A handle on a stream of one device. Copies are the same stream; any thread may use one. Work
// enqueued on a stream runs in order; see docs/gpu.md for what is enqueued where.
class Stream {
 public:
  // A new stream on device `device`, which does not wait for the default stream. Throws DeviceError
  // when there is no such device.
  explicit Stream(int device);
  // A stream of the caller's own, which must exist for as long as any handle, tensor or
  // communicator on it. A null pointer is the device's default stream.
  static Stream wrap(int device, CUstream_st* stream);

  int device() const;
  CUstream_st* get() const;

  // Waits until all that has been enqueued so far has run. While a communicator has work there, it
  // also looks after that communicator: where that work can never be completed (a lost peer, an
  // error of NCCL, the time limit) it is aborted, and this throws the TransportError. Throws
  // DeviceError for what CUDA reports.
  void synchronize() const;

  // What is enqueued here from now on runs after all that has been enqueued on `other` so far.
  void wait_for(const Stream& other) const;

  friend bool operator==(const Stream& a, const Stream& b) { return a.state_ == b.state_; }

  // For the other parts of gpu/.
  StreamState& state() const { return *state_; }

 private:
  explicit Stream(std::shared_ptr<StreamState> state) : state_(std::move(state)) {}

  std::shared_ptr<StreamState> state_;
};

// How many devices CUDA offers. Throws DeviceError, with the reason, where it offers none.
int device_count();

}  // namespace lockstep::gpu
