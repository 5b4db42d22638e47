#include "program_builder.hpp"

#include <algorithm>

#include <lockstep/agreement.hpp>

#include "faults.hpp"
#include "generator_shapes.hpp"
#include "generator_values.hpp"
#include "related_calls.hpp"
#include "step_values.hpp"

namespace lockstep::kit {
namespace {

// No rank passes more than this: a megabyte and more of every dtype.
constexpr std::int64_t most_bytes = 2'400'000;
// Results that are fed onward stay this small, however often they are gathered.
constexpr std::int64_t most_elements_fed = 4096;
// Related calls are several of the size of one, and one of them may pass every tensor as often as
// there are ranks.
constexpr std::int64_t most_related_elements = 300'000;
// Strides are slow to follow.
constexpr std::int64_t most_strided_elements = 70'000;
// A gather's results are as large as the world times its inputs, on every rank, and so are the
// upstream gradients of a step that has any.
constexpr std::int64_t most_upstream_elements = 1'000'000;

DType draw_dtype(Dice& dice, Operation operation) {
  return takes_integers(operation) ? dice.pick(integer_dtypes) : dice.pick(floating_dtypes);
}

std::int64_t product(const std::vector<std::int64_t>& axes) {
  std::int64_t product = 1;
  for (std::int64_t axis : axes) product *= axis;
  return product;
}

}  // namespace

std::int64_t draw_root(Dice& dice, int ranks) {
  return dice.one_in(3) ? ranks - 1 : dice.below(ranks);
}

ProgramBuilder::ProgramBuilder(Dice& dice, int world)
    : dice_(dice),
      budget_(draw_budget(dice, world)),
      gone_(static_cast<std::size_t>(world), false) {
  case_.world = world;
}

int ProgramBuilder::members(const std::vector<int>& group) const {
  return group.empty() ? case_.world : static_cast<int>(group.size());
}

int ProgramBuilder::world_rank(const std::vector<int>& group, int member) const {
  return group.empty() ? member : group[static_cast<std::size_t>(member)];
}

std::vector<int> ProgramBuilder::present() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < case_.world; ++rank) {
    if (!gone_[static_cast<std::size_t>(rank)]) ranks.push_back(rank);
  }
  return ranks;
}

void ProgramBuilder::leave(std::span<const int> ranks, Departure how) {
  for (int rank : ranks) {
    if (gone_[static_cast<std::size_t>(rank)]) continue;
    gone_[static_cast<std::size_t>(rank)] = true;
    leaving_[rank] = how;
  }
}

void ProgramBuilder::call(Operation operation, std::vector<int> group) {
  if (!results_.empty() && (case_.window ? !dice_.one_in(4) : dice_.one_in(2))) {
    if (std::optional<Step> step = fed_call(operation, group)) return append(std::move(*step));
  }
  append(fresh_call(operation, group));
}

bool ProgramBuilder::call_again() {
  for (std::size_t s = case_.steps.size(); s-- > 0;) {
    const Step& earlier = case_.steps[s];
    const bool own = std::ranges::all_of(earlier.inputs, [](const std::optional<Input>& input) {
      return input && !input->from_step;
    });
    if (!own || !results_of(earlier)) continue;
    Step step;
    step.group = earlier.group;
    step.operations = earlier.operations;
    step.roots = earlier.roots;
    std::vector<Shape> shapes;
    for (const std::optional<Input>& input : earlier.inputs) {
      shapes.push_back(input->tensor.shape());
    }
    const std::vector<Tensor> tensors =
        fresh_elements(step.operations[0], earlier.inputs[0]->tensor.dtype(), shapes);
    for (std::size_t member = 0; member < tensors.size(); ++member) {
      step.inputs.push_back(
          Input{std::nullopt, tensors[member], earlier.inputs[member]->send_counts});
    }
    append(std::move(step));
    return true;
  }
  return false;
}

