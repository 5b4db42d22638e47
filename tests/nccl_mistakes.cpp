// Small NCCL programs, each with one classic mistake, and the same programs without it. Host code
// like that of any NCCL program: it knows nothing of the simulation that it is run on.
//
//   nccl-mistakes NAME       with the mistake; goes on after errors, as careless programs do
//   nccl-mistakes --right    all of them, put right; exits 1 if a call fails or a result is wrong
//   nccl-mistakes --list     their names
#include <cuda_runtime.h>
#include <nccl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace {

bool mistaken = false;
std::atomic<int> failures{0};  // ranks are threads

void expect(bool right, const char* what, int line) {
  if (right) return;
  ++failures;
  std::printf("line %d: %s\n", line, what);
}
#define EXPECT(what) expect(what, #what, __LINE__)
#define NCCL(call) expect((call) == ncclSuccess, #call, __LINE__)
#define CUDA(call) expect((call) == cudaSuccess, #call, __LINE__)

constexpr int count = 4;

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

void different_counts() {
  Ranks r(3);
  together(r, [&](std::size_t rank) {
    const std::size_t elements = mistaken && rank == 1 ? 3 : 4;
    return ncclAllReduce(r.sent[rank], r.received[rank], elements, ncclFloat, ncclSum,
                         r.comms[rank], r.streams[rank]);
  });
  for (std::size_t rank = 0; rank < 3; ++rank) EXPECT(r.result(rank) == (Floats{3, 6, 9, 12}));
}

void different_datatypes() {
  Ranks r(2);
  together(r, [&](std::size_t rank) {
    return ncclAllGather(r.sent[rank], r.received[rank], 4,
                         mistaken && rank == 1 ? ncclInt32 : ncclFloat, r.comms[rank],
                         r.streams[rank]);
  });
  EXPECT(r.result(1, 8) == (Floats{0, 1, 2, 3, 1, 2, 3, 4}));
}

void different_roots() {
  Ranks r(3);
  together(r, [&](std::size_t rank) {
    return ncclBroadcast(r.sent[rank], r.received[rank], 4, ncclFloat,
                         mistaken && rank == 2 ? 0 : 1, r.comms[rank], r.streams[rank]);
  });
  EXPECT(r.result(2) == (Floats{1, 2, 3, 4}));
}

void different_operators() {
  Ranks r(2);
  together(r, [&](std::size_t rank) {
    return ncclAllReduce(r.sent[rank], r.received[rank], 4, ncclFloat,
                         mistaken && rank == 1 ? ncclMax : ncclProd, r.comms[rank],
                         r.streams[rank]);
  });
  EXPECT(r.result(0) == (Floats{0, 2, 6, 12}));
}

void different_order() {
  Ranks r(2);
  on_threads(2, [&](std::size_t rank) {
    const auto sum = [&] {
      NCCL(ncclAllReduce(r.sent[rank], r.received[rank], 4, ncclFloat, ncclSum, r.comms[rank],
                         r.streams[rank]));
    };
    if (mistaken && rank == 1) sum();
    NCCL(ncclBroadcast(r.sent[rank], r.received[rank], 4, ncclFloat, 0, r.comms[rank],
                       r.streams[rank]));
    if (!mistaken || rank == 0) sum();
  });
  EXPECT(r.result(0) == (Floats{1, 3, 5, 7}));
}

void a_rank_without_elements() {
  Ranks r(2);
  together(r, [&](std::size_t rank) {
    // NCCL drops a collective without elements on the spot: the other rank waits alone.
    return ncclAllReduce(r.sent[rank], r.received[rank], mistaken && rank == 0 ? 0 : 4, ncclFloat,
                         ncclSum, r.comms[rank], r.streams[rank]);
  });
  EXPECT(r.result(1) == (Floats{1, 3, 5, 7}));
}

void a_send_without_its_receive() {
  Ranks r(2);
  NCCL(ncclGroupStart());
  NCCL(ncclSend(r.sent[0], 4, ncclFloat, 1, r.comms[0], r.streams[0]));
  if (!mistaken) NCCL(ncclRecv(r.received[1], 4, ncclFloat, 0, r.comms[1], r.streams[1]));
  NCCL(ncclGroupEnd());
  r.synchronize();
}

