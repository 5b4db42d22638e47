// Simpler cases near a failing one.
//
// Every candidate must come before its origin in one order, whatever the moves do, so that a chain
// of candidates always ends: the lexicographic order of `Measure`, a fixed number of natural
// numbers.

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>

#include <lockstep/kit/generator.hpp>

#include "shrink_moves.hpp"

namespace lockstep::kit {
namespace {

using Measure = std::array<std::uint64_t, 15>;

// A length or count as a term of a sum that cannot overflow, broken counts included.
std::uint64_t bounded(std::int64_t value) {
  constexpr std::int64_t most = std::int64_t{1} << 40;
  return static_cast<std::uint64_t>(value < 0 ? most : std::min(value, most));
}

DType plainest(DType dtype) {
  return is_integer(dtype) ? DType::i32 : DType::f32;
}

Measure measure(const Case& c) {
  std::uint64_t members = 0, references = 0, elements = 0, rows_sent = 0, axes = 0, lengths = 0;
  std::uint64_t groups = 0, roots = 0, dtypes = 0, values = 0, repeats = 0, layouts = 0;
  std::uint64_t departures = 0;
  const auto add_tensor = [&](const Tensor& tensor) {
    elements += static_cast<std::uint64_t>(tensor.elements());
    axes += tensor.shape().size();
    for (std::int64_t axis : tensor.shape().axes()) lengths += bounded(axis);
    if (tensor.dtype() != plainest(tensor.dtype())) ++dtypes;
    for (std::int64_t i = 0; i < tensor.elements(); ++i) {
      values += static_cast<std::uint64_t>(
          complexity(tensor.dtype(), tensor.data() + i * size_of(tensor.dtype())));
    }
  };
  if (c.window) ++references;
  for (const Step& step : c.steps) {
    members += step.members();
    repeats += bounded(step.repeat);
    for (const std::optional<Input>& input : step.inputs) {
      if (!input) continue;
      for (std::int64_t count : input->send_counts) rows_sent += bounded(count) + 1;
      if (input->from_step) {
        ++references;
      } else {
        add_tensor(input->tensor);
        if (input->layout != MemoryLayout::dense) ++layouts;
      }
    }
    if (!step.upstream.empty()) ++references;
    for (const std::optional<Tensor>& upstream : step.upstream) {
      if (upstream) add_tensor(*upstream);
    }
    departures += step.departures.size() -
                  static_cast<std::size_t>(std::ranges::count(step.departures, Departure::returns));
    groups += step.group.size();
    for (std::size_t i = 0; i < step.group.size(); ++i) {
      for (std::size_t j = i + 1; j < step.group.size(); ++j) {
        if (step.group[i] > step.group[j]) ++groups;
      }
    }
    roots += static_cast<std::uint64_t>(
        std::ranges::count_if(step.roots, [](std::int64_t root) { return root != 0; }));
  }
  return {c.steps.size(), static_cast<std::uint64_t>(c.world),
          members,        repeats,
          departures,     references,
          elements,       rows_sent,
          axes,           lengths,
          groups,         roots,
          layouts,
          dtypes,         values};
}

}  // namespace

struct Simplifications::Moves {
  kit::Moves list;
  Measure measure;
  std::optional<Upstreams> upstreams;
  bool calls_fit;  // no call breaks the contract
};

Simplifications::Simplifications(Case c) {
  for (Step& step : c.steps) {
    step.expected.clear();
    step.received.clear();
  }
  c.recorded.reset();
  const auto origin = std::make_shared<const Case>(std::move(c));
  auto moves = std::make_shared<Moves>();
  moves->measure = measure(*origin);
  moves->upstreams.emplace(*origin);
  ResultTypes types(*origin);
  moves->calls_fit = true;
  for (std::size_t s = 0; s < origin->steps.size(); ++s) {
    moves->calls_fit = moves->calls_fit && types.of(s).has_value();
  }
  add_relation_moves(origin, moves->list);
  add_step_moves(origin, moves->list);
  add_rank_moves(origin, moves->list);
  add_few_repetitions_moves(origin, moves->list);
  add_shape_moves(origin, moves->list);
  add_value_moves(origin, moves->list);
  add_fewer_repetitions_moves(origin, moves->list);
  moves_ = std::move(moves);
}

std::optional<Case> Simplifications::next() {
  while (position_ < moves_->list.size()) {
    std::optional<Case> candidate = moves_->list[position_]();
    if (candidate && moves_->calls_fit) refit_counts(*candidate);
    const bool refitted =
        candidate && moves_->upstreams->refit(*candidate, Upstreams::ways[way_]);
    // Where upstreams had to follow, the move is made once for every way in which they may.
    way_ = refitted ? (way_ + 1) % std::size(Upstreams::ways) : 0;
    if (way_ == 0) ++position_;
    if (candidate && measure(*candidate) < moves_->measure) return candidate;
  }
  return std::nullopt;
}

}  // namespace lockstep::kit
