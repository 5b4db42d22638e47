#include "movement.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include <lockstep/fold.hpp>
#include <lockstep/row_bytes.hpp>

#include "limits.hpp"

namespace lockstep::mpi {
namespace {

using Bytes = std::span<const std::byte>;
using MutableBytes = std::span<std::byte>;

std::size_t index(std::int64_t value) {
  return static_cast<std::size_t>(value);
}

// Sends outgoing[p] to each peer p while incoming[p] arrives from it; entry `rank` of both is this
// rank's own and ignored. The spans lie in the tensors `kept`.
void swap(Link& link, const std::vector<Bytes>& outgoing, const std::vector<MutableBytes>& incoming,
          std::initializer_list<Tensor> kept) {
  Transfer transfer(link.comm());
  for (const Tensor& tensor : kept) transfer.keep(tensor);
  // Each rank starts with its neighbour, so that no rank is everybody's first.
  const std::size_t size = outgoing.size();
  const std::size_t rank = index(link.rank());
  for (std::size_t step = 1; step < size; ++step) {
    const std::size_t source = (rank + size - step) % size;
    transfer.receive(static_cast<int>(source), incoming[source]);
  }
  for (std::size_t step = 1; step < size; ++step) {
    const std::size_t destination = (rank + step) % size;
    transfer.send(static_cast<int>(destination), outgoing[destination]);
  }
  link.finish(std::move(transfer));
}

void copy(Bytes from, MutableBytes to) {
  if (!from.empty()) std::memcpy(to.data(), from.data(), from.size());
}

// Consecutive blocks of `bytes`, sizes[r] units of `unit` bytes each.
template <class Span>
std::vector<Span> blocks(Span bytes, std::span<const std::int64_t> sizes, std::int64_t unit) {
  std::vector<Span> result;
  result.reserve(sizes.size());
  for (std::int64_t size : sizes) {
    result.push_back(bytes.first(index(size * unit)));
    bytes = bytes.subspan(index(size * unit));
  }
  return result;
}

// `total` dealt to `ranks` as evenly as can be.
std::vector<std::int64_t> even_shards(std::int64_t total, int ranks) {
  std::vector<std::int64_t> sizes(index(ranks), total / ranks);
  for (std::int64_t extra = 0; extra < total % ranks; ++extra) ++sizes[index(extra)];
  return sizes;
}

// Folds x and the peers' addends of as many bytes as `own` into `sum`: outgoing[p] is what peer p
// needs of x, `own` what this rank needs.
void gather_and_fold(Link& link, const Tensor& x, const std::vector<Bytes>& outgoing, Bytes own,
                     SumRule rule, MutableBytes sum) {
  const std::size_t ranks = outgoing.size();
  const std::size_t rank = index(link.rank());
  Tensor scratch =
      Tensor::uninitialized(DType::u8, {static_cast<std::int64_t>(ranks * own.size())});
  const std::vector<std::int64_t> sizes(ranks, static_cast<std::int64_t>(own.size()));
  const std::vector<MutableBytes> incoming = blocks(scratch.mutable_bytes(), sizes, 1);
  swap(link, outgoing, incoming, {x, scratch});

  std::vector<const std::byte*> addends(ranks);
  std::ranges::transform(incoming, addends.begin(),
                         [](MutableBytes block) { return block.data(); });
  addends[rank] = own.data();
  if (own.empty()) return;
  fold(rule, x.dtype(), addends, static_cast<std::int64_t>(own.size()) / size_of(x.dtype()),
       sum.data());
}

// May MPI do the adding? It has no 16-bit types, and counts the elements of all ranks in an int.
bool mpi_adds(const Tensor& x, SumRule rule) {
  return rule == SumRule::unspecified && (x.dtype() == DType::f32 || x.dtype() == DType::f64) &&
         x.size_bytes() <= limits().message_bytes;
}

// Sums x over all ranks, of which rank r gets the shards[r] elements that follow those of the ranks
// before it; this rank's go to `sum`, which lies in `result`.
void sum_shards(Link& link, const Tensor& x, const std::vector<std::int64_t>& shards, SumRule rule,
                const Tensor& result, MutableBytes sum) {
  if (mpi_adds(x, rule)) {
    Transfer transfer(link.comm());
    transfer.keep(x);
    transfer.keep(result);
    transfer.reduce_scatter(x.data(), sum.data(), {shards.begin(), shards.end()},
                            x.dtype() == DType::f32 ? MPI_FLOAT : MPI_DOUBLE);
    link.finish(std::move(transfer));
    return;
  }
  const std::vector<Bytes> outgoing = blocks(x.bytes(), shards, size_of(x.dtype()));
  gather_and_fold(link, x, outgoing, outgoing[index(link.rank())], rule, sum);
}

// Brings every rank's shard of `result`, which `place` shows by rank, to all others.
void gather_shards(Link& link, const Tensor& result, const std::vector<MutableBytes>& place) {
  const std::vector<Bytes> outgoing(place.size(), place[index(link.rank())]);
  swap(link, outgoing, place, {result});
}

}  // namespace

// A world of one returns its tensor as it is: nothing is added to it, so it keeps every bit.

Tensor all_gather(Link& link, const Tensor& x) {
  if (link.size() == 1) return x;
  Tensor result = Tensor::uninitialized(x.dtype(), x.shape().with_rows(x.rows() * link.size()));
  const std::vector<std::int64_t> sizes(index(link.size()), x.size_bytes());
  const std::vector<MutableBytes> place = blocks(result.mutable_bytes(), sizes, 1);
  copy(x.bytes(), place[index(link.rank())]);
  gather_shards(link, result, place);
  return result;
}

Tensor broadcast(Link& link, const Tensor& x, int root) {
  if (link.size() == 1) return x;
  const bool is_root = link.rank() == root;
  Tensor result = is_root ? x : Tensor::uninitialized(x.dtype(), x.shape());
  // The root's own tensor is its result. MPI only reads it, though its signature cannot say so.
  const MutableBytes bytes = is_root
                                 ? MutableBytes(const_cast<std::byte*>(x.data()), x.bytes().size())
                                 : result.mutable_bytes();
  Transfer transfer(link.comm());
  transfer.broadcast(bytes, root);
  transfer.keep(result);
  link.finish(std::move(transfer));
  return result;
}

Tensor reduce_scatter(Link& link, const Tensor& x, SumRule rule) {
  if (link.size() == 1) return x;
  Tensor result = Tensor::uninitialized(x.dtype(), x.shape().with_rows(x.rows() / link.size()));
  if (x.elements() == 0) return result;  // and so on every rank
  const std::vector<std::int64_t> shards(index(link.size()), result.elements());
  const MutableBytes sum = result.mutable_bytes();
  sum_shards(link, x, shards, rule, result, sum);
  return result;
}

// Each element is added up by one rank, whose bits all others get, except for tensors so small that
// every rank does the same additions itself. MPI_Allreduce would not do: with recursive doubling
// (Open MPI and MPICH use it for small tensors) one partner computes a + b and the other b + a, and
// the hardware gives the sum of two NaNs the payload of the first.
Tensor all_reduce(Link& link, const Tensor& x, SumRule rule) {
  if (link.size() == 1) return x;
  Tensor result = Tensor::uninitialized(x.dtype(), x.shape());
  if (x.elements() == 0) return result;  // and so on every rank
  const MutableBytes bytes = result.mutable_bytes();
  if (x.size_bytes() <= limits().one_step_bytes / link.size()) {
    const std::vector<Bytes> outgoing(index(link.size()), x.bytes());
    gather_and_fold(link, x, outgoing, x.bytes(), rule, bytes);
    return result;
  }
  const std::vector<std::int64_t> shards = even_shards(x.elements(), link.size());
  const std::vector<MutableBytes> place = blocks(bytes, shards, size_of(x.dtype()));
  sum_shards(link, x, shards, rule, result, place[index(link.rank())]);
  gather_shards(link, result, place);
  return result;
}

Tensor all_to_all_v(Link& link, const Tensor& x, std::span<const std::int64_t> send_counts,
                    std::span<const std::int64_t> receive_counts) {
  if (link.size() == 1) return x;
  const std::int64_t rows =
      std::accumulate(receive_counts.begin(), receive_counts.end(), std::int64_t{0});
  Tensor result = Tensor::uninitialized(x.dtype(), x.shape().with_rows(rows));
  const std::int64_t row = row_bytes(x.dtype(), x.shape());
  const std::vector<Bytes> outgoing = blocks(x.bytes(), send_counts, row);
  const std::vector<MutableBytes> incoming = blocks(result.mutable_bytes(), receive_counts, row);
  copy(outgoing[index(link.rank())], incoming[index(link.rank())]);
  swap(link, outgoing, incoming, {x, result});
  return result;
}

}  // namespace lockstep::mpi
