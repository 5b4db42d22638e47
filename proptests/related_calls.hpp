// Related calls (lockstep/kit/relations.hpp) as what they are made from: one call, the base, and
// what else the relation needs to know.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <lockstep/kit/relations.hpp>

#include "result_types.hpp"

namespace lockstep::kit {

// The rows that are not shared out, or are in equal parts, or by counts: of what a member passes,
// and of what it gets back. Row blocks are what a relation takes apart and puts together.
enum class Blocks : std::uint8_t { one, equal, counted };
Blocks input_blocks(Operation operation);
Blocks result_blocks(Operation operation);

// A tensor's row blocks; `counts` are looked at where they are counted, and give `ranks` blocks.
std::vector<Tensor> divided(const Tensor& x, Blocks blocks, std::size_t ranks,
                            const std::vector<std::int64_t>& counts);
// Blocks one after the other; there is at least one.
Tensor joined(const std::vector<Tensor>& blocks);

struct RelatedCalls {
  Relation relation;
  // split_rows: rows of every block that go to the front; for an exchange one entry for each
  // member's
  //   block for each member, member by member. More than a block has are all that it has.
  // relabelled_ranks: for each member of the new group its number in the base.
  // gathered_root: the root.
  std::vector<std::int64_t> parameter;
};

// The operations that a relation may have for base.
std::vector<Operation> bases(Relation relation);

// The calls, the base first, where it stands as step `first`. Nothing when the relation does not
// apply to it: to tensors without rows to split, say. The base fits the contract and has no
// upstream gradient; its inputs are tensors of its own for all but scatter_then_gather and
// exchange_and_back. A parameter for more members than there are is cut short.
std::optional<std::vector<Step>> written_out(const RelatedCalls& calls, const Step& base,
                                             std::size_t first);

// The calls of this relation that begin with step `first` of a case, if they do.
std::optional<RelatedCalls> recognized(const Case& c, ResultTypes& types, std::size_t first,
                                       Relation relation);
// How many they are, the base included.
std::size_t length(Relation relation);

}  // namespace lockstep::kit
