// Device memory that tensors share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <lockstep/gpu/stream.hpp>

#include "event.hpp"

namespace lockstep::gpu {

class Delivery;

// A block of device memory in the order of its stream: allocated and freed by work on that stream.
// The last handle enqueues the freeing behind all uses, so a block may be let go of while work on
// it is still waiting to run, and whoever gets its bytes next gets them after that work.
class Memory {
 public:
  // Enqueues the allocation of `bytes` bytes (none: a null pointer). Throws DeviceError.
  static std::shared_ptr<Memory> allocate(std::int64_t bytes, const Stream& stream);

  Memory(std::byte* data, Stream stream) : data_(data), stream_(std::move(stream)) {}
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  std::byte* data() const { return data_; }
  const Stream& stream() const { return stream_; }

  // To be called before work on another stream is enqueued that uses the block: orders it behind
  // what the block's own stream has been given so far.
  void lend(const Stream& other) const;
  // To be called after that work was enqueued: the block is freed only after it.
  void give_back(const Stream& other);

  // What is enqueued on the block's own stream from now on waits for all such work.
  void await_borrowers();

  // The call of a communicator that fills the block, if one does.
  std::shared_ptr<const Delivery> delivery;

 private:
  std::byte* const data_;
  const Stream stream_;
  std::mutex mutex_;
  std::vector<std::pair<Stream, Event>> borrowers_;
};

}  // namespace lockstep::gpu
