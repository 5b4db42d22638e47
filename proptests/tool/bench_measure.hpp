// How a benchmark measures: the same for Lockstep's backends and for the libraries that it is
// compared with (bench/), so that they differ in nothing but the collective.
//
// Calls go back to back, K of them between two looks at the clock; K is chosen so that they take a
// fixed time, and finding it is the warm-up. A run is the time of its slowest rank, over K. Every
// result is read on every rank.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <lockstep/dtype.hpp>

namespace lockstep::bench {

// What the ranks pass: random numbers that differ on every rank and in every element.
enum class Data : std::uint8_t {
  normal,       // floats of the standard normal distribution
  adversarial,  // floats with exponents spread evenly over the dtype, whose sums stay finite
};

struct Method {
  int runs = 5;
  double seconds = 0.2;  // of one run, about
  Data data = Data::normal;
};

// Fills `elements` with random values of `dtype`; integers get random bits in any case.
void fill(DType dtype, std::span<std::byte> elements, Data data, int rank, int ranks);

// Reads some values spread evenly over the result, so that computing it cannot be left out or put
// off. Few, so that large results are not measured by the reading.
inline void read_result(std::span<const std::byte> result) {
  constexpr std::size_t reads = 64;
  [[maybe_unused]] static thread_local volatile unsigned char sink;
  if (result.empty()) return;
  unsigned char all = 0;
  for (std::size_t i = 0; i < reads; ++i) {
    all = static_cast<unsigned char>(
        all ^ std::to_integer<unsigned char>(result[(result.size() - 1) * i / (reads - 1)]));
  }
  sink = all;
}

// The seconds of one call, once per run, the same on every rank. `call` makes one call and reads
// its result; `slowest` is entered by every rank and returns the largest of what they pass.
template <class Call, class Slowest>
std::vector<double> measure(const Method& method, const Call& call, const Slowest& slowest) {
  using Clock = std::chrono::steady_clock;
  const auto time = [&](std::int64_t calls) {
    slowest(0.0);  // everybody begins at about the same time
    const Clock::time_point begin = Clock::now();
    for (std::int64_t i = 0; i < calls; ++i) call();
    return slowest(std::chrono::duration<double>(Clock::now() - begin).count());
  };
  std::int64_t calls = 1;
  for (;;) {
    const double taken = time(calls);
    if (taken >= method.seconds) break;
    // Grows tenfold at most, since the first calls say little about the later ones.
    const double factor = std::min(10.0, 1.1 * method.seconds / std::max(taken, 1e-9));
    calls = std::max(calls + 1, static_cast<std::int64_t>(static_cast<double>(calls) * factor));
  }
  std::vector<double> seconds;
  for (int run = 0; run < method.runs; ++run) {
    seconds.push_back(time(calls) / static_cast<double>(calls));
  }
  return seconds;
}

}  // namespace lockstep::bench
