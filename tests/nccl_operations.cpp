// Every operation of NCCL for every datatype, with all that it gives checked.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include "nccl_results.hpp"

namespace {

constexpr ncclDataType_t datatypes[] = {ncclInt8,    ncclUint8,    ncclInt32,      ncclUint32,
                                        ncclInt64,   ncclUint64,   ncclFloat16,    ncclFloat32,
                                        ncclFloat64, ncclBfloat16, ncclFloat8e4m3, ncclFloat8e5m2};
constexpr int sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

std::size_t size_of(ncclDataType_t datatype) {
  return static_cast<std::size_t>(sizes[datatype]);
}

// An element of any datatype from a number and back.
template <class Visit>
auto with_type(ncclDataType_t datatype, Visit visit) {
  switch (datatype) {
    case ncclInt8:
      return visit(std::int8_t{});
    case ncclUint8:
      return visit(std::uint8_t{});
    case ncclInt32:
      return visit(std::int32_t{});
    case ncclUint32:
      return visit(std::uint32_t{});
    case ncclInt64:
      return visit(std::int64_t{});
    case ncclUint64:
      return visit(std::uint64_t{});
    case ncclFloat16:
      return visit(__half{});
    case ncclFloat32:
      return visit(float{});
    case ncclFloat64:
      return visit(double{});
    case ncclBfloat16:
      return visit(__nv_bfloat16{});
    case ncclFloat8e4m3:
      return visit(__nv_fp8_e4m3{});
    default:
      return visit(__nv_fp8_e5m2{});
  }
}
void store(ncclDataType_t datatype, double value, std::byte* to) {
  with_type(datatype, [&](auto element) {
    element = static_cast<decltype(element)>(static_cast<float>(value));
    std::memcpy(to, &element, sizeof element);
  });
}
double load(ncclDataType_t datatype, const std::byte* from) {
  return with_type(datatype, [&](auto element) {
    std::memcpy(&element, from, sizeof element);
    return static_cast<double>(static_cast<float>(element));
  });
}

// What a rank contributes: small, so that every sum is exact in every datatype.
double value(int rank, int at) {
  return (rank + at) % 3;
}

class Buffer {
 public:
  // Filled by the rank's stream.
  Buffer(const Rank& rank, ncclDataType_t datatype, int elements, int contents_of)
      : rank_(rank), datatype_(datatype), elements_(elements) {
    CUDA(cudaSetDevice(rank.device));
    host_.resize(static_cast<std::size_t>(elements) * size_of(datatype));
    CUDA(cudaMallocAsync(&data_, host_.size() + 8, rank.stream));
    for (int at = 0; at < elements; ++at) {
      const double number = contents_of < 0 ? 7 : value(contents_of, at);
      store(datatype, number, &host_[static_cast<std::size_t>(at) * size_of(datatype)]);
    }
    CUDA(cudaMemcpyAsync(data_, host_.data(), host_.size(), cudaMemcpyHostToDevice, rank.stream));
  }
  ~Buffer() {
    CUDA(cudaSetDevice(rank_.device));
    CUDA(cudaFreeAsync(data_, rank_.stream));
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  std::byte* at(int element) const {
    return static_cast<std::byte*>(data_) + static_cast<std::size_t>(element) * size_of(datatype_);
  }
  std::vector<double> read() {
    CUDA(cudaSetDevice(rank_.device));
    CUDA(cudaMemcpyAsync(host_.data(), data_, host_.size(), cudaMemcpyDeviceToHost, rank_.stream));
    CUDA(cudaStreamSynchronize(rank_.stream));
    std::vector<double> values;
    for (int at = 0; at < elements_; ++at) {
      values.push_back(load(datatype_, &host_[static_cast<std::size_t>(at) * size_of(datatype_)]));
    }
    return values;
  }

 private:
  const Rank rank_;
  const ncclDataType_t datatype_;
  const int elements_;
  void* data_ = nullptr;
  std::vector<std::byte> host_;
};

// Runs an operation on all ranks of this thread: `call(rank, sent, received)` in one group, then
// compares what each has received with `expected(rank, element)`. Buffers hold `send` and `receive`
// elements.
template <class Call, class Expected>
void round(std::vector<Rank>& ranks, ncclDataType_t datatype, int send, int receive, Call call,
           Expected expected, int line) {
  std::vector<std::unique_ptr<Buffer>> sent;
  std::vector<std::unique_ptr<Buffer>> received;
  for (const Rank& rank : ranks) {
    sent.push_back(std::make_unique<Buffer>(rank, datatype, send, rank.rank));
    received.push_back(std::make_unique<Buffer>(rank, datatype, receive, -1));
  }
  NCCL(ncclGroupStart());
  for (std::size_t i = 0; i < ranks.size(); ++i) call(ranks[i], *sent[i], *received[i]);
  NCCL(ncclGroupEnd());
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const std::vector<double> values = received[i]->read();
    for (int at = 0; at < receive; ++at) {
      const double want = expected(ranks[i], at);
      if (values[static_cast<std::size_t>(at)] == want) continue;
      expect(false, "", line);
      std::printf("line %d: datatype %d, rank %d of %d, element %d: %g instead of %g\n", line,
                  static_cast<int>(datatype), ranks[i].rank, ranks[i].ranks, at,
                  values[static_cast<std::size_t>(at)], want);
      break;
    }
  }
}

double sum(int ranks, int at) {
  double total = 0;
  for (int rank = 0; rank < ranks; ++rank) total += value(rank, at);
  return total;
}

void operate(std::vector<Rank>& ranks, ncclDataType_t t) {
  const int n = ranks.front().ranks;
  const int count = 11;
  const auto all_reduce = [&](ncclRedOp_t op) {
    return [&, op](const Rank& r, const Buffer& sent, const Buffer& received) {
      NCCL(ncclAllReduce(sent.at(0), received.at(0), count, t, op, r.comm, r.stream));
    };
  };
  round(
      ranks, t, count, count, all_reduce(ncclSum), [&](const Rank&, int at) { return sum(n, at); },
      __LINE__);
  round(
      ranks, t, count, count, all_reduce(ncclProd),
      [&](const Rank&, int at) {
        double product = 1;
        for (int rank = 0; rank < n; ++rank) product *= value(rank, at);
        return product;
      },
      __LINE__);
  round(
      ranks, t, count, count, all_reduce(ncclMax),
      [&](const Rank&, int at) {
        double most = 0;
        for (int rank = 0; rank < n; ++rank) most = std::max(most, value(rank, at));
        return most;
      },
      __LINE__);
  round(
      ranks, t, count, count, all_reduce(ncclMin),
      [&](const Rank&, int at) {
        double least = 9;
        for (int rank = 0; rank < n; ++rank) least = std::min(least, value(rank, at));
        return least;
      },
      __LINE__);
  // Halves and quarters are exact in every floating datatype.
  if (n == 1 || n == 2 || n == 4) {
    round(
        ranks, t, count, count, all_reduce(ncclAvg),
        [&](const Rank&, int at) {
          const double mean = sum(n, at) / n;
          return t <= ncclUint64 ? static_cast<double>(static_cast<int>(mean)) : mean;
        },
        __LINE__);
  }
  round(
      ranks, t, n * count, count,
      [&](const Rank& r, const Buffer& sent, const Buffer& received) {
        NCCL(ncclReduceScatter(sent.at(0), received.at(0), count, t, ncclSum, r.comm, r.stream));
      },
      [&](const Rank& r, int at) { return sum(n, r.rank * count + at); }, __LINE__);
  round(
      ranks, t, count, n * count,
      [&](const Rank& r, const Buffer& sent, const Buffer& received) {
        NCCL(ncclAllGather(sent.at(0), received.at(0), count, t, r.comm, r.stream));
      },
      [&](const Rank&, int at) { return value(at / count, at % count); }, __LINE__);
  round(
      ranks, t, n * count, n * count,
      [&](const Rank& r, const Buffer& sent, const Buffer& received) {
        NCCL(ncclAlltoAll(sent.at(0), received.at(0), count, t, r.comm, r.stream));
      },
      [&](const Rank& r, int at) { return value(at / count, r.rank * count + at % count); },
      __LINE__);
  // In place, on a copy of what the rank contributes: gather the own blocks, reduce into them.
  const auto copied = [&](const Rank& r, const Buffer& sent, const Buffer& received) {
    CUDA(cudaMemcpyAsync(received.at(0), sent.at(0),
                         static_cast<std::size_t>(n * count) * size_of(t), cudaMemcpyDeviceToDevice,
                         r.stream));
    return received.at(r.rank * count);
  };
  round(
      ranks, t, n * count, n * count,
      [&](const Rank& r, const Buffer& sent, const Buffer& received) {
        NCCL(ncclAllGather(copied(r, sent, received), received.at(0), count, t, r.comm, r.stream));
      },
      [&](const Rank&, int at) { return value(at / count, at); }, __LINE__);
  round(
      ranks, t, n * count, n * count,
      [&](const Rank& r, const Buffer& sent, const Buffer& received) {
        std::byte* const block = copied(r, sent, received);
        NCCL(ncclReduceScatter(received.at(0), block, count, t, ncclSum, r.comm, r.stream));
      },
      [&](const Rank& r, int at) { return at / count == r.rank ? sum(n, at) : value(r.rank, at); },
      __LINE__);
  for (int root = 0; root < n; ++root) {
    const auto at_root = [&](const Rank& r, double there) { return r.rank == root ? there : 7; };
    round(
        ranks, t, count, count,
        [&](const Rank& r, const Buffer& sent, const Buffer& received) {
          NCCL(ncclBroadcast(sent.at(0), received.at(0), count, t, root, r.comm, r.stream));
        },
        [&](const Rank&, int at) { return value(root, at); }, __LINE__);
    round(
        ranks, t, count, count,
        [&](const Rank& r, const Buffer& sent, const Buffer& received) {
          NCCL(ncclReduce(sent.at(0), received.at(0), count, t, ncclSum, root, r.comm, r.stream));
        },
        [&](const Rank& r, int at) { return at_root(r, sum(n, at)); }, __LINE__);
    round(
        ranks, t, count, n * count,
        [&](const Rank& r, const Buffer& sent, const Buffer& received) {
          NCCL(ncclGather(sent.at(0), received.at(0), count, t, root, r.comm, r.stream));
        },
        [&](const Rank& r, int at) { return at_root(r, value(at / count, at % count)); }, __LINE__);
    round(
        ranks, t, n * count, count,
        [&](const Rank& r, const Buffer& sent, const Buffer& received) {
          NCCL(ncclScatter(sent.at(0), received.at(0), count, t, root, r.comm, r.stream));
        },
        [&](const Rank& r, int at) { return value(root, r.rank * count + at); }, __LINE__);
  }
  // Rank s sends s + 1 elements to everybody, and the group holds a collective as well.
  round(
      ranks, t, count, n * (n + 1) / 2,
      [&](const Rank& r, const Buffer& sent, const Buffer& received) {
        for (int peer = 0; peer < n; ++peer) {
          const int offset = peer * (peer + 1) / 2;
          NCCL(ncclRecv(received.at(offset), static_cast<std::size_t>(peer + 1), t, peer, r.comm,
                        r.stream));
          NCCL(ncclSend(sent.at(0), static_cast<std::size_t>(r.rank + 1), t, peer, r.comm,
                        r.stream));
        }
        NCCL(
            ncclAllReduce(sent.at(count - 1), sent.at(count - 1), 1, t, ncclMax, r.comm, r.stream));
      },
      [&](const Rank&, int at) {
        int peer = 0;
        while (at > peer) at -= ++peer;
        return value(peer, at);
      },
      __LINE__);
  // Nothing to do, and nobody has to be there.
  round(
      ranks, t, 1, 1,
      [&](const Rank& r, const Buffer& sent, const Buffer& received) {
        if (r.rank == 0) {
          NCCL(ncclAllReduce(sent.at(0), received.at(0), 0, t, ncclSum, r.comm, r.stream));
        }
      },
      [](const Rank&, int) { return 7.0; }, __LINE__);
}

// A sum whose addends are multiplied first: by rank + 1, from the host or from the device.
void premultiplied_sums(std::vector<Rank>& ranks) {
  const int n = ranks.front().ranks;
  for (const ncclScalarResidence_t residence : {ncclScalarHostImmediate, ncclScalarDevice}) {
    std::vector<ncclRedOp_t> operators(ranks.size());
    std::vector<float*> scalars(ranks.size());
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      const Rank& r = ranks[i];
      CUDA(cudaSetDevice(r.device));
      float factor = static_cast<float>(r.rank + 1);
      CUDA(cudaMalloc(reinterpret_cast<void**>(&scalars[i]), sizeof factor));
      CUDA(cudaMemcpy(scalars[i], &factor, sizeof factor, cudaMemcpyHostToDevice));
      CUDA(cudaDeviceSynchronize());
      void* const scalar = residence == ncclScalarDevice ? static_cast<void*>(scalars[i]) : &factor;
      NCCL(ncclRedOpCreatePreMulSum(&operators[i], scalar, ncclFloat, residence, r.comm));
    }
    round(
        ranks, ncclFloat, 9, 9,
        [&](const Rank& r, const Buffer& sent, const Buffer& received) {
          const auto i = static_cast<std::size_t>(&r - ranks.data());
          NCCL(ncclAllReduce(sent.at(0), received.at(0), 9, ncclFloat, operators[i], r.comm,
                             r.stream));
        },
        [&](const Rank&, int at) {
          double total = 0;
          for (int rank = 0; rank < n; ++rank) total += (rank + 1) * value(rank, at);
          return total;
        },
        __LINE__);
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      CUDA(cudaSetDevice(ranks[i].device));
      NCCL(ncclRedOpDestroy(operators[i], ranks[i].comm));
      CUDA(cudaFree(scalars[i]));
    }
  }
}

}  // namespace

void all_operations(std::vector<Rank>& ranks) {
  mine = &ranks;
  for (const ncclDataType_t datatype : datatypes) operate(ranks, datatype);
  premultiplied_sums(ranks);
}
