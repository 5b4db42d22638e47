// Simpler cases in which calls stay related: their base becomes simpler, and the others are made
// from it again.

#include <algorithm>
#include <iterator>

#include "related_calls.hpp"
#include "shrink_moves.hpp"

namespace lockstep::kit {
namespace {

// Related calls, and the steps of a case that they are.
struct Place {
  RelatedCalls calls;
  std::size_t first;
  std::size_t count;
};

// The case of nothing but the base.
Case base_alone(const Case& c, std::size_t first) {
  Case alone;
  alone.world = c.world;
  alone.sum_rule = c.sum_rule;
  alone.steps = {c.steps[first]};
  return alone;
}

// The case with other calls in that place, made from the base that stands alone in `simpler`.
std::optional<Case> with_base(const Case& c, const Place& place, const Case& simpler) {
  if (simpler.steps.size() != 1 || !ResultTypes(simpler).of(0)) return std::nullopt;
  const std::optional<std::vector<Step>> steps =
      written_out(place.calls, simpler.steps[0], place.first);
  if (!steps) return std::nullopt;
  Case changed = c;
  changed.world = simpler.world;
  std::ranges::copy(*steps, changed.steps.begin() + static_cast<std::ptrdiff_t>(place.first));
  return changed;
}

void add_base_moves(const Origin& origin, const Place& place, Moves& moves) {
  const auto alone = std::make_shared<const Case>(base_alone(*origin, place.first));
  Moves of_base;
  // Other steps would need the ranks that go.
  if (place.count == origin->steps.size()) add_rank_moves(alone, of_base);
  add_shape_moves(alone, of_base);
  add_value_moves(alone, of_base);
  for (Move& move : of_base) {
    moves.push_back([=]() -> std::optional<Case> {
      const std::optional<Case> simpler = move();
      if (!simpler) return std::nullopt;
      return with_base(*origin, place, *simpler);
    });
  }
}

// A root of zero, and neighbours of a permutation that stand in order.
void add_parameter_moves(const Origin& origin, const Place& place, Moves& moves) {
  const auto add = [&](std::vector<std::int64_t> parameter) {
    const Place plainer{{place.calls.relation, std::move(parameter)}, place.first, place.count};
    moves.push_back(
        [=] { return with_base(*origin, plainer, base_alone(*origin, plainer.first)); });
  };
  std::vector<std::int64_t> parameter = place.calls.parameter;
  if (place.calls.relation == Relation::gathered_root) add({0});
  if (place.calls.relation != Relation::relabelled_ranks) return;
  for (std::size_t i = 0; i + 1 < parameter.size(); ++i) {
    if (parameter[i] < parameter[i + 1]) continue;
    std::swap(parameter[i], parameter[i + 1]);
    add(parameter);
    std::swap(parameter[i], parameter[i + 1]);
  }
}

}  // namespace

void add_relation_moves(const Origin& origin, Moves& moves) {
  std::vector<Place> places;
  ResultTypes types(*origin);
  for (const RelatedSteps& related : related_steps(*origin)) {
    places.push_back({*recognized(*origin, types, related.first, related.relation), related.first,
                      related.count});
  }
  for (const Place& place : places) {
    if (place.count == origin->steps.size()) continue;
    moves.push_back([=] { return with_only_steps(*origin, place.first, place.count); });
  }
  for (const Place& place : places) {
    add_base_moves(origin, place, moves);
    add_parameter_moves(origin, place, moves);
  }
}

}  // namespace lockstep::kit
