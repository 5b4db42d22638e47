// What the small programs with one mistake each are made of; nccl_mistakes.cpp runs them.
#pragma once

#include <cuda_runtime.h>
#include <nccl.h>

#include <atomic>
#include <cstdio>
#include <span>
#include <string>
#include <thread>
#include <vector>

inline bool mistaken = false;
inline std::atomic<int> failures{0};  // ranks are threads

inline void expect(bool right, const char* what, int line) {
  if (right) return;
  ++failures;
  std::printf("line %d: %s\n", line, what);
}
#define EXPECT(what) expect(what, #what, __LINE__)
#define NCCL(call) expect((call) == ncclSuccess, #call, __LINE__)
#define CUDA(call) expect((call) == cudaSuccess, #call, __LINE__)

inline constexpr int count = 4;

// A communicator over the first devices, with a stream, a buffer of `count` floats to send (rank,
// rank + 1, ...) and one with room for twice as much to receive on each.
struct Ranks {
  explicit Ranks(int ranks)
      : comms(static_cast<std::size_t>(ranks)),
        streams(comms.size()),
        sent(comms.size()),
        received(comms.size()) {
    NCCL(ncclCommInitAll(comms.data(), ranks, nullptr));
    for (int rank = 0; rank < ranks; ++rank) {
      const auto r = static_cast<std::size_t>(rank);
      CUDA(cudaSetDevice(rank));
      CUDA(cudaStreamCreateWithFlags(&streams[r], cudaStreamNonBlocking));
      CUDA(cudaMalloc(reinterpret_cast<void**>(&sent[r]), count * sizeof(float)));
      CUDA(cudaMalloc(reinterpret_cast<void**>(&received[r]), 2 * count * sizeof(float)));
      std::vector<float> values;
      for (int i = 0; i < count; ++i) values.push_back(static_cast<float>(rank + i));
      CUDA(cudaMemcpy(sent[r], values.data(), count * sizeof(float), cudaMemcpyHostToDevice));
      CUDA(cudaDeviceSynchronize());  // the streams do not wait for the default stream
    }
  }

  // What `rank` has received, once all work on its stream is done.
  std::vector<float> result(std::size_t rank, int elements = count) {
    std::vector<float> values(static_cast<std::size_t>(elements));
    CUDA(cudaSetDevice(static_cast<int>(rank)));
    CUDA(cudaStreamSynchronize(streams[rank]));
    CUDA(cudaMemcpy(values.data(), received[rank], values.size() * sizeof(float),
                    cudaMemcpyDeviceToHost));
    return values;
  }

  void synchronize() {
    for (std::size_t rank = 0; rank < comms.size(); ++rank) {
      CUDA(cudaSetDevice(static_cast<int>(rank)));
      CUDA(cudaStreamSynchronize(streams[rank]));
    }
  }

  ~Ranks() {
    for (std::size_t rank = 0; rank < comms.size(); ++rank) {
      CUDA(cudaSetDevice(static_cast<int>(rank)));
      if (comms[rank] != nullptr) NCCL(ncclCommDestroy(comms[rank]));
      CUDA(cudaStreamDestroy(streams[rank]));
      if (sent[rank] != nullptr) CUDA(cudaFree(sent[rank]));
      CUDA(cudaFree(received[rank]));
    }
  }

  std::vector<ncclComm_t> comms;
  std::vector<cudaStream_t> streams;
  std::vector<float*> sent;
  std::vector<float*> received;
};

using Floats = std::vector<float>;

// One call per rank, in one group.
template <class Call>
void together(Ranks& ranks, Call call) {
  NCCL(ncclGroupStart());
  for (std::size_t rank = 0; rank < ranks.comms.size(); ++rank) NCCL(call(rank));
  NCCL(ncclGroupEnd());
}

// Each rank on a thread of its own.
template <class Body>
void on_threads(std::size_t ranks, Body body) {
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      CUDA(cudaSetDevice(static_cast<int>(rank)));
      body(rank);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

struct Process;  // a rank of a program that has a process for each

struct Program {
  const char* name;
  void (*run)();
  void (*rank_1)(const Process&) = nullptr;
};

std::span<const Program> mistakes_in_calls();
std::span<const Program> mistakes_in_communicators();
std::span<const Program> mistakes_of_processes();

// As the process that a program with processes starts for its rank 1: `name` is the program's, `id`
// the unique id in hexadecimal digits.
int be_rank_1(const std::string& name, const std::string& id);
