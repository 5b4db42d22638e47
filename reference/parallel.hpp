// Loops over large tensors, shared among the machine's cores by oneTBB.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#if defined(LOCKSTEP_THREAD_SANITIZER)
#include <atomic>
#include <thread>
#else
#include <tbb/blocked_range.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>
#endif

namespace lockstep {

// Below this many bytes of work, waking another thread costs more than it saves.
inline constexpr std::int64_t smallest_parallel_bytes = 256 * 1024;

// Calls work(begin, end) for parts that cover [0, count) once; items cost about `bytes_per_item`
// bytes of memory traffic each. Parts are about `part_bytes` large.
//
// Runs isolated: a thread that waits here for the last part never picks up another rank's work,
// which could be a call that waits for this very rank.
template <class Work>
void for_parts(std::int64_t count, std::int64_t bytes_per_item, std::int64_t part_bytes,
               const Work& work) {
  if (count == 0) return;
  if (count < smallest_parallel_bytes / bytes_per_item) return work(std::int64_t{0}, count);
  const std::int64_t grain = part_bytes / bytes_per_item > 0 ? part_bytes / bytes_per_item : 1;
#if defined(LOCKSTEP_THREAD_SANITIZER)
  // oneTBB as systems package it is not built for ThreadSanitizer, which then takes its every
  // handover for a race. Plain threads let it check what matters here: the work.
  std::atomic<std::int64_t> next{0};
  const auto take_parts = [&] {
    for (std::int64_t at; (at = next.fetch_add(grain)) < count;) {
      work(at, at + grain < count ? at + grain : count);
    }
  };
  std::thread helper(take_parts);
  take_parts();
  helper.join();
#else
  tbb::this_task_arena::isolate([&] {
    tbb::parallel_for(
        tbb::blocked_range<std::int64_t>(0, count, static_cast<std::size_t>(grain)),
        [&](const tbb::blocked_range<std::int64_t>& part) { work(part.begin(), part.end()); });
  });
#endif
}

// One contiguous piece of memory to copy.
struct Copy {
  std::byte* to;
  const std::byte* from;
  std::int64_t bytes;
};

// Carries out all copies, which overlap nowhere.
void run_copies(std::span<const Copy> copies);

}  // namespace lockstep
