#include "related_calls.hpp"

#include <algorithm>

namespace lockstep::kit {
namespace {

using Rows = std::int64_t;

bool has_own_tensors(const Step& step) {
  return std::ranges::all_of(
      step.inputs, [](const std::optional<Input>& input) { return input && !input->from_step; });
}

// Another call by the members of `base`, so far without inputs.
Step call_like(const Step& base, Operation operation) {
  Step step;
  step.group = base.group;
  step.operations.assign(base.members(), operation);
  return step;
}

Input fed(std::size_t from, std::vector<Rows> send_counts = {}) {
  Input input;
  input.from_step = static_cast<int>(from);
  input.send_counts = std::move(send_counts);
  return input;
}

std::vector<Step> scattered_and_gathered(const Step& base, std::size_t first) {
  Step gather = call_like(base, Operation::all_gather_float);
  gather.inputs.assign(base.members(), fed(first));
  Step reduce = call_like(base, Operation::all_reduce_sum);
  reduce.inputs = base.inputs;
  return {base, gather, reduce};
}

std::vector<Step> exchanged_and_back(const Step& base, std::size_t first) {
  Step back = call_like(base, base.operations[0]);
  for (std::size_t member = 0; member < base.members(); ++member) {
    std::vector<Rows> counts;
    for (const std::optional<Input>& input : base.inputs) {
      counts.push_back(input->send_counts[member]);
    }
    back.inputs.push_back(fed(first, std::move(counts)));
  }
  return {base, back};
}

// Rows of a block that go to the front.
Rows cut(const RelatedCalls& calls, Operation operation, std::size_t member, std::size_t block) {
  if (!is_all_to_all_v(operation)) return calls.parameter[0];
  std::size_t members = 0;
  while (members * members < calls.parameter.size()) ++members;
  return calls.parameter[member * members + block];
}

std::optional<std::vector<Step>> split(const RelatedCalls& calls, const Step& base) {
  const Operation operation = base.operations[0];
  Step front = call_like(base, operation);
  front.roots = base.roots;
  Step back = front;
  for (std::size_t member = 0; member < base.members(); ++member) {
    const Input& input = *base.inputs[member];
    if (input.tensor.shape().empty()) return std::nullopt;
    std::vector<Tensor> fronts, backs;
    std::vector<Rows> front_counts, back_counts;
    for (const Tensor& block :
         divided(input.tensor, input_blocks(operation), base.members(), input.send_counts)) {
      const Rows rows = std::min(cut(calls, operation, member, fronts.size()), block.rows());
      fronts.push_back(block.slice_rows(0, rows));
      backs.push_back(block.slice_rows(rows, block.rows()));
      front_counts.push_back(rows);
      back_counts.push_back(block.rows() - rows);
    }
    if (!is_all_to_all_v(operation)) front_counts = back_counts = {};
    front.inputs.push_back(Input{std::nullopt, joined(fronts), std::move(front_counts)});
    back.inputs.push_back(Input{std::nullopt, joined(backs), std::move(back_counts)});
  }
  return std::vector<Step>{base, front, back};
}

std::optional<std::vector<Step>> relabelled(const RelatedCalls& calls, const Step& base) {
  std::vector<std::size_t> order;
  for (const std::int64_t member : calls.parameter) {
    if (member < static_cast<std::int64_t>(base.members())) {
      order.push_back(static_cast<std::size_t>(member));
    }
  }
  if (order.size() != base.members()) return std::nullopt;
  const Operation operation = base.operations[0];
  Step other = call_like(base, operation);
  other.group.clear();
  for (const std::size_t member : order) {
    other.group.push_back(base.world_rank(member));
    Input input = *base.inputs[member];
    if (is_all_to_all_v(operation)) {
      const std::vector<Tensor> blocks =
          divided(input.tensor, Blocks::counted, order.size(), input.send_counts);
      std::vector<Tensor> reordered;
      std::vector<Rows> counts;
      for (const std::size_t destination : order) {
        reordered.push_back(blocks[destination]);
        counts.push_back(input.send_counts[destination]);
      }
      input.tensor = joined(reordered);
      input.send_counts = std::move(counts);
    }
    other.inputs.push_back(std::move(input));
  }
  if (!base.roots.empty()) {
    const auto root = std::ranges::find(order, static_cast<std::size_t>(base.roots[0]));
    other.roots.assign(order.size(), root - order.begin());
  }
  return std::vector<Step>{base, other};
}

std::vector<Step> gathered_and_broadcast(const RelatedCalls& calls, const Step& base) {
  Step broadcast = call_like(base, Operation::broadcast_float);
  broadcast.inputs = base.inputs;
  const auto last = static_cast<std::int64_t>(base.members()) - 1;
  broadcast.roots.assign(base.members(), std::min(calls.parameter[0], last));
  return {base, broadcast};
}

std::optional<std::vector<Step>> gathered_and_exchanged(const Step& base) {
  Step exchange =
      call_like(base, takes_integers(base.operations[0]) ? Operation::all_to_all_v_int
                                                         : Operation::all_to_all_v_float);
  for (const std::optional<Input>& input : base.inputs) {
    const Tensor& shard = input->tensor;
    if (std::ranges::count(shard.shape().trailing(), 0) > 0) return std::nullopt;
    exchange.inputs.push_back(Input{std::nullopt,
                                    joined(std::vector<Tensor>(base.members(), shard)),
                                    std::vector<Rows>(base.members(), shard.rows())});
  }
  return std::vector<Step>{base, exchange};
}

// --- Recognizing them

bool same_calls(const Step& a, const Step& b) {
  if (a.group != b.group || a.operations != b.operations || a.roots != b.roots) return false;
  if (a.repeat != 1 || b.repeat != 1 || !a.upstream.empty() || !b.upstream.empty()) return false;
  for (std::size_t member = 0; member < a.members(); ++member) {
    const Input& x = *a.inputs[member];
    const Input& y = *b.inputs[member];
    if (x.from_step != y.from_step || x.send_counts != y.send_counts) return false;
    if (!x.from_step && !same_bits(x.tensor, y.tensor)) return false;
  }
  return true;
}

// What the relation would need to know if `other`, the step after the base, came of it. Nothing
// where it cannot have.
std::optional<std::vector<std::int64_t>> parameter(Relation relation, const Step& base,
                                                   const Step& other) {
  const Operation operation = base.operations[0];
  std::vector<std::int64_t> known;
  switch (relation) {
    case Relation::scatter_then_gather:
    case Relation::exchange_and_back:
    case Relation::gather_by_exchange:
      return known;
    case Relation::split_rows: {
      if (other.operations != base.operations || !has_own_tensors(other)) return std::nullopt;
      if (is_all_to_all_v(operation)) {
        for (const std::optional<Input>& input : other.inputs) {
          known.insert(known.end(), input->send_counts.begin(), input->send_counts.end());
        }
        return known;
      }
      const Shape& shape = other.inputs[0]->tensor.shape();
      if (shape.empty()) return std::nullopt;
      const bool equal = input_blocks(operation) == Blocks::equal;
      known.push_back(shape[0] / (equal ? static_cast<std::int64_t>(base.members()) : 1));
      return known;
    }
    case Relation::relabelled_ranks: {
      for (const int rank : other.group) {
        for (std::size_t member = 0; member < base.members(); ++member) {
          if (base.world_rank(member) == rank) known.push_back(static_cast<std::int64_t>(member));
        }
      }
      if (known.size() != base.members()) return std::nullopt;
      return known;
    }
    case Relation::gathered_root:
      if (other.roots.empty()) return std::nullopt;
      known.push_back(other.roots[0]);
      return known;
  }
  return std::nullopt;
}

}  // namespace

Blocks input_blocks(Operation operation) {
  if (is_all_to_all_v(operation)) return Blocks::counted;
  return operation == Operation::reduce_scatter_sum ? Blocks::equal : Blocks::one;
}

Blocks result_blocks(Operation operation) {
  if (is_all_to_all_v(operation)) return Blocks::counted;
  const bool gathers =
      operation == Operation::all_gather_float || operation == Operation::all_gather_int;
  return gathers ? Blocks::equal : Blocks::one;
}

std::vector<Tensor> divided(const Tensor& x, Blocks blocks, std::size_t ranks,
                            const std::vector<std::int64_t>& counts) {
  if (blocks == Blocks::one) return {x};
  std::vector<Rows> rows = counts;
  if (blocks == Blocks::equal) rows.assign(ranks, x.rows() / static_cast<Rows>(ranks));
  std::vector<Tensor> parts;
  Rows at = 0;
  for (const Rows length : rows) {
    parts.push_back(x.slice_rows(at, at + length));
    at += length;
  }
  return parts;
}

Tensor joined(const std::vector<Tensor>& blocks) {
  if (blocks.size() == 1) return blocks[0];
  std::vector<std::byte> bytes;
  Rows rows = 0;
  for (const Tensor& block : blocks) {
    bytes.insert(bytes.end(), block.bytes().begin(), block.bytes().end());
    rows += block.rows();
  }
  return Tensor::from_bytes(blocks[0].dtype(), blocks[0].shape().with_rows(rows), bytes);
}

std::vector<Operation> bases(Relation relation) {
  switch (relation) {
    case Relation::scatter_then_gather:
      return {Operation::reduce_scatter_sum};
    case Relation::exchange_and_back:
      return {Operation::all_to_all_v_float, Operation::all_to_all_v_int};
    case Relation::gathered_root:
      return {Operation::all_gather_float};
    case Relation::gather_by_exchange:
      return {Operation::all_gather_float, Operation::all_gather_int};
    case Relation::split_rows:
    case Relation::relabelled_ranks:
      break;
  }
  return {std::begin(tensor_operations), std::end(tensor_operations)};
}

std::size_t length(Relation relation) {
  const bool three = relation == Relation::scatter_then_gather || relation == Relation::split_rows;
  return three ? 3 : 2;
}

std::optional<std::vector<Step>> written_out(const RelatedCalls& calls, const Step& base,
                                             std::size_t first) {
  switch (calls.relation) {
    case Relation::scatter_then_gather:
      return scattered_and_gathered(base, first);
    case Relation::exchange_and_back:
      return exchanged_and_back(base, first);
    case Relation::split_rows:
      return split(calls, base);
    case Relation::relabelled_ranks:
      return relabelled(calls, base);
    case Relation::gathered_root:
      return gathered_and_broadcast(calls, base);
    case Relation::gather_by_exchange:
      return gathered_and_exchanged(base);
  }
  return std::nullopt;
}

std::optional<RelatedCalls> recognized(const Case& c, ResultTypes& types, std::size_t first,
                                       Relation relation) {
  const std::size_t count = length(relation);
  if (first + count > c.steps.size()) return std::nullopt;
  const Step& base = c.steps[first];
  const std::vector<Operation> possible = bases(relation);
  if (std::ranges::count(possible, base.operations[0]) == 0) return std::nullopt;
  for (std::size_t s = first; s < first + count; ++s) {
    if (c.steps[s].members() != base.members() || !types.of(s)) return std::nullopt;
  }
  const bool takes_values =
      relation == Relation::scatter_then_gather || relation == Relation::exchange_and_back;
  if (!takes_values && !has_own_tensors(base)) return std::nullopt;
  const auto known = parameter(relation, base, c.steps[first + 1]);
  if (!known) return std::nullopt;
  RelatedCalls calls{relation, *known};
  const std::optional<std::vector<Step>> steps = written_out(calls, base, first);
  if (!steps) return std::nullopt;
  for (std::size_t i = 0; i < count; ++i) {
    if (!same_calls((*steps)[i], c.steps[first + i])) return std::nullopt;
  }
  return calls;
}

}  // namespace lockstep::kit
