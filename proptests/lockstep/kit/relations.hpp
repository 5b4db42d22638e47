// Calls whose results say something of one another, so that a backend can be judged by its own
// results alone, without an oracle (docs/relations.md).
//
// A relation holds between calls that stand one after the other in a case, the first of them being
// the one that the others are made from. Nothing in a case file marks them: whoever writes such
// calls down has written down the relation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string_view>
#include <vector>

#include <lockstep/kit/case.hpp>
#include <lockstep/kit/judge.hpp>

namespace lockstep::kit {

enum class Relation : std::uint8_t {
  scatter_then_gather,  // reduce-scatter, its results gathered, and the all-reduce of the same
  exchange_and_back,    // an exchange, and another one that sends every row back
  split_rows,           // a call, and the same on the front and on the back of every block of rows
  relabelled_ranks,     // a call, and the same by the same ranks as a group in another order
  gathered_root,        // a gather, and the broadcast of one of its shards
  gather_by_exchange,   // a gather, and an exchange in which everybody sends everything to all
};
inline constexpr Relation all_relations[] = {
    Relation::scatter_then_gather, Relation::exchange_and_back, Relation::split_rows,
    Relation::relabelled_ranks,    Relation::gathered_root,     Relation::gather_by_exchange,
};
inline constexpr std::size_t relation_count = std::size(all_relations);

// "exchange_and_back", and what must be so: "an exchange sent back gives everybody its own tensor".
std::string_view name(Relation relation);
std::string_view statement(Relation relation);

// Where a relation stands in a case: `count` steps from `first` on.
struct RelatedSteps {
  Relation relation;
  std::size_t first;
  std::size_t count;
};

// All that stand in a case. The calls of each fit the contract, and nobody has left before.
std::vector<RelatedSteps> related_steps(const Case& c);

// The first relation that does not hold between the results of a backend. Elements are compared bit
// for bit, but for NaNs out of sums, and but for sums whose order the rule leaves open: of two that
// differ each must be one that some order gives. Before that, every call that fits the contract
// must have given every member a value of the right shape. Throws NoSuchValue like the oracle.
std::optional<Divergence> judge_relations(const Case& c, const Transcript& actual, SumRule rule);

}  // namespace lockstep::kit
