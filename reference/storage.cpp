#ifdef __linux__
#include <sys/mman.h>
#endif

#include <array>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <mutex>
#include <new>
#include <vector>

#include <lockstep/storage.hpp>

namespace lockstep {

// Large blocks by size class. Classes are spaced at four to an octave, so that a block wastes at
// most a quarter and one freed by a tensor fits the next tensor of about that size.
struct BlockPool {
  using Block = Storage::Block;

  // Below this the C library's own caches are fast and free of page faults.
  static constexpr std::int64_t smallest_pooled = 64 * 1024;
  // What the pool keeps at most. Enough for the working set of a program that moves gigabytes;
  // bounded, so that one huge collective does not hold its memory for the rest of the process.
  static constexpr std::int64_t most_kept = std::int64_t{1} << 30;
  static constexpr std::size_t classes = 64 * 4;
  // From a few huge pages on, those are asked for: fewer page faults, and fewer misses in finding
  // pages.
  static constexpr std::size_t huge_page = std::size_t{2} << 20;
  static constexpr std::int64_t smallest_huge = 4 * std::int64_t{huge_page};

  std::mutex mutex;
  std::array<std::vector<Block*>, classes> free;
  std::int64_t kept = 0;

  // Never destroyed: tensors with static lifetime may outlive every other static object.
  static BlockPool& instance() {
    static BlockPool* pool = new BlockPool;
    return *pool;
  }

  // The class of `bytes` and the capacity of its blocks.
  static std::pair<std::size_t, std::int64_t> size_class(std::int64_t bytes) {
    const int octave = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(bytes - 1))) - 1;
    const std::int64_t quarter = std::int64_t{1} << (octave - 2);
    const std::int64_t quarters = (bytes + quarter - 1) / quarter;  // 5..8 of the octave below
    return {static_cast<std::size_t>(octave) * 4 + static_cast<std::size_t>(quarters - 5),
            quarters * quarter};
  }

  // A small block is aligned by hand within what malloc gives: the C library keeps a list per
  // thread for malloc, and searches and locks for aligned_alloc.
  static Block* fresh_small(std::int64_t capacity) {
    constexpr std::size_t line = alignof(Block);
    void* memory = std::malloc(line - 1 + sizeof(Block) + static_cast<std::size_t>(capacity));
    if (memory == nullptr) throw std::bad_alloc();
    const auto address = reinterpret_cast<std::uintptr_t>(memory);
    Block* block = new (reinterpret_cast<void*>((address + line - 1) / line * line)) Block;
    block->capacity = capacity;
    block->memory = memory;
    return block;
  }

  static Block* fresh(std::int64_t capacity) {
    const std::size_t alignment = capacity >= smallest_huge ? huge_page : 4096;
    if (capacity > INT64_MAX - std::int64_t{2 * huge_page}) throw std::bad_alloc();
    const std::size_t used = sizeof(Block) + static_cast<std::size_t>(capacity);
    void* memory = std::aligned_alloc(alignment, (used + alignment - 1) / alignment * alignment);
    if (memory == nullptr) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
    // Not for the last, incomplete one, of which little might be used. Where the kernel has none to
    // give, or does not want to, ordinary pages do.
    if (capacity >= smallest_huge) ::madvise(memory, used / huge_page * huge_page, MADV_HUGEPAGE);
#endif
    Block* block = new (memory) Block;
    block->capacity = capacity;
    block->memory = memory;
    return block;
  }

  static Block* take(std::int64_t bytes) {
    if (bytes < smallest_pooled) return fresh_small(bytes);
    if (bytes > (std::int64_t{1} << 60)) throw std::bad_alloc();
    const auto [index, capacity] = size_class(bytes);
    BlockPool& pool = instance();
    {
      std::lock_guard lock(pool.mutex);
      std::vector<Block*>& shelf = pool.free[index];
      if (!shelf.empty()) {
        Block* block = shelf.back();
        shelf.pop_back();
        pool.kept -= block->capacity;
        block->handles.store(1, std::memory_order_relaxed);
        return block;
      }
    }
    return fresh(capacity);
  }

  static void give_back(Block* block) {
    if (block->capacity >= smallest_pooled) {
      BlockPool& pool = instance();
      std::lock_guard lock(pool.mutex);
      if (pool.kept + block->capacity <= most_kept) {
        pool.free[size_class(block->capacity).first].push_back(block);
        pool.kept += block->capacity;
        return;
      }
    }
    destroy(block);
  }

  static void destroy(Block* block) {
    void* memory = block->memory;
    block->~Block();
    std::free(memory);
  }
};

void Storage::give_back(Block* block) noexcept {
  BlockPool::give_back(block);
}

Storage Storage::allocate(std::int64_t bytes) {
  return bytes == 0 ? Storage() : Storage(BlockPool::take(bytes));
}

void release_pooled_storage() {
  BlockPool& pool = BlockPool::instance();
  std::lock_guard lock(pool.mutex);
  for (std::vector<BlockPool::Block*>& shelf : pool.free) {
    for (BlockPool::Block* block : shelf) BlockPool::destroy(block);
    shelf.clear();
  }
  pool.kept = 0;
}

}  // namespace lockstep
