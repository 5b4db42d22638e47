// The corners at which collectives break, and which of them a case visits.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <lockstep/kit/case.hpp>

namespace lockstep::kit {

enum class Corner : std::uint8_t {
  world_of_one,
  world_of_two,
  prime_world,  // 3 or more
  world_of_33,
  world_of_64,
  zero_row_rank,  // a rank without rows among ranks with some
  all_empty,
  first_full_rank,  // the only rank with rows, among two ranks or more
  middle_full_rank,
  last_full_rank,
  one_sender,
  one_receiver,
  asymmetric_counts,
  empty_counts_row,
  empty_counts_column,
  more_ranks_than_rows,
  first_root,  // of two ranks or more
  middle_root,
  last_root,
  no_axes,
  one_axis,
  two_axes,
  three_axes,
  four_axes,
  five_axes,
  zero_trailing_axis,  // where the contract allows it
  slice_input,
  strided_input,
  odd_length,         // above 8 elements
  near_power_of_two,  // one element from a power of two, 64 at least
  near_large_power,   // the same, and 64 KiB at least, but for that element
  beyond_64_kib,
  megabyte,
  quiet_nan,
  signalling_nan,
  infinity,
  negative_zero,
  subnormal,
  sum_tie,
  sum_cancellation,
  sum_overflow,
  sum_of_both_zeros,
  sum_of_both_infinities,
  beyond_2_to_24,  // integers that float cannot hold
  beyond_2_to_53,  // integers that double cannot hold
  result_fed_onward,
  same_shape_again,
  many_steps,  // more than 8
  twenty_steps,
  many_repetitions,  // 100 calls in a row, or more
  repetitions_beyond_16_bits,
  gradient,
  missing_upstream,  // where others have one
  group,
  reordered_group,
  group_without_rank_zero,
  group_among_world_calls,  // between two calls of the world
  broken_contract,
  call_after_breach,
  missing_rank,
  throwing_rank,
  stuck_rank,
  // Related calls (relations.hpp), in the order of the relations.
  scattered_and_gathered,
  exchanged_and_back,
  rows_split,
  ranks_relabelled,
  root_gathered,
  gathered_by_exchange,
};
inline constexpr std::size_t corner_count =
    static_cast<std::size_t>(Corner::gathered_by_exchange) + 1;
using Corners = std::bitset<corner_count>;

// "zero_row_rank", and what a person reads: "a rank without rows".
std::string_view name(Corner corner);
std::string_view description(Corner corner);

// What a case visits. Looks at the inputs that stand in the case, at the first few hundred elements
// of each, and for the corners that show in results (a breach, say) at what became of the steps.
Corners corners(const Case& c, const Transcript& outcomes = {});

}  // namespace lockstep::kit
