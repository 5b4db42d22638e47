// Fewer steps, fewer ranks and fewer repetitions.

#include <algorithm>

#include <lockstep/kit/program_oracle.hpp>

#include "shrink_moves.hpp"

namespace lockstep::kit {
namespace {

// What earlier steps gave, written out in the inputs for which `chosen(source step)` holds. Nothing
// when a value that is referred to does not exist.
template <class Predicate>
std::optional<Case> written_out(Case c, Predicate chosen) {
  const bool any = std::ranges::any_of(c.steps, [&](const Step& step) {
    return std::ranges::any_of(step.inputs, [&](const std::optional<Input>& input) {
      return input && input->from_step && chosen(*input->from_step);
    });
  });
  if (!any) return c;
  Transcript values;
  try {
    values = expected_transcript(c, c.sum_rule);
  } catch (const NoSuchValue&) {
    return std::nullopt;
  }
  for (Step& step : c.steps) {
    for (std::size_t member = 0; member < step.members(); ++member) {
      std::optional<Input>& input = step.inputs[member];
      if (!input || !input->from_step || !chosen(*input->from_step)) continue;
      const auto source_step = static_cast<std::size_t>(*input->from_step);
      const Step& source = c.steps[source_step];
      for (std::size_t m = 0; m < source.members(); ++m) {
        if (source.world_rank(m) != step.world_rank(member)) continue;
        input->tensor = values[source_step][m].value;
        input->from_step.reset();
        break;
      }
    }
  }
  return c;
}

// The case without the steps for which `goes` says so; nobody may refer to them any more.
template <class Predicate>
Case without_steps(const Case& c, Predicate goes) {
  std::vector<int> new_number(c.steps.size());
  Case smaller = c;
  smaller.steps.clear();
  for (std::size_t s = 0; s < c.steps.size(); ++s) {
    if (goes(s)) continue;
    new_number[s] = static_cast<int>(smaller.steps.size());
    Step step = c.steps[s];
    for (std::optional<Input>& input : step.inputs) {
      if (input && input->from_step) {
        input->from_step = new_number[static_cast<std::size_t>(*input->from_step)];
      }
    }
    smaller.steps.push_back(std::move(step));
  }
  return smaller;
}

template <class Predicate>
std::optional<Case> drop_steps(const Case& c, Predicate goes) {
  std::optional<Case> whole =
      written_out(c, [&](int source) { return goes(static_cast<std::size_t>(source)); });
  if (!whole) return std::nullopt;
  return without_steps(*whole, goes);
}

// --- Ranks

// An exchange's input without the blocks of the members that go.
void drop_blocks(Input& input, const std::vector<bool>& goes) {
  const std::size_t members = goes.size();
  std::vector<std::int64_t>& counts = input.send_counts;
  if (counts.size() != members) {  // broken; stays as much too long or too short
    const auto dropped = static_cast<std::size_t>(std::ranges::count(goes, true));
    counts.resize(counts.size() > dropped ? counts.size() - dropped : 0);
    return;
  }
  std::vector<std::int64_t> emptied = counts;
  std::vector<std::int64_t> kept;
  for (std::size_t member = 0; member < members; ++member) {
    if (goes[member]) {
      emptied[member] = 0;
    } else {
      kept.push_back(counts[member]);
    }
  }
  set_counts(input, emptied);
  input.send_counts = std::move(kept);
}

// As many rows for each of the members that stay; as indivisible as before where it was.
void drop_shares(Input& input, std::int64_t before, std::int64_t after) {
  if (input.from_step || input.tensor.shape().empty()) return;
  const std::int64_t rows = input.tensor.rows();
  const std::int64_t kept = rows / before * after + std::min(rows % before, after - 1);
  input.tensor = input.tensor.slice_rows(0, kept);
}

std::int64_t renumbered_root(std::int64_t root, const std::vector<bool>& goes) {
  const auto members = static_cast<std::int64_t>(goes.size());
  const auto stay_before = [&](std::int64_t end) {
    return static_cast<std::int64_t>(std::count(goes.begin(), goes.begin() + end, false));
  };
  if (root < 0) return root;
  if (root >= members)
    return root - members < members ? root - members + stay_before(members) : root;
  return goes[static_cast<std::size_t>(root)] ? 0 : stay_before(root);
}

Step without_members(const Step& step, const std::vector<bool>& rank_goes) {
  std::vector<bool> goes;
  for (std::size_t member = 0; member < step.members(); ++member) {
    goes.push_back(rank_goes[static_cast<std::size_t>(step.world_rank(member))]);
  }
  const auto before = static_cast<std::int64_t>(goes.size());
  const auto after = static_cast<std::int64_t>(std::ranges::count(goes, false));
  Step smaller;
  for (std::size_t member = 0; member < step.members(); ++member) {
    if (goes[member]) continue;
    const Operation operation = step.operations[member];
    smaller.operations.push_back(operation);
    if (!step.group.empty()) {
      const auto rank = static_cast<std::size_t>(step.group[member]);
      smaller.group.push_back(static_cast<int>(
          std::count(rank_goes.begin(), rank_goes.begin() + static_cast<long>(rank), false)));
    }
    if (!step.roots.empty()) smaller.roots.push_back(renumbered_root(step.roots[member], goes));
    if (!step.upstream.empty()) smaller.upstream.push_back(step.upstream[member]);
    std::optional<Input> input = step.inputs[member];
    if (input && is_all_to_all_v(operation)) drop_blocks(*input, goes);
    if (input && operation == Operation::reduce_scatter_sum) drop_shares(*input, before, after);
    smaller.inputs.push_back(std::move(input));
    if (!step.departures.empty()) smaller.departures.push_back(step.departures[member]);
  }
  // Roots are said where somebody broadcasts; perhaps nobody who stays does.
  if (std::ranges::count(smaller.operations, Operation::broadcast_float) == 0)
    smaller.roots.clear();
  smaller.repeat = step.repeat;
  return smaller;
}

std::optional<Case> without_ranks(const Case& c, const std::vector<bool>& goes) {
  Case smaller = c;
  smaller.world = static_cast<int>(std::ranges::count(goes, false));
  if (smaller.world == 0) return std::nullopt;
  for (Step& step : smaller.steps) step = without_members(step, goes);
  smaller = without_steps(smaller, [&](std::size_t s) { return smaller.steps[s].members() == 0; });
  if (smaller.steps.empty()) return std::nullopt;
  return smaller;
}

}  // namespace

std::optional<Case> with_only_steps(const Case& c, std::size_t first, std::size_t count) {
  return drop_steps(c, [=](std::size_t s) { return s < first || s >= first + count; });
}

void add_step_moves(const Origin& origin, Moves& moves) {
  const std::size_t steps = origin->steps.size();
  if (steps > 1) {
    for (std::size_t kept = 0; kept < steps; ++kept) {
      moves.push_back(
          [=] { return drop_steps(*origin, [=](std::size_t s) { return s != kept; }); });
    }
    if (steps > 2) {
      for (std::size_t dropped = 0; dropped < steps; ++dropped) {
        moves.push_back(
            [=] { return drop_steps(*origin, [=](std::size_t s) { return s == dropped; }); });
      }
    }
    moves.push_back([=] { return written_out(*origin, [](int) { return true; }); });
  }
  if (origin->window) {
    moves.push_back([=]() -> std::optional<Case> {
      Case c = *origin;
      c.window = false;
      return c;
    });
  }
  for (std::size_t s = 0; s < steps; ++s) {
    if (origin->steps[s].upstream.empty()) continue;
    moves.push_back([=]() -> std::optional<Case> {
      Case c = *origin;
      c.steps[s].upstream.clear();
      return c;
    });
  }
  for (std::size_t s = 0; s < steps; ++s) {
    for (std::size_t member = 0; member < origin->steps[s].departures.size(); ++member) {
      if (origin->steps[s].departures[member] == Departure::returns) continue;
      moves.push_back([=]() -> std::optional<Case> {
        Case c = *origin;
        c.steps[s].departures[member] = Departure::returns;
        return c;
      });
    }
  }
}

void add_rank_moves(const Origin& origin, Moves& moves) {
  const auto world = static_cast<std::size_t>(origin->world);
  // The first few alone, halves, then one less.
  for (std::size_t kept : {std::size_t{1}, std::size_t{2}, std::size_t{3}, world / 2}) {
    if (kept == 0 || kept >= world) continue;
    for (const bool front : {true, false}) {
      moves.push_back([=] {
        std::vector<bool> goes(world, false);
        for (std::size_t rank = 0; rank < world; ++rank) {
          goes[rank] = front ? rank >= kept : rank < world - kept;
        }
        return without_ranks(*origin, goes);
      });
    }
  }
  for (std::size_t rank = world; rank-- > 0 && world > 1;) {
    moves.push_back([=] {
      std::vector<bool> goes(world, false);
      goes[rank] = true;
      return without_ranks(*origin, goes);
    });
  }
  for (std::size_t s = 0; s < origin->steps.size(); ++s) {
    const Step& step = origin->steps[s];
    // Other world ranks for the same members: only where no member's input belongs to its world
    // rank, as a value of an earlier step does, and having left.
    const bool movable = std::ranges::all_of(
        step.inputs, [](const std::optional<Input>& input) { return input && !input->from_step; });
    if (movable && step.group.size() == world) {
      moves.push_back([=]() -> std::optional<Case> {
        Case c = *origin;
        c.steps[s].group.clear();
        return c;
      });
    }
    if (movable && !step.group.empty()) {
      moves.push_back([=]() -> std::optional<Case> {
        Case c = *origin;
        std::ranges::sort(c.steps[s].group);
        return c;
      });
    }
    if (!step.roots.empty()) {
      moves.push_back([=]() -> std::optional<Case> {
        Case c = *origin;
        std::ranges::fill(c.steps[s].roots, 0);
        return c;
      });
    }
  }
}

namespace {

Move repeating(const Origin& origin, std::size_t step, std::int64_t times) {
  return [=]() -> std::optional<Case> {
    Case c = *origin;
    c.steps[step].repeat = times;
    return c;
  };
}

}  // namespace

void add_few_repetitions_moves(const Origin& origin, Moves& moves) {
  for (std::size_t s = 0; s < origin->steps.size(); ++s) {
    const std::int64_t repeat = origin->steps[s].repeat;
    if (repeat > 1) moves.push_back(repeating(origin, s, 1));
    if (repeat > 2) moves.push_back(repeating(origin, s, 2));
  }
}

void add_fewer_repetitions_moves(const Origin& origin, Moves& moves) {
  for (std::size_t s = 0; s < origin->steps.size(); ++s) {
    const std::int64_t repeat = origin->steps[s].repeat;
    for (std::int64_t less = repeat / 2; less > 0 && repeat - less > 2; less /= 2) {
      moves.push_back(repeating(origin, s, repeat - less));
    }
  }
}

}  // namespace lockstep::kit
