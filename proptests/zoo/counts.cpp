// Row counts that are something else, and buffers sized or filled by the wrong ones.
#include <algorithm>
#include <numeric>

#include "spoiling.hpp"

namespace lockstep::zoo {
namespace {

// Something other than the number of rows in each receive count.
Fault counting(std::function<std::int64_t(std::int64_t rows, const Call&)> count) {
  return spoiling(is_all_to_all_v, [=](Rank&, const Call& call, Answer& answer) {
    for (std::int64_t& rows : answer.receive_counts) rows = count(rows, call);
  });
}

std::int64_t row_elements(const Call& call) {
  return *Shape::product(call.x.shape().trailing());
}

// No block is longer than what the rank itself had to send.
void clamp(Rank&, const Call& call, Answer& answer) {
  std::vector<Tensor> blocks = divided(answer.value, answer.receive_counts);
  for (std::size_t source = 0; source < blocks.size(); ++source) {
    std::int64_t& rows = answer.receive_counts[source];
    rows = std::min(rows, call.x.rows());
    blocks[source] = blocks[source].slice_rows(0, rows);
  }
  answer.value = joined(blocks);
}

// Every block takes as much room as the longest.
void pad(Rank&, const Call&, Answer& answer) {
  const std::int64_t capacity = std::ranges::max(answer.receive_counts);
  std::vector<Tensor> padded;
  for (const Tensor& block : divided(answer.value, answer.receive_counts)) {
    padded.push_back(block);
    padded.push_back(
        Tensor::zeros(block.dtype(), block.shape().with_rows(capacity - block.rows())));
  }
  answer.value = joined(padded);
}

// The receive buffer is as long as what was sent, and what does not fit is cut off.
void size_by_sent(Rank&, const Call& call, Answer& answer) {
  const std::int64_t rows = call.x.rows();
  if (rows <= answer.value.rows()) {
    answer.value = answer.value.slice_rows(0, rows);
    return;
  }
  const Tensor parts[] = {
      answer.value, Tensor::zeros(answer.value.dtype(),
                                  answer.value.shape().with_rows(rows - answer.value.rows()))};
  answer.value = joined(parts);
}

// The last row stays what the buffer held.
void leave_last_row(Rank& rank, const Call&, Answer& answer) {
  const std::int64_t rows = answer.value.rows();
  if (rows == 0) return;
  Tensor stale = zeros_like(answer.value);
  if (rank.here().answer) overwrite(stale, rank.here().answer->value);
  replace_from(answer.value, (rows - 1) * answer.value.row_bytes(), stale);
}

// Displacements that start at one: everything moves down a row, and the last one wraps around.
void shift(Rank&, const Call&, Answer& answer) {
  const std::int64_t rows = answer.value.rows();
  if (rows == 0) return;
  const Tensor parts[] = {answer.value.slice_rows(rows - 1, rows),
                          answer.value.slice_rows(0, rows - 1)};
  answer.value = joined(parts);
}

// Displacements computed as if all blocks were as long as the first.
void equal_displacements(Rank&, const Call&, Answer& answer) {
  const std::int64_t length = answer.receive_counts[0];
  const std::vector<Tensor> blocks = divided(answer.value, answer.receive_counts);
  Tensor value = zeros_like(answer.value);
  for (std::size_t source = 0; source < blocks.size(); ++source) {
    const auto begin = static_cast<std::int64_t>(source) * length * answer.value.row_bytes();
    const auto bytes = std::min(blocks[source].size_bytes(),
                                std::max<std::int64_t>(0, value.size_bytes() - begin));
    if (bytes == 0) continue;
    std::ranges::copy(blocks[source].bytes().first(static_cast<std::size_t>(bytes)),
                      value.mutable_bytes().subspan(static_cast<std::size_t>(begin)).begin());
  }
  answer.value = std::move(value);
}

// The send counts as an integer of this type holds them.
template <class Narrow>
void narrow(Rank&, Call& call) {
  for (std::int64_t& count : call.send_counts) count = static_cast<Narrow>(count);
}

// A vector that is a row short in the middle is made good at the end.
void drop_first_row_of_long_blocks(Rank&, const Call&, Answer& answer) {
  std::vector<Tensor> blocks = divided(answer.value, answer.receive_counts);
  for (Tensor& block : blocks) {
    if (block.rows() < 2) continue;
    const Tensor parts[] = {block.slice_rows(1, block.rows()), block.slice_rows(0, 1)};
    block = joined(parts);
  }
  answer.value = joined(blocks);
}

// Counts compared by their sum only: too much for one rank makes up for a negative count elsewhere.
Answer accept_negative(Rank& rank, const Call& call) {
  Call mended = call;
  const bool negative =
      std::ranges::any_of(call.send_counts, [](std::int64_t count) { return count < 0; });
  const auto sum =
      std::accumulate(call.send_counts.begin(), call.send_counts.end(), std::int64_t{0},
                      [](std::int64_t a, std::int64_t b) {
                        return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) +
                                                         static_cast<std::uint64_t>(b));
                      });
  if (negative && is_all_to_all_v(call.operation) && !call.x.shape().empty() &&
      sum == call.x.rows()) {
    std::ranges::fill(mended.send_counts, 0);
    mended.send_counts[0] = call.x.rows();
  }
  return rank.right(mended);
}

}  // namespace

