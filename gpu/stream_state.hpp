// What the handles on a stream share.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "pace.hpp"

namespace lockstep::gpu {

// Somebody whose work on a stream may never be completed.
class Guard {
 public:
  virtual ~Guard() = default;
  // Called now and then by those who wait for the stream. Throws TransportError when its work there
  // can no longer be completed, having seen to it that the stream goes on.
  virtual void look_after(const Pace& waiting) = 0;
};

struct StreamState {
  StreamState(int its_device, cudaStream_t its_stream, bool is_owned)
      : device(its_device), stream(its_stream), owned(is_owned) {}
  ~StreamState();
  StreamState(const StreamState&) = delete;
  StreamState& operator=(const StreamState&) = delete;

  void add_guard(std::weak_ptr<Guard> guard);
  std::vector<std::shared_ptr<Guard>> guards();

  const int device;
  const cudaStream_t stream;
  const bool owned;

 private:
  std::mutex mutex_;
  std::vector<std::weak_ptr<Guard>> guards_;
};

}  // namespace lockstep::gpu
