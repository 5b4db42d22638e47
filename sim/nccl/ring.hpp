// The order in which a reduction adds up.
//
// The ranks stand on a ring. A block of elements is cut into chunks; a chunk starts at one rank of
// the ring, travels once around it, and at every rank that rank's elements are added to it, rounded
// to the datatype. Where it starts depends on the operation:
//
// - all-reduce: chunk number c starts at ring position c + 1 (modulo the ranks), so that
//   neighbouring chunks are added up in different orders;
// - reduce-scatter: the block of rank r starts just after r and ends at r;
// - reduce: every chunk starts just after the root and ends at the root.
//
// Which rank stands where on the ring, and how many elements a chunk has, follows from the seed
// and the communicator's size; a block never has more than 4096 chunks. Seed 0 is a ring in rank
// order and chunks of four elements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "reduction.hpp"

namespace lockstep::nccl {

class Ring {
 public:
  Ring(int ranks, std::uint64_t seed);

  const std::vector<int>& order() const { return order_; }
  // At least so many, but for the last chunk.
  std::size_t chunk_elements() const { return chunk_elements_; }
  int position_of(int rank) const;

 private:
  std::vector<int> order_;  // position -> rank
  std::size_t chunk_elements_;
};

// A rank's addends, and what it does to them before they travel.
struct Addends {
  std::span<const std::byte> values;
  Operator op = Operator::sum;
  Scalar scalar{};  // of a premultiplied sum
};

// The reduction of all ranks' addends, of one length in bytes, into `result` of the same length,
// which overlaps no addends. `first`: the ring position where chunk 0 starts. `turn`: how many
// positions further each next chunk starts (1 in an all-reduce, otherwise 0).
void reduce_around(const Ring& ring, std::span<const Addends> addends, ncclDataType_t datatype,
                   int first, int turn, std::span<std::byte> result);

}  // namespace lockstep::nccl
