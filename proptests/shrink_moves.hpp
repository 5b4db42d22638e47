// The single steps by which a case becomes simpler. None looks at whether the result still fails.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <lockstep/kit/case.hpp>

#include "result_types.hpp"

namespace lockstep::kit {

// Makes one candidate, or nothing where the move does not apply.
using Move = std::function<std::optional<Case>()>;
using Moves = std::vector<Move>;
// The case that moves start from, shared by them.
using Origin = std::shared_ptr<const Case>;

// Fewer steps: one alone, or all but one. A reference to a step that goes is replaced by the value
// that the oracle gives. Ranks that return, rather than throw or get stuck.
void add_step_moves(const Origin& origin, Moves& moves);

// The case without any but these steps.
std::optional<Case> with_only_steps(const Case& c, std::size_t first, std::size_t count);

// Where calls are related (lockstep/kit/relations.hpp): those calls alone, and simpler ones that
// are related like them. The moves below change one call at a time, after which it is no longer
// related to the others.
void add_relation_moves(const Origin& origin, Moves& moves);

// Fewer ranks, with their blocks in everybody's exchanges, and plainer groups and roots.
void add_rank_moves(const Origin& origin, Moves& moves);

// One call or two in the place of more.
void add_few_repetitions_moves(const Origin& origin, Moves& moves);
// Ever smaller parts of the calls less: where it fails from one number on, that number is found
// quickly. Slow all the same, since many calls are made for each; nothing else should be left to try.
void add_fewer_repetitions_moves(const Origin& origin, Moves& moves);

// Fewer rows and smaller blocks, fewer and shorter trailing axes.
void add_shape_moves(const Origin& origin, Moves& moves);

// Of one exchange, the smaller blocks among them.
void add_block_moves(const Origin& origin, std::size_t step, Moves& moves);

// Gives an input of an exchange other counts, none larger than before, and fewer rows: what is left
// of each block; and where the counts were wrong, as many rows less as they ask for, so that they
// stay as wrong as they were.
void set_counts(Input& input, const std::vector<std::int64_t>& counts);

// Makes the counts of exchanges add up to the rows that they take from earlier steps, where moves
// have left them fewer or more.
void refit_counts(Case& c);

// Plainer elements, in the plainest dtypes.
void add_value_moves(const Origin& origin, Moves& moves);

// The upstream gradients of a case, which must follow when moves change the results that they
// belong to.
class Upstreams {
 public:
  explicit Upstreams(const Case& origin);

  // Which elements stay where an upstream gets smaller.
  enum class Keep : std::uint8_t { least_plain, front, back };
  static constexpr Keep ways[] = {Keep::least_plain, Keep::front, Keep::back};

  // Gives those of a simpler case the types of their results; false when they have them already.
  // Upstreams that were unlike their results in the origin go on to be so.
  bool refit(Case& c, Keep keep) const;

 private:
  bool all_fit_;
  std::vector<TensorType> results_;  // of steps that ask for a gradient
};

// How far an element is from the plainest: zero, one, a small whole number, then by the length of
// what it takes to write it down.
int complexity(DType dtype, const std::byte* element);

}  // namespace lockstep::kit
