#include "movement.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include <lockstep/fold.hpp>

#include "limits.hpp"

namespace lockstep::mpi {
namespace {

using Bytes = std::span<const std::byte>;
using MutableBytes = std::span<std::byte>;

std::size_t index(std::int64_t value) { return static_cast<std::size_t>(value); }

// Sends outgoing[p] to each peer p while incoming[p] arrives from it; this rank's own bytes are
// copied. The spans lie in the tensors `kept`.
void swap(Link& link, const std::vector<Bytes>& outgoing, const std::vector<MutableBytes>& incoming,
          std::initializer_list<Tensor> kept) {
  Transfer transfer(link.comm());
  for (const Tensor& tensor : kept) transfer.keep(tensor);
  // Each rank starts with its neighbour, so that no rank is everybody's first.
  const auto size = outgoing.size();
  const auto rank = index(link.rank());
  for (std::size_t step = 1; step < size; ++step) {
    const std::size_t source = (rank + size - step) % size;
    transfer.receive(static_cast<int>(source), incoming[source]);
  }
  for (std::size_t step = 1; step < size; ++step) {
    const std::size_t destination = (rank + step) % size;
    transfer.send(static_cast<int>(destination), outgoing[destination]);
  }
  if (!outgoing[rank].empty() && outgoing[rank].data() != incoming[rank].data()) {
    std::memcpy(incoming[rank].data(), outgoing[rank].data(), outgoing[rank].size());
  }
  link.finish(std::move(transfer));
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
  for (std::int64_t extra = total % ranks; extra > 0; --extra) ++sizes[index(extra - 1)];
  return sizes;
}

// The sum of this rank's shard, computed here: everybody's shard for this rank comes here and is
// added in the way `rule` says.
void sum_here(Link& link, const Tensor& x, std::span<const std::int64_t> shards, SumRule rule,
              const Tensor& result, MutableBytes sum) {
  const auto ranks = shards.size();
  const std::int64_t element = size_of(x.dtype());
  const std::vector<Bytes> outgoing = blocks(x.bytes(), shards, element);
  const std::int64_t mine = shards[index(link.rank())];
  Tensor scratch = Tensor::uninitialized(
      DType::u8, {static_cast<std::int64_t>(ranks - 1) * static_cast<std::int64_t>(sum.size())});
  std::vector<std::int64_t> arriving(ranks, mine);
  arriving[index(link.rank())] = 0;
  std::vector<MutableBytes> incoming = blocks(scratch.mutable_bytes(), arriving, element);

  std::vector<const std::byte*> addends;
  for (MutableBytes block : incoming) addends.push_back(block.data());
  addends[index(link.rank())] = outgoing[index(link.rank())].data();
  (void)result;
  swap(link, outgoing, incoming, {x, scratch});
  fold(rule, x.dtype(), addends, mine, sum.data());
}

}  // namespace
}  // namespace lockstep::mpi
