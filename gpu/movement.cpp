#include "movement.hpp"

#include <algorithm>
#include <numeric>
#include <optional>
#include <vector>

#include <lockstep/row_bytes.hpp>

#include "elements.hpp"

namespace lockstep::gpu {
namespace {

std::size_t index(std::int64_t value) {
  return static_cast<std::size_t>(value);
}

// Elements that are only moved travel as bytes, so that they keep every bit.
constexpr ncclDataType_t as_bytes = ncclUint8;

ncclDataType_t nccl_type(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return ncclFloat16;
    case DType::bf16:
      return ncclBfloat16;
    case DType::f32:
      return ncclFloat32;
    default:
      return ncclFloat64;
  }
}

void copy_on_device(const Link& link, std::byte* to, const std::byte* from, std::int64_t bytes) {
  if (bytes == 0) return;
  check(cudaMemcpyAsync(to, from, index(bytes), cudaMemcpyDeviceToDevice, link.stream().get()),
        "cudaMemcpyAsync on the device");
}

// A piece of device memory.
struct Piece {
  std::byte* data;
  std::int64_t bytes;
};
struct ConstPiece {
  const std::byte* data;
  std::int64_t bytes;
};

// Sends outgoing(p) to each peer p while incoming(p) arrives from it; pieces without bytes are
// nobody's message, and both sides know which those are.
template <class Outgoing, class Incoming>
void swap(Link& link, const Outgoing& outgoing, const Incoming& incoming) {
  // In step s, every rank sends to its s-th neighbour and receives from the rank whose s-th
  // neighbour it is: the two ends of a message are in the same step, and so in the same group.
  const int size = link.size();
  for (int begin = 1; begin < size; begin += limits().peers_per_group) {
    const int end = std::min(size, begin + limits().peers_per_group);
    link.submit("ncclSend and ncclRecv", [&](ncclComm_t comm) {
      ncclResult_t first = ncclGroupStart();
      const auto note = [&](ncclResult_t result) {
        if (first == ncclSuccess && result != ncclInProgress) first = result;
      };
      for (int step = begin; step < end; ++step) {
        const int to = (link.rank() + step) % size;
        const int from = (link.rank() + size - step) % size;
        const ConstPiece out = outgoing(to);
        const Piece in = incoming(from);
        if (out.bytes > 0) {
          note(ncclSend(out.data, index(out.bytes), as_bytes, to, comm, link.stream().get()));
        }
        if (in.bytes > 0) {
          note(ncclRecv(in.data, index(in.bytes), as_bytes, from, comm, link.stream().get()));
        }
      }
      const ncclResult_t ended = ncclGroupEnd();
      return first == ncclSuccess ? ended : first;
    });
  }
}

void gather(Link& link, const std::byte* from, std::byte* to, std::int64_t bytes_each) {
  link.submit("ncclAllGather", [&](ncclComm_t comm) {
    return ncclAllGather(from, to, index(bytes_each), as_bytes, comm, link.stream().get());
  });
}

// How an all-reduce deals its elements to the ranks: equally many to each, where the last ones may
// find none left. The result has room for as many as that makes.
struct Shards {
  Shards(std::int64_t all, int ranks) : elements(all), each((all + ranks - 1) / ranks) {}

  std::int64_t begin(int rank) const { return std::min(elements, rank * each); }
  std::int64_t size(int rank) const { return std::min(elements, (rank + 1) * each) - begin(rank); }