void ProgramBuilder::related_calls(Relation relation, std::vector<int> group) {
  Step base = fresh_call(dice_.pick(bases(relation)), group);
  std::int64_t elements = 0;
  for (const std::optional<Input>& input : base.inputs) elements += input->tensor.elements();
  std::optional<std::vector<Step>> steps;
  if (elements * static_cast<std::int64_t>(base.members()) <= most_related_elements) {
    steps = written_out({relation, draw_parameter(relation, base)}, base, case_.steps.size());
  }
  if (!steps) return append(std::move(base));
  for (Step& step : *steps) append(std::move(step));
}

std::vector<std::int64_t> ProgramBuilder::draw_parameter(Relation relation, const Step& base) {
  const auto ranks = static_cast<std::int64_t>(base.members());
  std::vector<std::int64_t> parameter;
  if (relation == Relation::gathered_root) {
    parameter.push_back(draw_root(dice_, static_cast<int>(ranks)));
  } else if (relation == Relation::relabelled_ranks) {
    for (std::int64_t member = 0; member < ranks; ++member) parameter.push_back(member);
    dice_.shuffle(std::span<std::int64_t>(parameter));
  } else if (relation == Relation::split_rows) {
    const Input& first = *base.inputs[0];
    if (is_all_to_all_v(base.operations[0])) {
      for (const std::optional<Input>& input : base.inputs) {
        for (const std::int64_t rows : input->send_counts) {
          parameter.push_back(dice_.between(0, rows));
        }
      }
    } else if (!first.tensor.shape().empty()) {
      const bool shares = input_blocks(base.operations[0]) == Blocks::equal;
      parameter.push_back(dice_.between(0, first.tensor.rows() / (shares ? ranks : 1)));
    }
  }
  return parameter;
}

void ProgramBuilder::keep_small() {
  budget_ = std::min(budget_, small_budget);
}

void ProgramBuilder::broken_call(Operation operation, std::vector<int> group) {
  Step step = fresh_call(operation, group);
  break_call(dice_, step);
  append(std::move(step));
}

void ProgramBuilder::repeat(std::int64_t times) {
  constexpr std::int64_t most_elements_moved = 4'000'000;
  Step& step = case_.steps.back();
  std::int64_t elements = 1;
  for (const std::optional<Input>& input : step.inputs) elements += input->tensor.elements();
  step.repeat = std::max<std::int64_t>(1, std::min(times, most_elements_moved / elements));
}

void ProgramBuilder::differentiate() {
  Step& step = case_.steps.back();
  const Operation operation = step.operations[0];
  const bool sum = reverse_of(operation).has_value() && is_sum(*reverse_of(operation));
  std::vector<Shape> shapes;
  std::int64_t elements = 0;
  for (std::size_t member = 0; member < step.members(); ++member) {
    const auto& result = results_.back()[static_cast<std::size_t>(step.world_rank(member))];
    shapes.push_back(result->shape);
    elements += *result->shape.elements();
  }
  if (elements > most_upstream_elements) return;
  // Results of integers have no gradient, whatever is asked for.
  const DType held = results_.back()[static_cast<std::size_t>(step.world_rank(0))]->dtype;
  const DType dtype = is_floating(held) ? held : dice_.pick(floating_dtypes);
  const std::vector<Tensor> upstream =
      sum ? elements_to_add(dice_, dtype, shapes[0], static_cast<int>(shapes.size()))
          : elements_to_move(dice_, dtype, shapes);
  step.upstream.assign(upstream.begin(), upstream.end());

  const auto ranks = static_cast<int>(step.members());
  // One wrong upstream is an error of a whole window.
  if (dice_.one_in(case_.window ? 60 : 8)) {
    for (const int member : dice_.some_of(ranks)) {
      std::optional<Tensor>& one = step.upstream[static_cast<std::size_t>(member)];
      const Shape shape = dice_.pick(
          {one->shape(), one->shape(), Shape{one->elements() + 1, 1}, Shape{one->elements(), 1}});
      const DType wrong = dice_.pick(floating_dtypes);  // the right one, with luck
      one = elements_to_move(dice_, wrong, {shape})[0];
    }
  }
  if (dice_.one_in(2)) {
    for (const int member : dice_.some_of(ranks)) {
      step.upstream[static_cast<std::size_t>(member)].reset();
    }
    // A step without any is not gone back over at all; a few of those are enough.
    if (!asks_for_gradient(step) && !dice_.one_in(4)) step.upstream[0] = upstream[0];
  }
}

