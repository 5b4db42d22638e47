// Smaller blocks of exchanges, and rows that go with them.

#include <algorithm>
#include <numeric>

#include "result_types.hpp"
#include "shrink_moves.hpp"
#include "step_values.hpp"

namespace lockstep::kit {
namespace {

using Rows = std::int64_t;

// Whether a count can be one of a block, rather than what is wrong with the call.
bool ordinary(Rows count) {
  return count >= 0 && count < 1 << 30;
}

bool sound(const Input& input) {
  return std::ranges::all_of(input.send_counts, ordinary) &&
         std::accumulate(input.send_counts.begin(), input.send_counts.end(), Rows{0}) ==
             input.tensor.rows();
}

Tensor front_of_blocks(const Input& input, const std::vector<Rows>& counts) {
  std::vector<std::byte> bytes;
  Rows row = 0, rows = 0;
  for (std::size_t d = 0; d < counts.size(); ++d) {
    const Tensor block = input.tensor.slice_rows(row, row + counts[d]);
    bytes.insert(bytes.end(), block.bytes().begin(), block.bytes().end());
    row += input.send_counts[d];
    rows += counts[d];
  }
  return Tensor::from_bytes(input.tensor.dtype(), input.tensor.shape().with_rows(rows), bytes);
}

// How many rows fewer the new counts ask for; as wrong counts, so modulo 2^64.
Rows rows_less(const std::vector<Rows>& before, const std::vector<Rows>& after) {
  std::uint64_t less = 0;
  for (std::size_t d = 0; d < before.size(); ++d) {
    less += static_cast<std::uint64_t>(before[d]) - static_cast<std::uint64_t>(after[d]);
  }
  return static_cast<Rows>(less);
}

// The case with the inputs of one exchange put through `change(member, input)`.
template <class Change>
Case with_exchanged(const Case& origin, std::size_t step, Change change) {
  Case c = origin;
  for (std::size_t member = 0; member < c.steps[step].members(); ++member) {
    std::optional<Input>& input = c.steps[step].inputs[member];
    if (!input || !is_all_to_all_v(c.steps[step].operations[member])) continue;
    if (!input->from_step && !input->tensor.shape().empty()) change(member, *input);
  }
  return c;
}

// `smaller(source, destination, count)` is what a block shrinks to. Counts that can be none stay.
template <class Smaller>
void add_block_move(const Origin& origin, std::size_t step, Smaller smaller, Moves& moves) {
  moves.push_back([=] {
    return with_exchanged(*origin, step, [&](std::size_t source, Input& input) {
      std::vector<Rows> counts = input.send_counts;
      for (std::size_t d = 0; d < counts.size(); ++d) {
        if (ordinary(counts[d])) counts[d] = smaller(source, d, counts[d]);
      }
      set_counts(input, counts);
    });
  });
}

// For calls whose counts are wrong: plainer wrong counts, and fewer rows that they do not fit.
void add_wrong_counts_moves(const Origin& origin, std::size_t step, Moves& moves) {
  // What has bits beyond the sixteenth keeps only those, what is negative is minus one.
  moves.push_back([=] {
    return with_exchanged(*origin, step, [](std::size_t, Input& input) {
      std::vector<Rows> counts = input.send_counts;
      for (Rows& count : counts) {
        if (count < 0) count = -1;
        if (count >= 1 << 16) count = count >> 16 << 16;
      }
      set_counts(input, counts);
    });
  });
  for (const Rows part : {1, 2}) {
    moves.push_back([=] {
      return with_exchanged(*origin, step, [&](std::size_t, Input& input) {
        if (sound(input)) return;
        const Rows rows = input.tensor.rows();
        input.tensor = input.tensor.slice_rows(0, rows - (rows + part - 1) / part);
      });
    });
  }
}

}  // namespace

void set_counts(Input& input, const std::vector<std::int64_t>& counts) {
  if (counts == input.send_counts) return;
  if (!input.from_step && !input.tensor.shape().empty()) {
    if (sound(input)) {
      input.tensor = front_of_blocks(input, counts);
    } else {
      const Rows less = rows_less(input.send_counts, counts);
      if (less > 0 && less <= input.tensor.rows()) {
        input.tensor = input.tensor.slice_rows(0, input.tensor.rows() - less);
      }
    }
  }
  input.send_counts = counts;
}

void add_block_moves(const Origin& origin, std::size_t step, Moves& moves) {
  const std::size_t members = origin->steps[step].members();
  const auto add = [&](auto smaller) { add_block_move(origin, step, smaller, moves); };
  add([](std::size_t, std::size_t, Rows) { return Rows{0}; });
  add([](std::size_t, std::size_t, Rows n) { return std::min<Rows>(n, 1); });
  add([](std::size_t, std::size_t, Rows n) { return n / 2; });
  add_wrong_counts_moves(origin, step, moves);
  for (std::size_t m = 0; m < members; ++m) {
    add([=](std::size_t s, std::size_t, Rows n) { return s == m ? 0 : n; });
    add([=](std::size_t, std::size_t d, Rows n) { return d == m ? 0 : n; });
  }
  if (members > 12) return;
  Rows longest = 0;
  for (const std::optional<Input>& input : origin->steps[step].inputs) {
    for (Rows count : input ? input->send_counts : std::vector<Rows>()) {
      if (ordinary(count)) longest = std::max(longest, count);
    }
  }
  for (std::size_t source = 0; source < members; ++source) {
    for (std::size_t destination = 0; destination < members; ++destination) {
      const auto add_here = [&](auto smaller) {
        add([=](std::size_t s, std::size_t d, Rows n) {
          return s == source && d == destination ? smaller(n) : n;
        });
      };
      add_here([](Rows) { return Rows{0}; });
      add_here([](Rows n) { return (n + 1) / 2; });
      // Ever smaller parts less, so that a length from which on it fails is found quickly.
      for (int shift = 2; longest >> shift > 0; shift += 2) {
        add_here([=](Rows n) { return n - (n >> shift); });
      }
      add_here([](Rows n) { return std::max<Rows>(0, n - 1); });
    }
  }
}

void refit_counts(Case& c) {
  for (std::size_t s = 0; s < c.steps.size(); ++s) {
    if (!is_all_to_all_v(c.steps[s].operations[0])) continue;
    ResultTypes types(c);  // anew, since counts of earlier steps have changed
    Step& step = c.steps[s];
    for (std::size_t member = 0; member < step.members(); ++member) {
      std::optional<Input>& input = step.inputs[member];
      if (!input || !input->from_step || input->send_counts.empty()) continue;
      const auto source = static_cast<std::size_t>(*input->from_step);
      const auto position = member_of(c.steps[source], step.world_rank(member));
      const auto& results = types.of(source);
      if (!position || !results || (*results)[*position].shape.empty()) continue;
      std::vector<Rows>& counts = input->send_counts;
      Rows rows = (*results)[*position].shape[0];
      for (Rows& count : counts) {
        count = std::clamp<Rows>(count, 0, rows);
        rows -= count;
      }
      counts.front() += rows;
    }
  }
}

}  // namespace lockstep::kit
