// Shared, reference-counted memory for tensor elements.
#pragma once

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
  Storage(const Storage& other) noexcept;
  Storage(Storage&& other) noexcept : block_(std::exchange(other.block_, nullptr)) {}
  Storage& operator=(Storage other) noexcept {
    std::swap(block_, other.block_);
    return *this;
  }
  ~Storage();

  // A block of at least `bytes` bytes, uninitialized, aligned to a cache line (64 bytes). Throws
  // std::bad_alloc when there is not enough memory.
  static Storage allocate(std::int64_t bytes);

  std::byte* data() const;
  // True when this is the only handle, so that writing is seen by nobody else.
  bool unique() const;

 private:
  struct Block;
  friend struct BlockPool;
  explicit Storage(Block* block) : block_(block) {}
  Block* block_ = nullptr;
};

// Gives every block that the pool keeps back to the system. For programs that have finished with
// large tensors; never needed for correctness.
void release_pooled_storage();

}  // namespace lockstep