void a_longer_receive() {
  Ranks r(2);
  NCCL(ncclGroupStart());
  NCCL(ncclSend(r.sent[0], 4, ncclFloat, 1, r.comms[0], r.streams[0]));
  NCCL(ncclRecv(r.received[1], mistaken ? 8 : 4, ncclFloat, 0, r.comms[1], r.streams[1]));
  NCCL(ncclGroupEnd());
  EXPECT(r.result(1) == (Floats{0, 1, 2, 3}));
}

void transfers_in_a_circle() {
  Ranks r(2);
  on_threads(2, [&](std::size_t rank) {
    const int peer = 1 - static_cast<int>(rank);
    if (!mistaken) NCCL(ncclGroupStart());
    NCCL(ncclSend(r.sent[rank], 4, ncclFloat, peer, r.comms[rank], r.streams[rank]));
    NCCL(ncclRecv(r.received[rank], 4, ncclFloat, peer, r.comms[rank], r.streams[rank]));
    if (!mistaken) NCCL(ncclGroupEnd());
    CUDA(cudaStreamSynchronize(r.streams[rank]));
  });
  EXPECT(r.result(0) == (Floats{1, 2, 3, 4}));
}

void no_group() {
  Ranks r(2);
  if (!mistaken) NCCL(ncclGroupStart());
  for (std::size_t rank = 0; rank < 2; ++rank) {
    NCCL(ncclReduce(r.sent[rank], r.received[rank], 4, ncclFloat, ncclSum, 0, r.comms[rank],
                    r.streams[rank]));
  }
  if (!mistaken) NCCL(ncclGroupEnd());
  EXPECT(r.result(0) == (Floats{1, 3, 5, 7}));
  r.synchronize();
}

void a_rank_that_stays_away() {
  Ranks r(3);
  on_threads(3, [&](std::size_t rank) {
    if (mistaken && rank == 1) return;
    NCCL(ncclAllReduce(r.sent[rank], r.received[rank], 4, ncclFloat, ncclSum, r.comms[rank],
                       r.streams[rank]));
    CUDA(cudaStreamSynchronize(r.streams[rank]));
  });
}

void a_buffer_of_another_device() {
  Ranks r(2);
  together(r, [&](std::size_t rank) {
    const std::size_t owner = mistaken ? 0 : rank;
    return ncclAllReduce(r.sent[owner], r.received[rank], 4, ncclFloat, ncclSum, r.comms[rank],
                         r.streams[rank]);
  });
  r.synchronize();
}

void beyond_the_allocation() {
  Ranks r(2);
  together(r, [&](std::size_t rank) {
    // The count of an all-gather is one rank's.
    return ncclAllGather(r.sent[rank], r.received[rank], mistaken ? 8 : 4, ncclFloat, r.comms[rank],
                         r.streams[rank]);
  });
  r.synchronize();
}

void a_freed_buffer() {
  Ranks r(2);
  if (mistaken) {
    CUDA(cudaSetDevice(1));
    CUDA(cudaFree(r.sent[1]));
  }
  together(r, [&](std::size_t rank) {
    return ncclAllReduce(r.sent[rank], r.received[rank], 4, ncclFloat, ncclSum, r.comms[rank],
                         r.streams[rank]);
  });
  r.synchronize();
  if (mistaken) r.sent[1] = nullptr;
}

void freed_while_in_use() {
  Ranks r(2);
  together(r, [&](std::size_t rank) {
    return ncclAllReduce(r.sent[rank], r.received[rank], 4, ncclFloat, ncclSum, r.comms[rank],
                         r.streams[rank]);
  });
  if (!mistaken) r.synchronize();
  CUDA(cudaSetDevice(0));
  CUDA(cudaFree(r.sent[0]));
  r.sent[0] = nullptr;
  r.synchronize();
}

