// A host program against the CUDA runtime, with one classic mistake per name on its command line,
// or its corrected twin under the same name with "right-" in front. Compiled and linked like any
// CUDA program; simulated_runtime_test.cpp runs it on simulated devices. A twin checks its results
// and ends with status 1 if they are wrong.

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

namespace {

constexpr int count = 1000;
constexpr std::size_t bytes = count * sizeof(float);

bool right = true;  // this is the twin

// Ends the program at an error that it does not expect.
void must(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::printf("%s: %s\n", what, cudaGetErrorName(error));
  std::exit(3);
}
#define MUST(call) must(call, #call)

void expect(bool held, const char* what) {
  if (held || !right) return;
  std::printf("wrong: %s\n", what);
  std::exit(1);
}

cudaStream_t new_stream(unsigned flags = cudaStreamNonBlocking) {
  cudaStream_t stream = nullptr;
  MUST(cudaStreamCreateWithFlags(&stream, flags));
  return stream;
}

float* device_memory(std::size_t size = bytes) {
  void* memory = nullptr;
  MUST(cudaMalloc(&memory, size));
  return static_cast<float*>(memory);
}

float* pinned_memory() {
  void* memory = nullptr;
  MUST(cudaMallocHost(&memory, bytes));
  for (int i = 0; i < count; ++i) static_cast<float*>(memory)[i] = static_cast<float>(i + 1);
  return static_cast<float*>(memory);
}

// Device memory that holds 1, 2, 3, ..., with nothing pending.
float* numbers() {
  float* const device = device_memory();
  float* const host = pinned_memory();
  cudaStream_t stream = new_stream();
  MUST(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream));
  MUST(cudaStreamSynchronize(stream));
  MUST(cudaStreamDestroy(stream));
  MUST(cudaFreeHost(host));
  return device;
}

void read_early() {
  float* const device = numbers();
  float* const host = pinned_memory();
  std::memset(host, 0, bytes);
  cudaStream_t stream = new_stream();
  MUST(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream));
  if (right) MUST(cudaStreamSynchronize(stream));
  expect(host[41] == 42, "the copied numbers");
  MUST(cudaStreamSynchronize(stream));
}

void read_early_pageable() {
  float* const device = numbers();
  std::vector<float> host(count);
  cudaStream_t stream = new_stream();
  MUST(cudaMemcpyAsync(host.data(), device, bytes, cudaMemcpyDeviceToHost, stream));
  if (right) MUST(cudaStreamSynchronize(stream));
  expect(host[41] == 42, "the copied numbers");
}

void overwrite_early() {
  float* const device = device_memory();
  float* const host = pinned_memory();
  cudaStream_t stream = new_stream();
  MUST(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream));
  if (right) MUST(cudaStreamSynchronize(stream));
  host[41] = 0;
  std::vector<float> back(count);
  MUST(cudaMemcpyAsync(back.data(), device, bytes, cudaMemcpyDeviceToHost, stream));
  MUST(cudaStreamSynchronize(stream));
  expect(back[41] == 42, "what was there when it was copied");
}

void free_in_use() {
  float* const device = device_memory();
  cudaStream_t stream = new_stream();
  MUST(cudaMemsetAsync(device, 1, bytes, stream));
  if (right) MUST(cudaStreamSynchronize(stream));
  MUST(cudaFree(device));
  cudaStreamSynchronize(stream);
}

void free_on_another_stream() {
  cudaStream_t one = new_stream();
  cudaStream_t two = new_stream();
  cudaEvent_t event = nullptr;
  MUST(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  void* memory = nullptr;
  MUST(cudaMallocAsync(&memory, bytes, one));
  MUST(cudaMemsetAsync(memory, 1, bytes, one));
  if (right) {
    MUST(cudaEventRecord(event, one));
    MUST(cudaStreamWaitEvent(two, event, 0));
  }
  MUST(cudaFreeAsync(memory, two));
  cudaStreamSynchronize(two);
  cudaStreamSynchronize(one);
}

void two_streams() {
  float* const device = device_memory();
  float* const host = pinned_memory();
  cudaStream_t one = new_stream();
  cudaStream_t two = new_stream();
  cudaEvent_t event = nullptr;
  MUST(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  MUST(cudaMemsetAsync(device, 0, bytes, one));
  MUST(cudaEventRecord(event, one));
  if (right) MUST(cudaStreamWaitEvent(two, event, 0));
  MUST(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, two));
  MUST(cudaStreamSynchronize(two));
  MUST(cudaStreamSynchronize(one));
  expect(host[7] == 0, "the zeros");
}

void staged_copy() {
  float* const device = numbers();
  float* const host = pinned_memory();
  const std::vector<float> source(count, 5);
  cudaStream_t stream = new_stream();
  MUST(cudaMemcpy(device, source.data(), bytes, cudaMemcpyHostToDevice));
  if (right) MUST(cudaStreamSynchronize(nullptr));
  MUST(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream));
  MUST(cudaStreamSynchronize(stream));
  expect(host[999] == 5, "the fives");
}

