// Shared, reference-counted memory for tensor elements.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace lockstep {

// A handle on a block of bytes that several tensors may share. The last handle returns the block to
// a recycling pool: on large tensors the page faults of fresh memory cost more than the copy into
// it, so blocks that were touched once are kept (up to a bound) and handed out again.
//
// Thread-safe in the usual way of shared pointers: different handles on one block may be used from
// different threads. A block's bytes are written only while a single handle exists.
class Storage {
 public:
  Storage() = default;  // no bytes, no block
  Storage(const Storage& other) noexcept : block_(other.block_) {
    if (block_ != nullptr) block_->handles.fetch_add(1, std::memory_order_relaxed);
  }
  Storage(Storage&& other) noexcept : block_(std::exchange(other.block_, nullptr)) {}
  Storage& operator=(Storage other) noexcept {
    std::swap(block_, other.block_);
    return *this;
  }
  ~Storage() {
    if (block_ != nullptr && block_->handles.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      give_back(block_);
    }
  }

  // A block of at least `bytes` bytes, uninitialized, aligned to a cache line (64 bytes). Throws
  // std::bad_alloc when there is not enough memory.
  static Storage allocate(std::int64_t bytes);

  std::byte* data() const {
    return block_ == nullptr ? nullptr : reinterpret_cast<std::byte*>(block_ + 1);
  }
  // True when this is the only handle, so that writing is seen by nobody else.
  bool unique() const {
    // Acquire: what another thread did with the block before it let go happened before our writes.
    return block_ == nullptr || block_->handles.load(std::memory_order_acquire) == 1;
  }

 private:
  // A block is this header followed by its bytes; the header fills one cache line, so the bytes
  // start on the next.
  struct alignas(64) Block {
    std::atomic<std::int64_t> handles{1};
    std::int64_t capacity = 0;  // bytes
    void* memory = nullptr;     // what the C library gave
  };
  static void give_back(Block* block) noexcept;
  friend struct BlockPool;
  explicit Storage(Block* block) : block_(block) {}
  Block* block_ = nullptr;
};

// Gives every block that the pool keeps back to the system. For programs that have finished with
// large tensors; never needed for correctness.
void release_pooled_storage();

}  // namespace lockstep