  std::int64_t elements;
  std::int64_t each;
};

// Brings every rank's part of x that this rank adds together in `scratch`, in blocks of `stride`
// bytes, and enqueues their sum.
template <class Outgoing>
void exchange_and_fold(Link& link, const Tensor& x, SumRule rule, const Outgoing& outgoing,
                       std::byte* scratch, std::int64_t stride, std::byte* sum) {
  const ConstPiece own = outgoing(link.rank());
  swap(link, outgoing, [&](int peer) { return Piece{scratch + peer * stride, own.bytes}; });
  enqueue(Fold{rule,
               x.dtype(),
               {.own = own.data,
                .own_rank = link.rank(),
                .blocks = scratch,
                .stride = stride,
                .count = link.size()},
               own.bytes / size_of(x.dtype()),
               sum},
          link.stream().get());
}

bool in_one_step(std::int64_t bytes, int ranks) {
  return bytes <= limits().one_step_bytes / ranks;
}

// The result of a call that moved something into its block.
Tensor delivered(Link& link, DType dtype, const Shape& shape,
                 const std::shared_ptr<Memory>& memory) {
  link.deliver(memory);
  return Tensor(dtype, shape, memory, 0);
}

}  // namespace

Limits& limits() {
  static Limits limits;
  return limits;
}

Needs needs_of(const Signature& call, int ranks, SumRule rule) {
  const std::optional<std::int64_t> elements = call.shape.elements();
  if (!elements || *elements == 0) return {};
  const std::int64_t element = size_of(call.dtype);
  const std::int64_t bytes = *elements * element;  // of a tensor that is there
  const bool adds_here = is_sum(call.operation) && rule != SumRule::unspecified && ranks > 1;
  switch (call.operation) {
    case Operation::all_gather_float:
    case Operation::all_gather_int:
      return {checked_multiply(bytes, ranks).value_or(0), 0};
    case Operation::reduce_scatter_sum:
      return {bytes / ranks, adds_here ? bytes : 0};
    case Operation::all_reduce_sum: {
      if (!adds_here) return {bytes, 0};
      if (in_one_step(bytes, ranks)) return {bytes, bytes * ranks};
      const std::int64_t padded = Shards(*elements, ranks).each * ranks * element;
      return {padded, padded};
    }
    case Operation::broadcast_float:
      return {bytes, 0};
    case Operation::all_to_all_v_float:
    case Operation::all_to_all_v_int:
    case Operation::split:
      return {};
  }
  return {};
}

Tensor all_gather(Link& link, const Tensor& x, const Blocks& blocks) {
  const Shape shape = x.shape().with_rows(x.rows() * link.size());
  if (x.elements() == 0) return Tensor(x.dtype(), shape, blocks.result, 0);  // and so everywhere
  link.connect();
  const Borrow borrowed(x, link.stream());
  gather(link, x.data(), blocks.result->data(), x.size_bytes());
  return delivered(link, x.dtype(), shape, blocks.result);
}

Tensor broadcast(Link& link, const Tensor& x, int root, const Blocks& blocks) {
  if (x.elements() == 0) return x;
  link.connect();
  const Borrow borrowed(x, link.stream());
  link.submit("ncclBroadcast", [&](ncclComm_t comm) {
    return ncclBroadcast(x.data(), blocks.result->data(), index(x.size_bytes()), as_bytes, root,
                         comm, link.stream().get());
  });
  return delivered(link, x.dtype(), x.shape(), blocks.result);
}

// In a world of one nothing is added, and NCCL is asked to move the tensor, so that it keeps every
// bit.

Tensor reduce_scatter(Link& link, const Tensor& x, SumRule rule, const Blocks& blocks) {
  const Shape shape = x.shape().with_rows(x.rows() / link.size());
  if (x.elements() == 0) return Tensor(x.dtype(), shape, blocks.result, 0);
  link.connect();
  const Borrow borrowed(x, link.stream());
  const std::int64_t elements = x.elements() / link.size();
  const std::int64_t bytes = elements * size_of(x.dtype());
  std::byte* sum = blocks.result->data();
  if (link.size() == 1) {
    gather(link, x.data(), sum, bytes);
  } else if (rule == SumRule::unspecified) {
    link.submit("ncclReduceScatter", [&](ncclComm_t comm) {
      return ncclReduceScatter(x.data(), sum, index(elements), nccl_type(x.dtype()), ncclSum, comm,
                               link.stream().get());
    });
  } else {
    exchange_and_fold(
        link, x, rule,
        [&](int peer) {
          return ConstPiece{x.data() + peer * bytes, bytes};
        },
        blocks.scratch->data(), bytes, sum);
  }
  return delivered(link, x.dtype(), shape, blocks.result);
}