void nothing_written() {
  Ranks r(2);
  float* fresh = nullptr;
  CUDA(cudaSetDevice(1));
  CUDA(cudaMalloc(reinterpret_cast<void**>(&fresh), count * sizeof(float)));
  if (!mistaken) CUDA(cudaMemset(fresh, 0, count * sizeof(float)));
  CUDA(cudaDeviceSynchronize());
  together(r, [&](std::size_t rank) {
    return ncclAllReduce(rank == 1 ? fresh : r.sent[rank], r.received[rank], 4, ncclFloat, ncclSum,
                         r.comms[rank], r.streams[rank]);
  });
  r.synchronize();
  CUDA(cudaFree(fresh));
}

void overlapping_buffers() {
  Ranks r(2);
  together(r, [&](std::size_t rank) {
    // In place, rank r's elements are at r times the count.
    float* const place = r.received[rank] + (mistaken ? 0 : 2 * rank);
    CUDA(cudaSetDevice(static_cast<int>(rank)));
    CUDA(cudaMemset(place, 0, 2 * sizeof(float)));
    CUDA(cudaDeviceSynchronize());
    return ncclAllGather(place, r.received[rank], 2, ncclFloat, r.comms[rank], r.streams[rank]);
  });
  r.synchronize();
}

void overlap_in_a_group() {
  Ranks r(2);
  NCCL(ncclGroupStart());
  for (std::size_t rank = 0; rank < 2; ++rank) {
    for (int peer = 0; peer < 2; ++peer) {
      NCCL(ncclSend(r.sent[rank], 4, ncclFloat, peer, r.comms[rank], r.streams[rank]));
      NCCL(ncclRecv(r.received[rank] + (mistaken ? 3 : 4) * peer, 4, ncclFloat, peer, r.comms[rank],
                    r.streams[rank]));
    }
  }
  NCCL(ncclGroupEnd());
  EXPECT(r.result(1, 8) == (Floats{0, 1, 2, 3, 1, 2, 3, 4}));
}

void polling_for_ever() {
  Ranks r(2);
  NCCL(ncclGroupStart());
  NCCL(ncclRecv(r.received[1], 4, ncclFloat, 0, r.comms[1], r.streams[1]));
  if (!mistaken) NCCL(ncclSend(r.sent[0], 4, ncclFloat, 1, r.comms[0], r.streams[0]));
  NCCL(ncclGroupEnd());
  CUDA(cudaSetDevice(1));
  while (cudaStreamQuery(r.streams[1]) == cudaErrorNotReady) std::this_thread::yield();
  r.synchronize();
}

void polling_for_a_rank_that_never_joins() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclUniqueId id;
  NCCL(ncclGetUniqueId(&id));
  CUDA(cudaSetDevice(0));
  ncclComm_t comm = nullptr;
  ncclResult_t state = ncclCommInitRankConfig(&comm, mistaken ? 2 : 1, id, 0, &config);
  EXPECT(state == ncclSuccess || state == ncclInProgress);
  do {
    NCCL(ncclCommGetAsyncError(comm, &state));
  } while (state == ncclInProgress);
  NCCL(state);
  NCCL(state == ncclSuccess ? ncclCommDestroy(comm) : ncclCommAbort(comm));
}

void a_stream_of_another_device() {
  Ranks r(2);
  together(r, [&](std::size_t rank) {
    return ncclAllReduce(r.sent[rank], r.received[rank], 4, ncclFloat, ncclSum, r.comms[rank],
                         r.streams[mistaken ? 0 : rank]);
  });
  r.synchronize();
}

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

