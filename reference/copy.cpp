#include <algorithm>
#include <cstring>
#include <vector>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "parallel.hpp"

namespace lockstep {
namespace {

// From this size on, what is written will not be found in a cache by whoever reads it, so fetching
// the destination's lines before overwriting them is wasted: streaming stores save that third of
// the traffic.
constexpr std::int64_t smallest_streamed = 4 * 1024 * 1024;

void copy_streaming(std::byte* to, const std::byte* from, std::int64_t bytes) {
#ifdef __SSE2__
  const std::int64_t head = std::min<std::int64_t>(
      bytes, static_cast<std::int64_t>(-reinterpret_cast<std::intptr_t>(to) & 63));
  std::memcpy(to, from, static_cast<std::size_t>(head));
  std::int64_t at = head;
  for (; at + 64 <= bytes; at += 64) {
    const auto* source = reinterpret_cast<const __m128i*>(from + at);
    auto* destination = reinterpret_cast<__m128i*>(to + at);
    const __m128i a = _mm_loadu_si128(source);
    const __m128i b = _mm_loadu_si128(source + 1);
    const __m128i c = _mm_loadu_si128(source + 2);
    const __m128i d = _mm_loadu_si128(source + 3);
    _mm_stream_si128(destination, a);
    _mm_stream_si128(destination + 1, b);
    _mm_stream_si128(destination + 2, c);
    _mm_stream_si128(destination + 3, d);
  }
  std::memcpy(to + at, from + at, static_cast<std::size_t>(bytes - at));
  // Streaming stores are weakly ordered: without the fence another thread could be told that the
  // copy is done before it can see it.
  _mm_sfence();
#else
  std::memcpy(to, from, static_cast<std::size_t>(bytes));
#endif
}

}  // namespace

void run_copies(std::span<const Copy> copies) {
  std::int64_t total = 0;
  for (const Copy& copy : copies) total += copy.bytes;
  if (total < smallest_parallel_bytes) {
    for (const Copy& copy : copies) {
      if (copy.bytes > 0) std::memcpy(copy.to, copy.from, static_cast<std::size_t>(copy.bytes));
    }
    return;
  }

  // The copies laid end to end are one range of bytes; a part of it begins and ends inside copies.
  std::vector<std::int64_t> starts(copies.size());
  for (std::size_t i = 1; i < copies.size(); ++i) starts[i] = starts[i - 1] + copies[i - 1].bytes;
  constexpr std::int64_t part_bytes = 512 * 1024;
  for_parts(total, 1, part_bytes, [&](std::int64_t begin, std::int64_t end) {
    auto i = static_cast<std::size_t>(std::ranges::upper_bound(starts, begin) - starts.begin()) - 1;
    for (; i < copies.size() && starts[i] < end; ++i) {
      const Copy& copy = copies[i];
      const std::int64_t from = std::max(begin - starts[i], std::int64_t{0});
      const std::int64_t bytes = std::min(end - starts[i], copy.bytes) - from;
      if (bytes <= 0) continue;
      if (total >= smallest_streamed) {
        copy_streaming(copy.to + from, copy.from + from, bytes);
      } else {
        std::memcpy(copy.to + from, copy.from + from, static_cast<std::size_t>(bytes));
      }
    }
  });
}

}  // namespace lockstep
