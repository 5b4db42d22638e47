// Mistakes in collectives and transfers, their buffers and their streams.
#include "nccl_mistakes.hpp"

namespace {

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

void a_stream_of_another_device() {
  Ranks r(2);
  together(r, [&](std::size_t rank) {
    return ncclAllReduce(r.sent[rank], r.received[rank], 4, ncclFloat, ncclSum, r.comms[rank],
                         r.streams[mistaken ? 0 : rank]);
  });
  r.synchronize();
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
    {"a_stream_of_another_device", a_stream_of_another_device},
    {"a_root_that_is_none", a_root_that_is_none},
    {"a_destroyed_operator", a_destroyed_operator},
};

}  // namespace

std::span<const Program> mistakes_in_calls() {
  return programs;
}
