#include "ring.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "names.hpp"

namespace lockstep::nccl {
namespace {

// SplitMix64 (Steele, Lea and Flood, 2014).
std::uint64_t draw(std::uint64_t& state) {
  std::uint64_t z = state += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// Small ones too, so that small tensors see several orders.
constexpr std::size_t chunk_sizes[] = {4, 1, 2, 3, 16, 64, 1000, 4096, 65536};
constexpr std::size_t most_chunks = 4096;  // in one block: longer blocks have longer chunks

}  // namespace

Ring::Ring(int ranks, std::uint64_t seed)
    : order_(static_cast<std::size_t>(ranks)), chunk_elements_(chunk_sizes[0]) {
  std::iota(order_.begin(), order_.end(), 0);
  if (seed == 0) return;
  std::uint64_t state = seed;
  for (std::size_t left = order_.size(); left > 1; --left) {
    std::swap(order_[left - 1], order_[draw(state) % left]);
  }
  chunk_elements_ = chunk_sizes[draw(state) % std::size(chunk_sizes)];
}

int Ring::position_of(int rank) const {
  return static_cast<int>(std::find(order_.begin(), order_.end(), rank) - order_.begin());
}

void reduce_around(const Ring& ring, std::span<const Addends> addends, ncclDataType_t datatype,
                   int first, int turn, std::span<std::byte> result) {
  const std::size_t ranks = ring.order().size();
  const std::size_t size = size_of(datatype);
  const std::size_t elements = result.size() / size;
  const std::size_t chunk_bytes =
      std::max(ring.chunk_elements(), (elements + most_chunks - 1) / most_chunks) * size;
  const bool floating = is_floating(datatype);
  const Scalar average = reciprocal(static_cast<int>(ranks), datatype);
  std::vector<std::byte> travelling;
  std::size_t start = static_cast<std::size_t>(first) % ranks;
  for (std::size_t at = 0; at < result.size(); at += chunk_bytes) {
    const std::size_t length = std::min(chunk_bytes, result.size() - at);
    const std::span<std::byte> partial = result.subspan(at, length);
    for (std::size_t hop = 0; hop < ranks; ++hop) {
      const Addends& mine = addends[static_cast<std::size_t>(ring.order()[(start + hop) % ranks])];
      std::span<const std::byte> values = mine.values.subspan(at, length);
      const bool averages = mine.op == Operator::avg && floating;
      if (mine.op == Operator::premultiplied_sum || averages) {
        travelling.assign(values.begin(), values.end());
        multiply(travelling, datatype, averages ? average : mine.scalar);
        values = travelling;
      }
      if (hop == 0) {
        std::memcpy(partial.data(), values.data(), length);
      } else {
        combine(partial, values, datatype, mine.op);
      }
    }
    if (addends[0].op == Operator::avg && !floating) {
      divide(partial, datatype, static_cast<int>(ranks));
    }
    start = (start + static_cast<std::size_t>(turn)) % ranks;
  }
}

}  // namespace lockstep::nccl
