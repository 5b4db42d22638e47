// What the parts of nccl_results.cpp share.
#pragma once

#include <cuda_runtime.h>
#include <nccl.h>

#include <atomic>
#include <cstdio>
#include <vector>

inline std::atomic<int> failures{0};

inline void expect(bool right, const char* what, int line) {
  if (right) return;
  if (++failures <= 20) std::printf("line %d: %s\n", line, what);
}
#define EXPECT(what) expect(what, #what, __LINE__)
#define CUDA(call) expect((call) == cudaSuccess, #call, __LINE__)
#define NCCL(call) check(call, #call, __LINE__)

struct Rank {
  int rank = 0;
  int ranks = 0;
  int device = 0;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
};

// The communicators of this thread, for those that do not block.
inline thread_local std::vector<Rank>* mine = nullptr;

// Success, at once or by and by.
inline void check(ncclResult_t result, const char* what, int line) {
  if (result == ncclInProgress) {
    for (const Rank& rank : *mine) {
      if (rank.comm == nullptr) continue;
      do {
        if (ncclCommGetAsyncError(rank.comm, &result) != ncclSuccess) result = ncclInternalError;
      } while (result == ncclInProgress);
    }
  }
  expect(result == ncclSuccess, what, line);
}

// Every operation for every datatype, on communicators of this thread. In nccl_operations.cpp.
void all_operations(std::vector<Rank>& ranks);
