// Mistakes in making, sharing and ending communicators.
#include "nccl_mistakes.hpp"

namespace {

void after_abort() {
  Ranks r(1);
  if (mistaken) NCCL(ncclCommAbort(r.comms[0]));
  NCCL(ncclAllReduce(r.sent[0], r.received[0], 4, ncclFloat, ncclSum, r.comms[0], r.streams[0]));
  r.synchronize();
  if (mistaken) r.comms[0] = nullptr;
}

void after_destroy() {
  Ranks r(1);
  if (mistaken) NCCL(ncclCommDestroy(r.comms[0]));
  NCCL(ncclAllReduce(r.sent[0], r.received[0], 4, ncclFloat, ncclSum, r.comms[0], r.streams[0]));
  r.synchronize();
  if (mistaken) r.comms[0] = nullptr;
}

void after_finalize() {
  Ranks r(1);
  if (mistaken) NCCL(ncclCommFinalize(r.comms[0]));
  NCCL(ncclAllReduce(r.sent[0], r.received[0], 4, ncclFloat, ncclSum, r.comms[0], r.streams[0]));
  r.synchronize();
}

void two_threads() {
  Ranks r(1);
  // One thread has a call in an open group while the other makes one.
  std::atomic<bool> in_group{false};
  std::atomic<bool> called{false};
  std::thread other([&] {
    CUDA(cudaSetDevice(0));
    NCCL(ncclGroupStart());
    NCCL(ncclAllReduce(r.sent[0], r.received[0], 4, ncclFloat, ncclSum, r.comms[0], r.streams[0]));
    in_group = true;
    if (mistaken) {
      while (!called) std::this_thread::yield();
    }
    NCCL(ncclGroupEnd());
  });
  if (!mistaken) other.join();
  while (!in_group) std::this_thread::yield();
  NCCL(ncclAllReduce(r.sent[0], r.received[0], 4, ncclFloat, ncclSum, r.comms[0], r.streams[0]));
  called = true;
  if (mistaken) other.join();
  r.synchronize();
}

// Begins to join as rank 0, on device 0, without blocking.
ncclComm_t join_without_blocking(int ranks) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclUniqueId id;
  NCCL(ncclGetUniqueId(&id));
  CUDA(cudaSetDevice(0));
  ncclComm_t comm = nullptr;
  const ncclResult_t state = ncclCommInitRankConfig(&comm, ranks, id, 0, &config);
  EXPECT(state == ncclSuccess || state == ncclInProgress);
  return comm;
}

// Polls until what the communicator is at has ended, and says how.
ncclResult_t ended(ncclComm_t comm) {
  ncclResult_t state = ncclSuccess;
  do {
    NCCL(ncclCommGetAsyncError(comm, &state));
  } while (state == ncclInProgress);
  return state;
}

void polling_for_a_rank_that_never_joins() {
  ncclComm_t comm = join_without_blocking(mistaken ? 2 : 1);
  const ncclResult_t state = ended(comm);
  NCCL(state);
  NCCL(state == ncclSuccess ? ncclCommDestroy(comm) : ncclCommAbort(comm));
}

void not_waiting_for_progress() {
  ncclComm_t comm = join_without_blocking(1);
  NCCL(ended(comm));
  float* data = nullptr;
  CUDA(cudaMalloc(reinterpret_cast<void**>(&data), count * sizeof(float)));
  CUDA(cudaMemset(data, 0, count * sizeof(float)));
  for (int call = 0; call < 2; ++call) {
    const ncclResult_t state = ncclAllReduce(data, data, count, ncclFloat, ncclSum, comm, nullptr);
    EXPECT(state == ncclSuccess || state == ncclInProgress);
    if (!mistaken || call == 1) NCCL(ended(comm));
  }
  CUDA(cudaDeviceSynchronize());
  NCCL(ncclCommDestroy(comm));
  CUDA(cudaFree(data));
}

void one_device_twice() {
  ncclUniqueId id;
  NCCL(ncclGetUniqueId(&id));
  ncclComm_t comms[2] = {};
  NCCL(ncclGroupStart());
  for (int rank = 0; rank < 2; ++rank) {
    if (!mistaken) CUDA(cudaSetDevice(rank));
    NCCL(ncclCommInitRank(&comms[rank], 2, id, rank));
  }
  NCCL(ncclGroupEnd());
  for (ncclComm_t comm : comms) {
    if (comm != nullptr) NCCL(ncclCommDestroy(comm));
  }
  CUDA(cudaSetDevice(0));
}

void one_id_twice() {
  ncclUniqueId id;
  NCCL(ncclGetUniqueId(&id));
  CUDA(cudaSetDevice(0));
  for (int round = 0; round < 2; ++round) {
    if (!mistaken && round == 1) NCCL(ncclGetUniqueId(&id));
    ncclComm_t comm = nullptr;
    NCCL(ncclCommInitRank(&comm, 1, id, 0));
    if (comm != nullptr) NCCL(ncclCommDestroy(comm));
  }
}

void an_id_that_nobody_sent() {
  ncclUniqueId id = {};
  if (!mistaken) NCCL(ncclGetUniqueId(&id));
  ncclComm_t comm = nullptr;
  NCCL(ncclCommInitRank(&comm, 1, id, 0));
  if (comm != nullptr) NCCL(ncclCommDestroy(comm));
}

void joining_one_by_one() {
  // Needs the other rank to return, and the other rank is to be made by this thread.
  ncclUniqueId id;
  NCCL(ncclGetUniqueId(&id));
  ncclComm_t comms[2] = {};
  if (!mistaken) NCCL(ncclGroupStart());
  for (int rank = 0; rank < 2; ++rank) {
    CUDA(cudaSetDevice(rank));
    NCCL(ncclCommInitRank(&comms[rank], 2, id, rank));
    if (mistaken) break;  // it is told, but another wait is of no use
  }
  if (!mistaken) NCCL(ncclGroupEnd());
  for (ncclComm_t comm : comms) {
    if (comm != nullptr) NCCL(ncclCommDestroy(comm));
  }
  CUDA(cudaSetDevice(0));
}

constexpr Program programs[] = {
    {"after_abort", after_abort},
    {"after_destroy", after_destroy},
    {"after_finalize", after_finalize},
    {"two_threads", two_threads},
    {"polling_for_a_rank_that_never_joins", polling_for_a_rank_that_never_joins},
    {"not_waiting_for_progress", not_waiting_for_progress},
    {"one_device_twice", one_device_twice},
    {"one_id_twice", one_id_twice},
    {"an_id_that_nobody_sent", an_id_that_nobody_sent},
    {"joining_one_by_one", joining_one_by_one},
};

}  // namespace

std::span<const Program> mistakes_in_communicators() {
  return programs;
}