std::vector<Mutant> count_mutants() {
  constexpr std::string_view kind = "counts";
  return {
      {"counts_in_elements", kind, "Receive counts are numbers of elements.",
       counting([](auto rows, const Call& call) { return rows * row_elements(call); })},
      {"counts_in_bytes", kind, "Receive counts are numbers of bytes.",
       counting([](auto rows, const Call& call) {
         return rows * row_elements(call) * size_of(call.x.dtype());
       })},
      {"counts_sent", kind, "The send counts are returned as the receive counts.",
       spoiling(is_all_to_all_v, [](Rank&, const Call& call,
                                    Answer& answer) { answer.receive_counts = call.send_counts; })},
      {"counts_in_16_bits", kind, "Receive counts are kept in 16 bits, with a sign.",
       counting([](auto rows, const Call&) { return static_cast<std::int16_t>(rows); })},
      {"counts_displaced", kind, "Displacements are returned in place of receive counts.",
       spoiling(is_all_to_all_v,
                [](Rank&, const Call&, Answer& answer) {
                  std::exclusive_scan(answer.receive_counts.begin(), answer.receive_counts.end(),
                                      answer.receive_counts.begin(), std::int64_t{0});
                })},
      {"send_counts_in_32_bits", kind, "Send counts are read in 32 bits.",
       passing(is_all_to_all_v, narrow<std::int32_t>)},
      {"send_counts_in_16_bits", kind, "Send counts are read in 16 bits.",
       passing(is_all_to_all_v, narrow<std::uint16_t>)},
      {"negative_counts", kind, "Counts are only checked by their sum, negative ones pass.",
       accept_negative},
      {"blocks_clamped", kind, "No received block is longer than what the rank has sent.",
       spoiling(is_all_to_all_v, clamp)},
      {"blocks_padded", kind, "Received blocks are padded to the longest.",
       spoiling(is_all_to_all_v, pad)},
      {"sized_by_sent", kind, "The receive buffer has as many rows as were sent.",
       spoiling(is_all_to_all_v, size_by_sent)},
      {"stale_tail", kind, "The last received row stays what the buffer held before.",
       spoiling(is_all_to_all_v, leave_last_row)},
      {"displaced_by_one", kind, "Displacements begin at one instead of zero.",
       spoiling(is_all_to_all_v, shift)},
      {"equal_displacements", kind, "Blocks are placed as if all were as long as the first.",
       spoiling(is_all_to_all_v, equal_displacements)},
      {"blocks_turned", kind, "Blocks of two rows or more begin with their second.",
       spoiling(is_all_to_all_v, drop_first_row_of_long_blocks)},
  };
}

}  // namespace lockstep::zoo
