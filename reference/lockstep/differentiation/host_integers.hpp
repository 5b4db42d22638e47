// How ranks tell each other a few integers, before they enter a reverse pass.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <lockstep/collective.hpp>
#include <lockstep/tensor.hpp>

namespace lockstep::differentiation {

// gather(c, mine): entered by every rank of `c`, each with any number of integers; entry r of what
// everybody gets back is what rank r passed.
//
// The primary template is for backends whose IntTensor lies on the host; others specialize it, best
// with whatever they compare their calls by.
template <IntegerTensorCollective C>
struct HostIntegers {
  static std::vector<std::vector<std::int64_t>> gather(C& c, std::span<const std::int64_t> mine) {
    // One collective where everybody's integers fit into a block of fixed size. Where anybody has
    // more, all see that in the blocks, and gather the rest at the length of the longest.
    const auto length = static_cast<std::int64_t>(mine.size());
    std::vector<std::int64_t> block(1 + in_block, 0);
    block[0] = length;
    std::copy_n(mine.begin(), std::min(length, in_block), block.begin() + 1);
    const IntTensor blocks = all_gather(c, block);

    std::int64_t longest = 0;
    for_each_rank(c, blocks, [&](std::size_t, std::span<const std::int64_t> theirs) {
      longest = std::max(longest, theirs[0]);
    });
    std::vector<std::vector<std::int64_t>> all(static_cast<std::size_t>(c.world_size()));
    for_each_rank(c, blocks, [&](std::size_t rank, std::span<const std::int64_t> theirs) {
      const auto count = static_cast<std::size_t>(std::min(theirs[0], in_block));
      all[rank].assign(theirs.begin() + 1, theirs.begin() + 1 + static_cast<std::ptrdiff_t>(count));
    });
    if (longest <= in_block) return all;

    std::vector<std::int64_t> rest(static_cast<std::size_t>(longest - in_block), 0);
    if (length > in_block) std::copy(mine.begin() + in_block, mine.end(), rest.begin());
    const IntTensor rests = all_gather(c, rest);
    for_each_rank(c, rests, [&](std::size_t rank, std::span<const std::int64_t> theirs) {
      const std::int64_t own_length = blocks.values<std::int64_t>()[rank * block.size()];
      if (own_length <= in_block) return;
      all[rank].insert(all[rank].end(), theirs.begin(), theirs.begin() + (own_length - in_block));
    });
    return all;
  }

 private:
  // Enough for a window of a dozen collectives.
  static constexpr std::int64_t in_block = 63;

  static IntTensor all_gather(C& c, const std::vector<std::int64_t>& integers) {
    return c.all_gather_int(
        IntTensor::of<std::int64_t>({static_cast<std::int64_t>(integers.size())}, integers));
  }

  template <class Visit>
  static void for_each_rank(C& c, const IntTensor& gathered, const Visit& visit) {
    const auto ranks = static_cast<std::size_t>(c.world_size());
    const std::span<const std::int64_t> values = gathered.values<std::int64_t>();
    const std::size_t each = values.size() / ranks;
    for (std::size_t rank = 0; rank < ranks; ++rank) visit(rank, values.subspan(rank * each, each));
  }
};

}  // namespace lockstep::differentiation
