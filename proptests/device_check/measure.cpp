#include "measure.hpp"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include <lockstep/fold.hpp>
#include <lockstep/gpu/communicator.hpp>
#include <lockstep/sim/world.hpp>

#include "check.hpp"
#include "elements.hpp"

namespace lockstep::device_check {
namespace {

using gpu::check;
using Seconds = std::chrono::duration<double>;

constexpr int addend_count = 8;
constexpr SumRule rules[] = {SumRule::exact, SumRule::rank_order};

// Of any bits: exponents far apart, subnormals, infinities, NaNs; or, where `tame`, of one size.
FloatTensor random_addends(DType dtype, std::int64_t elements, bool tame) {
  FloatTensor x = FloatTensor::uninitialized(dtype, {addend_count, elements});
  std::mt19937_64 random(static_cast<std::uint64_t>(dtype) + 10);
  dispatch(dtype, [&]<class T>(TypeTag<T>) {
    if constexpr (is_floating(*dtype_of<T>)) {
      using Bits = typename FormatOf<T>::Bits;
      // One exponent field for all, or any.
      const Bits keep = tame ? static_cast<Bits>(~FormatOf<T>::infinity) : static_cast<Bits>(-1);
      const Bits one = static_cast<Bits>(Bits{FormatOf<T>::bias} << FormatOf<T>::fraction_bits);
      const Bits set = tame ? one : Bits{0};
      for (T& value : x.template mutable_values<T>()) {
        value = from_bits<T>(static_cast<Bits>((static_cast<Bits>(random()) & keep) | set));
      }
    }
  });
  return x;
}

gpu::DeviceAddends in_rows(const gpu::Tensor& x) {
  return {.own = x.data(),
          .own_rank = 0,
          .blocks = x.data(),
          .stride = x.row_bytes(),
          .count = addend_count};
}

// The shortest of a few runs on the device, in seconds each; `work` enqueues one.
double fastest(const gpu::Stream& stream, const std::function<void()>& work) {
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  check(cudaEventCreate(&begin), "cudaEventCreate");
  check(cudaEventCreate(&end), "cudaEventCreate");
  float best = 1e30F;
  for (int run = 0; run < 8; ++run) {
    check(cudaEventRecord(begin, stream.get()), "cudaEventRecord");
    work();
    check(cudaEventRecord(end, stream.get()), "cudaEventRecord");
    check(cudaEventSynchronize(end), "cudaEventSynchronize");
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin, end), "cudaEventElapsedTime");
    if (run > 1) best = std::min(best, milliseconds);  // the first ones warm up
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return static_cast<double>(best) / 1000;
}

std::string version(int number, int major, int minor) {
  return std::to_string(number / major) + "." + std::to_string(number % major / minor);
}

}  // namespace

int describe_device() {
  const int devices = gpu::device_count();
  int driver = 0, runtime = 0, nccl = 0;
  check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
  ncclGetVersion(&nccl);
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  std::printf("%s, compute capability %d.%d, %.1f GiB, %d device%s\n", properties.name,
              properties.major, properties.minor,
              static_cast<double>(properties.totalGlobalMem) / (1 << 30), devices,
              devices == 1 ? "" : "s");
  std::printf("driver for CUDA %s, runtime %s, NCCL %s.%d, built for NCCL %d.%d.%d\n",
              version(driver, 1000, 10).c_str(), version(runtime, 1000, 10).c_str(),
              version(nccl, 10000, 100).c_str(), nccl % 100, NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH);
  return 0;
}