Tensor all_reduce(Link& link, const Tensor& x, SumRule rule, const Blocks& blocks) {
  if (x.elements() == 0) return x;
  link.connect();
  const Borrow borrowed(x, link.stream());
  const std::int64_t element = size_of(x.dtype());
  std::byte* sum = blocks.result->data();
  if (link.size() == 1) {
    gather(link, x.data(), sum, x.size_bytes());
  } else if (rule == SumRule::unspecified) {
    link.submit("ncclAllReduce", [&](ncclComm_t comm) {
      return ncclAllReduce(x.data(), sum, index(x.elements()), nccl_type(x.dtype()), ncclSum, comm,
                           link.stream().get());
    });
  } else if (in_one_step(x.size_bytes(), link.size())) {
    std::byte* addends = blocks.scratch->data();
    gather(link, x.data(), addends, x.size_bytes());
    enqueue(Fold{rule,
                 x.dtype(),
                 {.own = addends + link.rank() * x.size_bytes(),
                  .own_rank = link.rank(),
                  .blocks = addends,
                  .stride = x.size_bytes(),
                  .count = link.size()},
                 x.elements(),
                 sum},
            link.stream().get());
  } else {
    const Shards shards(x.elements(), link.size());
    const std::int64_t each = shards.each * element;
    std::byte* own_sum = sum + link.rank() * each;
    exchange_and_fold(
        link, x, rule,
        [&](int peer) {
          return ConstPiece{x.data() + shards.begin(peer) * element, shards.size(peer) * element};
        },
        blocks.scratch->data(), each, own_sum);
    // What the last ranks pad with travels too, and should not be whatever was there before.
    const std::int64_t padding = each - shards.size(link.rank()) * element;
    if (padding > 0) {
      check(cudaMemsetAsync(own_sum + each - padding, 0, index(padding), link.stream().get()),
            "cudaMemsetAsync");
    }
    gather(link, own_sum, sum, each);
  }
  return delivered(link, x.dtype(), x.shape(), blocks.result);
}

Tensor all_to_all_v(Link& link, const Tensor& x, std::span<const std::int64_t> send_counts,
                    std::span<const std::int64_t> receive_counts, std::int64_t total_rows) {
  const std::int64_t rows =
      std::accumulate(receive_counts.begin(), receive_counts.end(), std::int64_t{0});
  const std::int64_t row = row_bytes(x.dtype(), x.shape());
  const Shape shape = x.shape().with_rows(rows);
  const std::shared_ptr<Memory> memory = Memory::allocate(rows * row, link.stream());
  if (total_rows == 0) return Tensor(x.dtype(), shape, memory, 0);
  link.connect();
  const Borrow borrowed(x, link.stream());

  const auto offsets = [&](std::span<const std::int64_t> counts) {
    std::vector<std::int64_t> list(counts.size());
    std::exclusive_scan(counts.begin(), counts.end(), list.begin(), std::int64_t{0});
    return list;
  };
  const std::vector<std::int64_t> sent_before = offsets(send_counts);
  const std::vector<std::int64_t> received_before = offsets(receive_counts);
  const auto outgoing = [&](int peer) {
    return ConstPiece{x.data() + sent_before[index(peer)] * row, send_counts[index(peer)] * row};
  };
  const auto incoming = [&](int peer) {
    return Piece{memory->data() + received_before[index(peer)] * row,
                 receive_counts[index(peer)] * row};
  };
  const ConstPiece own = outgoing(link.rank());
  copy_on_device(link, incoming(link.rank()).data, own.data, own.bytes);
  swap(link, outgoing, incoming);
  return delivered(link, x.dtype(), shape, memory);
}

}  // namespace lockstep::gpu
