#include "copy_bandwidth.hpp"

#ifdef __linux__
#include <sys/mman.h>
#endif

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace lockstep::bench {
namespace {

constexpr std::size_t bytes = std::size_t{128} << 20;  // beyond the last-level cache
constexpr int passes = 9;

// Both pointers aligned to 64 bytes, as is the size.
void copy_streaming(std::byte* to, const std::byte* from, std::size_t size) {
#ifdef __SSE2__
  for (std::size_t at = 0; at < size; at += 64) {
    const auto* source = reinterpret_cast<const __m128i*>(from + at);
    auto* destination = reinterpret_cast<__m128i*>(to + at);
    for (int i = 0; i < 4; ++i) _mm_stream_si128(destination + i, _mm_load_si128(source + i));
  }
  _mm_sfence();
#else
  std::memcpy(to, from, size);
#endif
}

struct Free {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using Buffer = std::unique_ptr<std::byte, Free>;

Buffer touched_buffer() {
  constexpr std::size_t huge_page = std::size_t{2} << 20;  // as the library's own storage asks for
  Buffer buffer(static_cast<std::byte*>(std::aligned_alloc(huge_page, bytes)));
  if (buffer == nullptr) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
  ::madvise(buffer.get(), bytes, MADV_HUGEPAGE);
#endif
  std::memset(buffer.get(), 1, bytes);
  return buffer;
}

}  // namespace

double copy_bandwidth() {
  using Clock = std::chrono::steady_clock;
  const std::size_t threads = std::max(1U, std::thread::hardware_concurrency());
  const std::size_t part = bytes / threads / 64 * 64;
  const Buffer from = touched_buffer();
  const Buffer to = touched_buffer();
  std::vector<double> rates;
  for (int pass = 0; pass < passes; ++pass) {
    // The clock starts when every thread is there to copy.
    std::atomic<std::size_t> ready{0};
    const auto work = [&](std::size_t i) {
      ready.fetch_add(1);
      while (ready.load() < threads) std::this_thread::yield();
      copy_streaming(to.get() + i * part, from.get() + i * part, part);
    };
    std::vector<std::thread> helpers;
    for (std::size_t i = 1; i < threads; ++i) helpers.emplace_back(work, i);
    while (ready.load() + 1 < threads) std::this_thread::yield();
    const Clock::time_point begin = Clock::now();
    work(0);
    for (std::thread& helper : helpers) helper.join();
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    rates.push_back(static_cast<double>(part * threads) / seconds);
  }
  std::ranges::sort(rates);
  return rates[passes / 2];
}

}  // namespace lockstep::bench
