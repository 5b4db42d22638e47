// An NCCL program that checks all it gets: every operation, for every datatype. Host code like that
// of any NCCL program: it knows nothing of the simulation that it is run on.
//
//   nccl-results group N      one thread drives N devices
//   nccl-results threads N    one thread for each of N devices
//   nccl-results split N      threads whose communicator does not block, split by parity
//   nccl-results abort N      threads of which the last aborts instead of making its call
//   nccl-results order        prints sums of three ranks that depend on their order
//   nccl-results processes    one device for each process of MPI (where built with it)
//
// Exits 1 and says where when a call fails or a result is wrong.
#include "nccl_results.hpp"

#ifdef WITH_MPI
#include <mpi.h>
#endif

#include <cstdlib>
#include <string>
#include <thread>

namespace {

Rank make_rank(int rank, int ranks, int device) {
  Rank made{.rank = rank, .ranks = ranks, .device = device};
  CUDA(cudaSetDevice(device));
  CUDA(cudaStreamCreateWithFlags(&made.stream, cudaStreamNonBlocking));
  return made;
}

void unmake(std::vector<Rank>& ranks) {
  for (const Rank& rank : ranks) {
    CUDA(cudaSetDevice(rank.device));
    CUDA(cudaStreamSynchronize(rank.stream));
    NCCL(ncclCommDestroy(rank.comm));
    CUDA(cudaStreamDestroy(rank.stream));
  }
}

void one_thread(int n) {
  std::vector<ncclComm_t> comms(static_cast<std::size_t>(n));
  NCCL(ncclCommInitAll(comms.data(), n, nullptr));
  std::vector<Rank> ranks;
  for (int rank = 0; rank < n; ++rank) {
    ranks.push_back(make_rank(rank, n, rank));
    ranks.back().comm = comms[static_cast<std::size_t>(rank)];
  }
  all_operations(ranks);
  unmake(ranks);
}

// Sums of 1e8, 1 and -1e8 from ranks 0, 1 and 2: 1 where the first and the last meet first, else 0.
void print_order() {
  constexpr int n = 3;
  constexpr int count = 12;
  ncclComm_t comms[n] = {};
  NCCL(ncclCommInitAll(comms, n, nullptr));
  std::vector<Rank> ranks;
  std::vector<float*> data;
  for (int rank = 0; rank < n; ++rank) {
    ranks.push_back(make_rank(rank, n, rank));
    ranks.back().comm = comms[rank];
    const std::vector<float> values(count, rank == 0 ? 1e8f : rank == 1 ? 1.0f : -1e8f);
    float* place = nullptr;
    CUDA(cudaMalloc(reinterpret_cast<void**>(&place), 2 * count * sizeof(float)));
    CUDA(cudaMemcpy(place, values.data(), count * sizeof(float), cudaMemcpyHostToDevice));
    CUDA(cudaDeviceSynchronize());
    data.push_back(place);
  }
  const auto print = [&](const char* name, int rank, int elements) {
    std::vector<float> values(static_cast<std::size_t>(elements));
    const Rank& from = ranks[static_cast<std::size_t>(rank)];
    CUDA(cudaSetDevice(rank));
    CUDA(cudaStreamSynchronize(from.stream));
    CUDA(cudaMemcpy(values.data(), data[static_cast<std::size_t>(rank)] + count,
                    values.size() * sizeof(float), cudaMemcpyDeviceToHost));
    std::printf("%s", name);
    for (const float value : values) std::printf(" %g", static_cast<double>(value));
    std::printf("\n");
  };
  const auto together = [&](auto call) {
    NCCL(ncclGroupStart());
    for (std::size_t rank = 0; rank < n; ++rank) {
      NCCL(call(data[rank], data[rank] + count, ranks[rank]));
    }
    NCCL(ncclGroupEnd());
  };
  together([](float* sent, float* received, const Rank& r) {
    return ncclAllReduce(sent, received, count, ncclFloat, ncclSum, r.comm, r.stream);
  });
  print("all-reduce", 0, count);
  for (int root = 0; root < n; ++root) {
    together([=](float* sent, float* received, const Rank& r) {
      return ncclReduce(sent, received, 1, ncclFloat, ncclSum, root, r.comm, r.stream);
    });
    print("reduce", root, 1);
  }
  together([](float* sent, float* received, const Rank& r) {
    return ncclReduceScatter(sent, received, 4, ncclFloat, ncclSum, r.comm, r.stream);
  });
  for (int rank = 0; rank < n; ++rank) print("reduce-scatter", rank, 4);
  unmake(ranks);
  for (float* place : data) CUDA(cudaFree(place));
}

void many_threads(int n, bool split) {
  ncclUniqueId id;
  NCCL(ncclGetUniqueId(&id));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < n; ++rank) {
    threads.emplace_back([=] {
      std::vector<Rank> ranks = {make_rank(rank, n, rank)};
      mine = &ranks;
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = split ? 0 : 1;
      NCCL(ncclCommInitRankConfig(&ranks[0].comm, n, id, rank, &config));
      if (split) {
        // Odd and even ranks apart, the last first; rank 0 stays alone with nobody.
        std::vector<Rank> part = ranks;
        const int color = rank == 0 ? NCCL_SPLIT_NOCOLOR : rank % 2;
        part[0].comm = nullptr;
        NCCL(ncclCommSplit(ranks[0].comm, color, -rank, &part[0].comm, nullptr));
        if (color == NCCL_SPLIT_NOCOLOR) {
          EXPECT(part[0].comm == nullptr);
        } else {
          NCCL(ncclCommCount(part[0].comm, &part[0].ranks));
          NCCL(ncclCommUserRank(part[0].comm, &part[0].rank));
          EXPECT(part[0].ranks == (rank % 2 == 1 ? n / 2 : (n - 1) / 2));
          EXPECT(part[0].rank == (n - 1 - rank) / 2);
          all_operations(part);
          mine = &part;
          NCCL(ncclCommFinalize(part[0].comm));
          NCCL(ncclCommDestroy(part[0].comm));
        }
        mine = &ranks;
      }
      all_operations(ranks);
      unmake(ranks);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// The others learn of it by polling, and abort as well: nobody hangs, and streams come to their
// end.
void one_aborts(int n) {
  ncclUniqueId id;
  NCCL(ncclGetUniqueId(&id));
  std::atomic<int> joined{0};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < n; ++rank) {
    threads.emplace_back([=, &joined] {
      const Rank made = make_rank(rank, n, rank);
      std::vector<Rank> ranks = {made};
      mine = &ranks;
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = 0;
      NCCL(ncclCommInitRankConfig(&ranks[0].comm, n, id, rank, &config));
      ++joined;
      while (joined < n) std::this_thread::yield();
      void* data = nullptr;
      CUDA(cudaMallocAsync(&data, 5 * sizeof(float), made.stream));
      CUDA(cudaMemsetAsync(data, 0, 5 * sizeof(float), made.stream));
      ncclResult_t state = ncclSuccess;
      if (rank != n - 1) {
        state = ncclAllReduce(data, data, 5, ncclFloat, ncclSum, ranks[0].comm, made.stream);
        while (state == ncclSuccess || state == ncclInProgress) {
          EXPECT(ncclCommGetAsyncError(ranks[0].comm, &state) == ncclSuccess);
          if (state == ncclSuccess && cudaStreamQuery(made.stream) == cudaSuccess) break;
        }
        EXPECT(state == ncclRemoteError);
      }
      EXPECT(ncclCommAbort(ranks[0].comm) == ncclSuccess);
      CUDA(cudaStreamSynchronize(made.stream));
      CUDA(cudaFreeAsync(data, made.stream));
      CUDA(cudaStreamSynchronize(made.stream));
      CUDA(cudaStreamDestroy(made.stream));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

#ifdef WITH_MPI
void processes() {
  MPI_Init(nullptr, nullptr);
  int rank = 0;
  int n = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &n);
  ncclUniqueId id;
  if (rank == 0) NCCL(ncclGetUniqueId(&id));
  MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
  std::vector<Rank> ranks = {make_rank(rank, n, rank)};
  NCCL(ncclCommInitRank(&ranks[0].comm, n, id, rank));
  all_operations(ranks);
  unmake(ranks);
  MPI_Finalize();
}
#endif

}  // namespace

int main(int count, char** arguments) {
  const std::string mode = count > 1 ? arguments[1] : "";
  const int n = count > 2 ? std::atoi(arguments[2]) : 0;
  if (mode == "group") {
    one_thread(n);
  } else if (mode == "threads" || mode == "split") {
    many_threads(n, mode == "split");
  } else if (mode == "order") {
    print_order();
  } else if (mode == "abort") {
    one_aborts(n);
#ifdef WITH_MPI
  } else if (mode == "processes") {
    processes();
#endif
  } else {
    return 2;
  }
  std::printf("%d failures\n", failures.load());
  return failures == 0 ? 0 : 1;
}