Step ProgramBuilder::fresh_call(Operation operation, const std::vector<int>& group) {
  const int ranks = members(group);
  const auto n = static_cast<std::size_t>(ranks);
  const bool exchange = is_all_to_all_v(operation);
  const DType dtype = draw_dtype(dice_, operation);
  const std::int64_t budget = std::min(budget_, most_bytes / size_of(dtype));

  std::vector<Shape> shapes;
  std::vector<std::vector<std::int64_t>> counts(n);
  if (!needs_leading_axis(operation) && dice_.one_in(10)) {
    shapes.assign(n, Shape{});
  } else {
    const std::vector<std::int64_t> trailing =
        draw_trailing(dice_, budget, exchange ? ZeroAxes::forbidden : ZeroAxes::allowed);
    const std::int64_t row_budget = budget / std::max<std::int64_t>(1, product(trailing));
    if (exchange) {
      // Rows of one element are cheap enough for more of them than 16 bits count.
      const bool long_blocks = trailing.empty() && dice_.one_in(60);
      counts =
          draw_counts(dice_, ranks, long_blocks ? std::min(70'000, 500'000 / ranks) : row_budget);
      for (const std::vector<std::int64_t>& of_rank : counts) {
        std::int64_t rows = 0;
        for (std::int64_t count : of_rank) rows += count;
        shapes.push_back(shape_of(rows, trailing));
      }
    } else {
      // A reduce-scatter's rows come in multiples of the world, so the budget is for its shares.
      const bool scatter = operation == Operation::reduce_scatter_sum;
      const std::int64_t shares = scatter ? ranks : 1;
      const std::int64_t rows =
          shares * draw_rows(dice_, std::max<std::int64_t>(row_budget / shares, 4));
      shapes.assign(n, shape_of(rows, trailing));
    }
  }

  const std::vector<Tensor> tensors = fresh_elements(operation, dtype, shapes);
  Step step;
  step.group = group;
  step.operations.assign(n, operation);
  if (operation == Operation::broadcast_float) step.roots.assign(n, draw_root(dice_, ranks));
  for (std::size_t member = 0; member < n; ++member) {
    step.inputs.push_back(Input{std::nullopt, tensors[member], std::move(counts[member])});
  }
  return step;
}

std::vector<Tensor> ProgramBuilder::fresh_elements(Operation operation, DType dtype,
                                                   const std::vector<Shape>& shapes) {
  if (!is_sum(operation)) return elements_to_move(dice_, dtype, shapes);
  return elements_to_add(dice_, dtype, shapes[0], static_cast<int>(shapes.size()));
}