int check_sums(long elements) {
  const gpu::Stream stream(0);
  std::int64_t compared = 0;
  for (DType dtype : floating_dtypes) {
    for (const bool tame : {true, false}) {
      const FloatTensor host = random_addends(dtype, elements, tame);
      const gpu::FloatTensor x = gpu::FloatTensor::upload(host, stream);
      std::vector<const std::byte*> addends;
      for (int r = 0; r < addend_count; ++r) addends.push_back(host.data() + r * host.row_bytes());
      for (SumRule rule : rules) {
        FloatTensor expected = FloatTensor::uninitialized(dtype, {elements});
        fold(rule, dtype, addends, elements, expected.mutable_bytes().data());
        gpu::FloatTensor sum = gpu::FloatTensor::uninitialized(dtype, {elements}, stream);
        gpu::enqueue(gpu::Fold{rule, dtype, in_rows(x), elements, sum.mutable_data()},
                     stream.get());
        const FloatTensor actual = sum.download();
        compared += elements;
        if (same_bits(expected, actual)) continue;
        const std::int64_t size = size_of(dtype);
        std::int64_t at = 0;
        while (std::equal(expected.data() + at * size, expected.data() + (at + 1) * size,
                          actual.data() + at * size)) {
          ++at;
        }
        std::printf("sums: %s of %s differs from the host at element %ld\n",
                    std::string(name(rule)).c_str(), std::string(name(dtype)).c_str(),
                    static_cast<long>(at));
        return 1;
      }
    }
  }
  std::printf("sums on the device: %.1f million elements have the oracle's bits\n",
              static_cast<double>(compared) / 1e6);
  return 0;
}

int measure_sums(long elements) {
  const gpu::Stream stream(0);
  for (DType dtype : floating_dtypes) {
    const FloatTensor host = random_addends(dtype, elements, true);
    const gpu::FloatTensor x = gpu::FloatTensor::upload(host, stream);
    gpu::FloatTensor sum = gpu::FloatTensor::uninitialized(dtype, {elements}, stream);
    gpu::FloatTensor copy = gpu::FloatTensor::uninitialized(dtype, x.shape(), stream);
    std::byte* to = copy.mutable_data();
    std::byte* out = sum.mutable_data();
    const double copying = fastest(stream, [&] {
      check(cudaMemcpyAsync(to, x.data(), static_cast<std::size_t>(x.size_bytes()),
                            cudaMemcpyDeviceToDevice, stream.get()),
            "cudaMemcpyAsync");
    });
    const double copy_rate = 2 * static_cast<double>(x.size_bytes()) / copying;
    std::string line;
    for (SumRule rule : rules) {
      const double adding = fastest(stream, [&] {
        gpu::enqueue(gpu::Fold{rule, dtype, in_rows(x), elements, out}, stream.get());
      });
      const double rate = static_cast<double>(x.size_bytes() + sum.size_bytes()) / adding;
      char text[80];
      std::snprintf(text, sizeof text, ", %s %.0f GB/s (%.2f of it)",
                    std::string(name(rule)).c_str(), rate / 1e9, rate / copy_rate);
      line += text;
    }
    std::printf("throughput, %s: copy %.0f GB/s%s\n", std::string(name(dtype)).c_str(),
                copy_rate / 1e9, line.c_str());
  }
  return 0;
}

int measure_overhead() {
  const gpu::Stream stream(0);
  const gpu::OnDevice here(0);
  ncclUniqueId id;
  ncclComm_t bare = nullptr;
  if (ncclGetUniqueId(&id) != ncclSuccess || ncclCommInitRank(&bare, 1, id, 0) != ncclSuccess) {
    std::printf("overhead: NCCL makes no communicator\n");
    return 3;
  }
  constexpr int calls = 200;
  const auto per_call = [&](const std::function<void()>& call) {
    double best = 1e30;
    for (int run = 0; run < 5; ++run) {
      const auto begin = std::chrono::steady_clock::now();
      for (int i = 0; i < calls; ++i) call();
      stream.synchronize();
      best = std::min(best, Seconds(std::chrono::steady_clock::now() - begin).count() / calls);
    }
    return best * 1e6;
  };
  for (const bool agreement : {true, false}) {
    gpu::Options options;
    options.agreement = agreement;
    const gpu::Communicator world(sim::make_communicators(1)[0], stream, options);
    const gpu::FloatTensor x = gpu::FloatTensor::zeros(DType::f32, {1024}, stream);
    gpu::FloatTensor y = gpu::FloatTensor::zeros(DType::f32, {1024}, stream);
    std::byte* out = y.mutable_data();
    const double ours = per_call([&] { world.all_gather_float(x); });
    const double theirs =
        per_call([&] { ncclAllGather(x.data(), out, 4096, ncclUint8, bare, stream.get()); });
    std::printf("a call of 4 KiB in a world of one, agreement %s: %.1f us, bare NCCL %.1f us\n",
                agreement ? "on" : "off", ours, theirs);
  }
  ncclCommDestroy(bare);
  return 0;
}

}  // namespace lockstep::device_check
