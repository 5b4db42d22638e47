// Whether what a call was to write into device memory has come.
#pragma once

#include <mutex>
#include <optional>

#include <lockstep/error.hpp>

namespace lockstep::gpu {

// One call's promise. It is kept unless lose() is called, which happens before the stream goes on.
class Delivery {
 public:
  // Throws the error for which it was lost.
  void require() const {
    std::lock_guard lock(mutex_);
    if (error_) throw TransportError(*error_);
  }
  void lose(const TransportError& error) {
    std::lock_guard lock(mutex_);
    error_ = error;
  }

 private:
  mutable std::mutex mutex_;
  std::optional<TransportError> error_;
};

}  // namespace lockstep::gpu