void not_waiting_for_progress() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclUniqueId id;
  NCCL(ncclGetUniqueId(&id));
  CUDA(cudaSetDevice(0));
  ncclComm_t comm = nullptr;
  ncclResult_t state = ncclCommInitRankConfig(&comm, 1, id, 0, &config);
  EXPECT(state == ncclSuccess || state == ncclInProgress);
  const auto finish = [&] {
    do {
      NCCL(ncclCommGetAsyncError(comm, &state));
    } while (state == ncclInProgress);
    NCCL(state);
  };
  finish();
  float* data = nullptr;
  CUDA(cudaMalloc(reinterpret_cast<void**>(&data), count * sizeof(float)));
  CUDA(cudaMemset(data, 0, count * sizeof(float)));
  for (int call = 0; call < 2; ++call) {
    state = ncclAllReduce(data, data, count, ncclFloat, ncclSum, comm, nullptr);
    EXPECT(state == ncclSuccess || state == ncclInProgress);
    if (!mistaken || call == 1) finish();
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

void a_root_that_is_none() {
  Ranks r(2);
  together(r, [&](std::size_t rank) {
    return ncclBroadcast(r.sent[rank], r.received[rank], 4, ncclFloat, mistaken ? 2 : 1,
                         r.comms[rank], r.streams[rank]);
  });
  r.synchronize();
}

void a_destroyed_operator() {
  Ranks r(1);
  float half = 0.5f;
  ncclRedOp_t op{};
  NCCL(ncclRedOpCreatePreMulSum(&op, &half, ncclFloat, ncclScalarHostImmediate, r.comms[0]));
  if (mistaken) NCCL(ncclRedOpDestroy(op, r.comms[0]));
  NCCL(ncclAllReduce(r.sent[0], r.received[0], 4, ncclFloat, op, r.comms[0], r.streams[0]));
  if (!mistaken) NCCL(ncclRedOpDestroy(op, r.comms[0]));
  r.synchronize();
}

// --- one rank per process

const char* self = nullptr;  // the path of this program

struct Process {
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  float* data = nullptr;
};

// Joins as `rank` of `ranks` processes, on the device of that number.
Process join(const ncclUniqueId& id, int rank, int ranks) {
  Process made;
  CUDA(cudaSetDevice(rank));
  CUDA(cudaMalloc(reinterpret_cast<void**>(&made.data), count * sizeof(float)));
  CUDA(cudaMemset(made.data, 0, count * sizeof(float)));
  CUDA(cudaStreamCreateWithFlags(&made.stream, cudaStreamNonBlocking));
  CUDA(cudaDeviceSynchronize());
  NCCL(ncclCommInitRank(&made.comm, ranks, id, rank));
  return made;
}

void leave(const Process& process) {
  CUDA(cudaStreamSynchronize(process.stream));
  NCCL(ncclCommDestroy(process.comm));
  CUDA(cudaStreamDestroy(process.stream));
  CUDA(cudaFree(process.data));
  CUDA(cudaSetDevice(0));
}

ncclResult_t all_reduce(const Process& process, std::size_t elements) {
  return ncclAllReduce(process.data, process.data, elements, ncclFloat, ncclSum, process.comm,
                       process.stream);
}

// Starts this program once more as rank 1 of the program `name`; gives the process.
pid_t start_rank_1(const char* name, const ncclUniqueId& id) {
  std::string text;
  for (const char byte : id.internal) {
    text += "0123456789abcdef"[static_cast<unsigned char>(byte) >> 4];
    text += "0123456789abcdef"[static_cast<unsigned char>(byte) & 15];
  }
  std::string words[] = {self, "--rank-1", name, text, mistaken ? "mistaken" : "right"};
  char* arguments[] = {words[0].data(), words[1].data(), words[2].data(),
                       words[3].data(), words[4].data(), nullptr};
  pid_t process = -1;
  expect(posix_spawn(&process, self, nullptr, nullptr, arguments, environ) == 0, "posix_spawn",
         __LINE__);
  return process;
}

// Runs the bodies of rank 0 and of rank 1, each in a process.
void in_processes(const char* name, void (*rank_0)(const Process&)) {
  ncclUniqueId id;
  NCCL(ncclGetUniqueId(&id));
  const pid_t other = start_rank_1(name, id);
  const Process process = join(id, 0, 2);
  rank_0(process);
  leave(process);
  int status = 0;
  expect(waitpid(other, &status, 0) == other, "waitpid", __LINE__);
  if (!mistaken) EXPECT(status == 0);
}

void calls_once(const Process& process) {
  NCCL(all_reduce(process, 4));
  CUDA(cudaStreamSynchronize(process.stream));
}
void dies(const Process& process) {
  if (mistaken) _exit(0);
  calls_once(process);
}
void returns(const Process& process) {
  if (mistaken) std::exit(0);
  calls_once(process);
}
void calls_with_another_count(const Process& process) {
  NCCL(all_reduce(process, mistaken ? 3 : 4));
  CUDA(cudaStreamSynchronize(process.stream));
}

void a_process_that_dies() {
  in_processes("a_process_that_dies", calls_once);
}
void a_process_that_ends_early() {
  in_processes("a_process_that_ends_early", calls_once);
}
void processes_with_different_counts() {
  in_processes("processes_with_different_counts", calls_once);
}

struct Program {
  const char* name;
  void (*run)();
  void (*rank_1)(const Process&) = nullptr;
};

constexpr Program programs[] = {
    {"different_counts", different_counts},
    {"different_datatypes", different_datatypes},
    {"different_roots", different_roots},
    {"different_operators", different_operators},
    {"different_order", different_order},
    {"a_rank_without_elements", a_rank_without_elements},
    {"a_send_without_its_receive", a_send_without_its_receive},
    {"a_longer_receive", a_longer_receive},
    {"transfers_in_a_circle", transfers_in_a_circle},
    {"no_group", no_group},
    {"a_rank_that_stays_away", a_rank_that_stays_away},
    {"a_buffer_of_another_device", a_buffer_of_another_device},
    {"beyond_the_allocation", beyond_the_allocation},
    {"a_freed_buffer", a_freed_buffer},
    {"freed_while_in_use", freed_while_in_use},
    {"nothing_written", nothing_written},
    {"overlapping_buffers", overlapping_buffers},
    {"overlap_in_a_group", overlap_in_a_group},
    {"polling_for_ever", polling_for_ever},
    {"polling_for_a_rank_that_never_joins", polling_for_a_rank_that_never_joins},
    {"a_stream_of_another_device", a_stream_of_another_device},
    {"after_abort", after_abort},
    {"after_destroy", after_destroy},
    {"after_finalize", after_finalize},
    {"two_threads", two_threads},
    {"not_waiting_for_progress", not_waiting_for_progress},
    {"one_device_twice", one_device_twice},
    {"one_id_twice", one_id_twice},
    {"an_id_that_nobody_sent", an_id_that_nobody_sent},
    {"joining_one_by_one", joining_one_by_one},
    {"a_root_that_is_none", a_root_that_is_none},
    {"a_destroyed_operator", a_destroyed_operator},
    {"a_process_that_dies", a_process_that_dies, dies},
    {"a_process_that_ends_early", a_process_that_ends_early, returns},
    {"processes_with_different_counts", processes_with_different_counts, calls_with_another_count},
};

// As the process that in_processes() starts.
int be_rank_1(const std::string& name, const std::string& text) {
  ncclUniqueId id;
  for (std::size_t i = 0; i < sizeof id.internal; ++i) {
    id.internal[i] = static_cast<char>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  }
  for (const Program& program : programs) {
    if (name != program.name) continue;
    const Process process = join(id, 1, 2);
    program.rank_1(process);
    leave(process);
  }
  return failures == 0 ? 0 : 1;
}

}  // namespace

int main(int count_of_arguments, char** arguments) {
  self = arguments[0];
  if (count_of_arguments == 5 && std::strcmp(arguments[1], "--rank-1") == 0) {
    mistaken = std::strcmp(arguments[4], "mistaken") == 0;
    return be_rank_1(arguments[2], arguments[3]);
  }
  const std::string what = count_of_arguments > 1 ? arguments[1] : "--list";
  for (const Program& program : programs) {
    if (what == "--list") {
      std::printf("%s\n", program.name);
    } else if (what == "--right") {
      std::printf("%s\n", program.name);
      program.run();
    } else if (what == program.name) {
      mistaken = true;
      program.run();
      return 0;
    }
  }
  return what == "--right" ? (failures == 0 ? 0 : 1) : what == "--list" ? 0 : 2;
}