void blocking_stream() {  // a twin alone: the legacy default stream is in the way of this stream
  right = true;
  float* const device = device_memory();
  float* const host = pinned_memory();
  const std::vector<float> source(count, 5);
  cudaStream_t stream = new_stream(cudaStreamDefault);
  MUST(cudaMemcpy(device, source.data(), bytes, cudaMemcpyHostToDevice));
  MUST(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream));
  MUST(cudaMemset(device, 0, bytes));
  MUST(cudaStreamSynchronize(stream));
  expect(host[999] == 5, "the fives");
}

void wrong_device() {
  cudaStream_t stream = new_stream();
  MUST(cudaSetDevice(right ? 0 : 1));
  float* const device = device_memory();
  MUST(cudaSetDevice(0));
  cudaMemsetAsync(device, 0, bytes, stream);
  MUST(cudaStreamSynchronize(stream));
}

void past_the_end() {
  float* const device = numbers();
  std::vector<float> host(2 * count);
  cudaMemcpy(host.data(), device, right ? bytes : bytes + sizeof(float), cudaMemcpyDeviceToHost);
  expect(host[999] == 1000, "the last number");
}

void uninitialized() {
  float* const device = device_memory();
  std::vector<float> host(count);
  MUST(cudaMemset(device, 0, right ? bytes : bytes / 2));
  MUST(cudaMemcpy(host.data(), device, bytes, cudaMemcpyDeviceToHost));
  expect(host[999] == 0, "the zeros");
}

void device_memory_on_host() {
  float* const device = numbers();
  float value = 0;
  if (right) {
    MUST(cudaMemcpy(&value, device + 41, sizeof value, cudaMemcpyDeviceToHost));
  } else {
    value = device[41];
  }
  expect(value == 42, "the number");
}

void double_free() {
  float* const device = device_memory();
  MUST(cudaFree(device));
  if (!right) cudaFree(device);
}

void wrong_free() {
  float* const host = pinned_memory();
  if (right) {
    MUST(cudaFreeHost(host));
  } else {
    cudaFree(host);
  }
}

void destroyed_stream() {
  float* const device = device_memory();
  cudaStream_t stream = new_stream();
  if (!right) MUST(cudaStreamDestroy(stream));
  cudaMemsetAsync(device, 0, bytes, stream);
  cudaStreamSynchronize(stream);
}

void calling_host_function() {
  cudaStream_t stream = new_stream();
  int seen = 0;
  MUST(cudaLaunchHostFunc(
      stream,
      [](void* data) {
        void* memory = nullptr;
        if (!right) cudaMalloc(&memory, 16);
        *static_cast<int*>(data) = 7;
      },
      &seen));
  MUST(cudaStreamSynchronize(stream));
  expect(seen == 7, "that the host function ran");
}

void waiting_host_function() {
  static std::atomic<bool> go;
  go = right;
  cudaStream_t stream = new_stream();
  MUST(cudaLaunchHostFunc(
      stream,
      [](void*) {
        while (!go) std::this_thread::yield();
      },
      nullptr));
  MUST(cudaStreamSynchronize(stream));
  go = true;
}

void kernel() {
  cudaStream_t stream = new_stream();
  if (right) return;
  cudaLaunchKernel(reinterpret_cast<const void*>(&kernel), dim3(1), dim3(32), nullptr, 0, stream);
}

struct Program {
  const char* name;
  void (*run)();
};
constexpr Program programs[] = {
    {"read-early", read_early},
    {"read-early-pageable", read_early_pageable},
    {"overwrite-early", overwrite_early},
    {"free-in-use", free_in_use},
    {"free-on-another-stream", free_on_another_stream},
    {"two-streams", two_streams},
    {"staged-copy", staged_copy},
    {"blocking-stream", blocking_stream},
    {"wrong-device", wrong_device},
    {"past-the-end", past_the_end},
    {"uninitialized", uninitialized},
    {"device-memory-on-host", device_memory_on_host},
    {"double-free", double_free},
    {"wrong-free", wrong_free},
    {"destroyed-stream", destroyed_stream},
    {"calling-host-function", calling_host_function},
    {"waiting-host-function", waiting_host_function},
    {"kernel", kernel},
};

}  // namespace

int main(int argc, char** argv) {
  // "all-right" runs every twin, one after the other.
  const char* name = argc > 1 ? argv[1] : "";
  const bool all = std::strcmp(name, "all-right") == 0;
  right = all || std::strncmp(name, "right-", 6) == 0;
  if (right && !all) name += 6;
  for (const Program& program : programs) {
    if (!all && std::strcmp(name, program.name) != 0) continue;
    program.run();
    if (!all) return 0;
  }
  return all ? 0 : 2;
}
