// What gpu/check-on-device runs on a machine with a GPU, part by part, each in a process of its
// own:
//
//   device-check describe | sums ELEMENTS | throughput ELEMENTS | overhead | ranks N CASES
//
// Exit status: 0 it holds, 1 it does not, 2 bad usage, 3 something broke, 77 there is no device.

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include <lockstep/gpu/error.hpp>
#include <lockstep/gpu/stream.hpp>

#include "measure.hpp"
#include "shared_device.hpp"

namespace {

int run(int argc, char** argv) {
  using namespace lockstep::device_check;
  const std::string part = argc > 1 ? argv[1] : "";
  const auto number = [&](int at) { return argc > at ? std::atol(argv[at]) : 0; };
  // Ranks are forked, and CUDA does not survive that: they find out by themselves.
  if (part == "ranks" && number(2) > 0 && number(3) > 0) {
    return check_ranks(static_cast<int>(number(2)), static_cast<int>(number(3)));
  }
  try {
    lockstep::gpu::device_count();
  } catch (const lockstep::gpu::DeviceError& error) {
    std::printf("%s\n", error.what());
    return 77;
  }
  if (part == "describe") return describe_device();
  if (part == "sums" && number(2) > 0) return check_sums(number(2));
  if (part == "throughput" && number(2) > 0) return measure_sums(number(2));
  if (part == "overhead") return measure_overhead();
  std::fprintf(stderr,
               "usage: device-check describe | sums ELEMENTS | throughput ELEMENTS | overhead | "
               "ranks N CASES\n");
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 3;
  }
}
