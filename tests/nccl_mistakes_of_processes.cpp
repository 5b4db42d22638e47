// Mistakes of programs with one rank per process.
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "nccl_mistakes.hpp"

struct Process {
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  float* data = nullptr;
};

namespace {

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
  std::string words[] = {"nccl-mistakes", "--rank-1", name, text, mistaken ? "mistaken" : "right"};
  char* arguments[] = {words[0].data(), words[1].data(), words[2].data(),
                       words[3].data(), words[4].data(), nullptr};
  pid_t process = -1;
  expect(posix_spawn(&process, "/proc/self/exe", nullptr, nullptr, arguments, environ) == 0,
         "posix_spawn", __LINE__);
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

constexpr Program programs[] = {
    {"a_process_that_dies", a_process_that_dies, dies},
    {"a_process_that_ends_early", a_process_that_ends_early, returns},
    {"processes_with_different_counts", processes_with_different_counts, calls_with_another_count},
};

}  // namespace

std::span<const Program> mistakes_of_processes() {
  return programs;
}

int be_rank_1(const std::string& name, const std::string& digits) {
  ncclUniqueId id;
  for (std::size_t i = 0; i < sizeof id.internal; ++i) {
    id.internal[i] = static_cast<char>(std::stoi(digits.substr(2 * i, 2), nullptr, 16));
  }
  for (const Program& program : programs) {
    if (name != program.name) continue;
    const Process process = join(id, 1, 2);
    program.rank_1(process);
    leave(process);
  }
  return failures == 0 ? 0 : 1;
}
