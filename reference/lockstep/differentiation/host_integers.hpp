// How ranks tell each other a few integers, before they enter a reverse pass.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <lockstep/collective.hpp>
#include <lockstep/error.hpp>
#include <lockstep/tensor.hpp>

namespace lockstep::differentiation {

// Thrown where what a backend's all_gather_int returned cannot be what the ranks passed.
[[noreturn]] void refuse_integers(const std::string& what);

// gather(c, mine): entered by every rank of `c`, each with any number of integers; entry r of what
// everybody gets back is what rank r passed.
//
// The primary template is for backends whose IntTensor lies on the host; others specialize it, best
// with whatever they compare their calls by.
template <IntegerTensorCollective C>
struct HostIntegers {
  static std::vector<std::vector<std::int64_t>> gather(
      C& c, std::span<const std::int64_t> mine) requires std::same_as<typename C::int_tensor, IntTensor>
  {
    // One collective where everybody's integers fit into a block of fixed size. Where anybody has
    // more, all see that in the blocks, and gather the rest at the length of the longest.
    const auto length = static_cast<std::int64_t>(mine.size());
    std::vector<std::int64_t> block(1 + in_block, 0);
    block[0] = length;
    std::copy_n(mine.begin(), std::min(length, in_block), block.begin() + 1);
    const IntTensor blocks = all_gather(c, block);

    std::int64_t longest = 0;
    for_each_rank(c, blocks, [&](std::size_t, std::span<const std::int64_t> theirs) {
      if (theirs[0] < 0 || theirs[0] > most) refuse_integers("a list of another length");
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
  // More than any window needs.
  static constexpr std::int64_t most = std::int64_t{1} << 28;

  static IntTensor all_gather(C& c, const std::vector<std::int64_t>& integers) {
    const auto length = static_cast<std::int64_t>(integers.size());
    IntTensor all = c.all_gather_int(IntTensor::of<std::int64_t>({length}, integers));
    if (all.dtype() != DType::i64 || all.shape() != Shape{length * c.world_size()}) {
      refuse_integers("a tensor of another dtype or shape");
    }
    return all;
  }

  template <class Visit>
  static void for_each_rank(C& c, const IntTensor& gathered, const Visit& visit) {
    const auto ranks = static_cast<std::size_t>(c.world_size());
    const std::span<const std::int64_t> values = gathered.values<std::int64_t>();
    const std::size_t each = values.size() / ranks;
    for (std::size_t rank = 0; rank < ranks; ++rank) visit(rank, values.subspan(rank * each, each));
  }
};

// Whose ranks can tell each other integers.
template <class C>
concept TellsIntegers = requires(C& c, std::span<const std::int64_t> mine) {
  HostIntegers<C>::gather(c, mine);
};

}  // namespace lockstep::differentiation
