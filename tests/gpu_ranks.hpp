// Ranks with a simulated device each, for tests of gpu/.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include <lockstep/gpu/communicator.hpp>
#include <lockstep/sim/world.hpp>

#include "filled.hpp"

namespace lockstep::testing {

using Counts = std::vector<std::int64_t>;

// Far beyond what any call here takes, so that a test that would hang fails instead.
inline constexpr std::chrono::seconds patient{30};

inline gpu::Options with_rule(SumRule rule) {
  gpu::Options options;
  options.sum_rule = rule;
  options.timeout = patient;
  return options;
}

// Runs body(communicator) on every rank of a new world, rank r on device r and on a stream of its
// own, and returns what the ranks returned.
template <class Body>
auto on_devices(int ranks, gpu::Options options, Body body) {
  if (!options.timeout) options.timeout = patient;
  sim::World world(ranks, {.sum_rule = SumRule::exact, .timeout = patient});
  return world.run([&](sim::Communicator host) {
    const gpu::Stream stream(host.rank());
    return body(gpu::Communicator(std::move(host), stream, options));
  });
}

inline gpu::FloatTensor up(const gpu::Communicator& c, const FloatTensor& x) {
  return gpu::FloatTensor::upload(x, c.stream());
}
inline gpu::IntTensor up(const gpu::Communicator& c, const IntTensor& x) {
  return gpu::IntTensor::upload(x, c.stream());
}

// What the call throws, or "returned".
template <class Error, class Call>
std::string told(Call&& call) {
  try {
    call();
    return "returned";
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace lockstep::testing