std::optional<Step> ProgramBuilder::fed_call(Operation operation, const std::vector<int>& group) {
  const int ranks = members(group);
  // A step that gave every member a value; the latest ones first, programs rarely look far back.
  const int latest = static_cast<int>(results_.size()) - 1;
  const int source = std::max(0, latest - static_cast<int>(dice_.below(3)));
  const auto& values = results_[static_cast<std::size_t>(source)];

  Step step;
  step.group = group;
  step.operations.assign(static_cast<std::size_t>(ranks), operation);
  if (operation == Operation::broadcast_float) {
    step.roots.assign(static_cast<std::size_t>(ranks), draw_root(dice_, ranks));
  }
  for (int member = 0; member < ranks; ++member) {
    const auto rank = static_cast<std::size_t>(world_rank(group, member));
    if (!values[rank] || is_integer(values[rank]->dtype) != takes_integers(operation)) {
      return std::nullopt;
    }
    Input input;
    input.from_step = source;
    if (is_all_to_all_v(operation)) {
      if (values[rank]->shape.empty()) return std::nullopt;
      input.send_counts = draw_division(dice_, ranks, values[rank]->shape[0]);
    }
    step.inputs.push_back(std::move(input));
  }
  const std::optional<std::vector<Result>> results = results_of(step);
  if (!results) return std::nullopt;  // it would break the contract
  for (const Result& result : *results) {
    if (result.shape.elements().value_or(0) > most_elements_fed) return std::nullopt;
  }
  // Now and then one rank brings a tensor of its own among the others' results.
  if (dice_.one_in(4)) {
    const std::size_t member = dice_.index(step.members());
    Input& input = *step.inputs[member];
    const Result& held = *values[static_cast<std::size_t>(step.world_rank(member))];
    input.tensor = elements_to_move(dice_, held.dtype, {held.shape})[0];
    input.from_step = std::nullopt;
  }
  return step;
}

// Layouts on some ranks and not on others: nobody may conclude from its own to another's.
void ProgramBuilder::draw_layouts(Step& step) {
  if (dice_.one_in(2)) return;
  for (std::optional<Input>& input : step.inputs) {
    if (!input || input->from_step) continue;
    input->layout = dice_.pick({MemoryLayout::dense, MemoryLayout::slice, MemoryLayout::slice,
                                MemoryLayout::strided, MemoryLayout::strided});
    if (input->tensor.elements() > most_strided_elements) input->layout = MemoryLayout::slice;
  }
}

std::optional<std::vector<ProgramBuilder::Result>> ProgramBuilder::results_of(
    const Step& step) const {
  std::vector<Signature> signatures;
  for (std::size_t member = 0; member < step.members(); ++member) {
    const std::optional<Input>& input = step.inputs[member];
    if (!input) return std::nullopt;
    Signature signature;
    signature.operation = step.operations[member];
    signature.dtype = input->tensor.dtype();
    signature.shape = input->tensor.shape();
    if (input->from_step) {
      const std::optional<Result>& held =
          results_[static_cast<std::size_t>(*input->from_step)]
                  [static_cast<std::size_t>(step.world_rank(member))];
      signature.dtype = held->dtype;
      signature.shape = held->shape;
    }
    if (!step.roots.empty()) signature.root = step.roots[member];
    signature.send_counts = input->send_counts;
    signatures.push_back(std::move(signature));
  }
  if (find_breach(signatures)) return std::nullopt;
  std::vector<Result> results;
  for (std::size_t member = 0; member < step.members(); ++member) {
    results.push_back(
        {signatures[member].dtype, result_shape(signatures, static_cast<int>(member))});
  }
  return results;
}

void ProgramBuilder::append(Step step) {
  draw_layouts(step);
  for (std::size_t member = 0; member < step.members(); ++member) {
    if (!gone_[static_cast<std::size_t>(step.world_rank(member))]) continue;
    step.inputs[member].reset();
    lost_.insert(step.group);
    const auto leaving = leaving_.find(step.world_rank(member));
    if (leaving == leaving_.end() || leaving->second == Departure::returns) continue;
    step.departures.resize(step.members(), Departure::returns);
    step.departures[member] = leaving->second;
  }
  leaving_.clear();
  std::vector<std::optional<Result>> held(static_cast<std::size_t>(case_.world));
  if (!lost_.contains(step.group)) {
    if (const std::optional<std::vector<Result>> results = results_of(step)) {
      for (std::size_t member = 0; member < step.members(); ++member) {
        held[static_cast<std::size_t>(step.world_rank(member))] = (*results)[member];
      }
    }
  }
  results_.push_back(std::move(held));
  case_.steps.push_back(std::move(step));
}

}  // namespace lockstep::kit
