#include "faults.hpp"

#include <algorithm>
#include <vector>

#include "generator_shapes.hpp"
#include "generator_values.hpp"
#include "program_builder.hpp"

namespace lockstep::kit {
namespace {

constexpr std::int64_t huge = std::int64_t{1} << 62;

// A step in the making, seen through what a fault needs to know.
struct Call {
  Dice& dice;
  Step& step;

  int ranks() const { return static_cast<int>(step.members()); }
  Operation operation() const { return step.operations[0]; }
  Input& input(int member) { return *step.inputs[static_cast<std::size_t>(member)]; }
  std::int64_t& root(int member) { return step.roots[static_cast<std::size_t>(member)]; }
  // All members, for rules that a call breaks when everybody passes the same wrong thing.
  std::vector<int> all() const {
    std::vector<int> members;
    for (int member = 0; member < ranks(); ++member) members.push_back(member);
    return members;
  }

  void give(int member, DType dtype, const Shape& shape) {
    input(member).tensor = elements_to_move(dice, dtype, {shape})[0];
  }
  void give(int member, const Shape& shape) { give(member, input(member).tensor.dtype(), shape); }
};

using Fault = bool (*)(Call&);  // false when the call cannot be broken in this way

// Some members call something else. At least one goes on with the first operation.
bool other_operation(Call& call) {
  if (call.ranks() < 2) return false;
  const int loyal = static_cast<int>(call.dice.below(call.ranks()));
  const Operation other = call.dice.pick(tensor_operations);
  if (other == call.operation()) return false;
  for (int member : call.dice.some_of(call.ranks())) {
    if (member == loyal) continue;
    call.step.operations[static_cast<std::size_t>(member)] = other;
    Input& input = call.input(member);
    if (takes_integers(other) != is_integer(input.tensor.dtype())) {
      call.give(member, takes_integers(other) ? DType::i32 : DType::f32, input.tensor.shape());
    }
    input.send_counts.clear();
    if (is_all_to_all_v(other)) {
      const Shape& shape = input.tensor.shape();
      input.send_counts = draw_division(call.dice, call.ranks(), shape.empty() ? 0 : shape[0]);
    }
  }
  const bool broadcasts = std::ranges::count(call.step.operations, Operation::broadcast_float) > 0;
  if (!broadcasts) {
    call.step.roots.clear();
  } else if (call.step.roots.empty()) {
    call.step.roots.assign(call.step.members(), draw_root(call.dice, call.ranks()));
  }
  return std::ranges::count(call.step.operations, other) > 0;
}

bool other_dtype(Call& call) {
  if (call.ranks() < 2) return false;
  const int loyal = static_cast<int>(call.dice.below(call.ranks()));
  for (int member : call.dice.some_of(call.ranks())) {
    if (member == loyal) continue;
    const Tensor& tensor = call.input(member).tensor;
    const DType other = is_integer(tensor.dtype()) ? call.dice.pick(integer_dtypes)
                                                   : call.dice.pick(floating_dtypes);
    if (other != tensor.dtype()) call.give(member, other, Shape(tensor.shape()));
  }
  return true;
}

bool other_axes(Call& call) {
  if (call.ranks() < 2) return false;
  for (int member : call.dice.some_of(call.ranks())) {
    const std::span<const std::int64_t> axes = call.input(member).tensor.shape().axes();
    std::vector<std::int64_t> changed(axes.begin(), axes.end());
    if (changed.size() > 1 && call.dice.one_in(2)) {
      changed.pop_back();
    } else {
      changed.push_back(call.dice.pick<std::int64_t>({1, 1, 2}));
    }
    call.give(member, Shape(std::span<const std::int64_t>(changed)));
  }
  return true;
}

bool other_shape(Call& call) {
  if (call.ranks() < 2) return false;
  for (int member : call.dice.some_of(call.ranks())) {
    const std::span<const std::int64_t> axes = call.input(member).tensor.shape().axes();
    const std::size_t first = is_all_to_all_v(call.operation()) ? 1 : 0;
    if (axes.size() <= first) return false;
    std::vector<std::int64_t> changed(axes.begin(), axes.end());
    std::int64_t& axis = changed[first + call.dice.index(changed.size() - first)];
    axis = axis > 0 && call.dice.one_in(2) ? axis - 1 : axis + 1;
    call.give(member, Shape(std::span<const std::int64_t>(changed)));
  }
  return true;
}

bool no_leading_axis(Call& call) {
  if (!needs_leading_axis(call.operation())) return false;
  for (int member : call.all()) call.give(member, Shape{});
  return true;
}

bool indivisible_rows(Call& call) {
  if (call.operation() != Operation::reduce_scatter_sum || call.ranks() < 2) return false;
  const std::int64_t extra = call.dice.between(1, call.ranks() - 1);
  for (int member : call.all()) {
    const Shape& shape = call.input(member).tensor.shape();
    if (shape.empty()) return false;
    call.give(member, shape.with_rows(shape[0] + extra));
  }
  return true;
}

bool root_out_of_range(Call& call) {
  if (call.operation() != Operation::broadcast_float) return false;
  const std::int64_t ranks = call.ranks();
  const std::int64_t wrong =
      call.dice.pick<std::int64_t>({ranks, ranks, -1, ranks + 1, INT64_MAX, INT64_MIN,
                                    (std::int64_t{1} << 32)});  // zero in 32 bits
  for (int member : call.dice.one_in(2) ? call.all() : call.dice.some_of(call.ranks())) {
    call.root(member) = wrong;
  }
  return true;
}

bool roots_differ(Call& call) {
  if (call.operation() != Operation::broadcast_float || call.ranks() < 2) return false;
  const std::int64_t shift = call.dice.between(1, call.ranks() - 1);
  for (int member : call.dice.some_of(call.ranks())) {
    std::int64_t& root = call.root(member);
    if (root < 0 || root >= call.ranks()) return false;
    root = (root + shift) % call.ranks();
  }
  return true;
}

bool counts_length(Call& call) {
  if (!is_all_to_all_v(call.operation())) return false;
  for (int member : call.dice.some_of(call.ranks())) {
    std::vector<std::int64_t>& counts = call.input(member).send_counts;
    switch (call.dice.below(3)) {
      case 0:
        counts.push_back(0);
        break;
      case 1:
        counts.clear();
        break;
      default:
        if (!counts.empty()) counts.pop_back();
    }
  }
  return true;
}

bool counts_sum(Call& call) {
  if (!is_all_to_all_v(call.operation())) return false;
  for (int member : call.dice.some_of(call.ranks())) {
    std::vector<std::int64_t>& counts = call.input(member).send_counts;
    if (counts.empty() || std::ranges::max(counts) == INT64_MAX) return false;
    std::int64_t& count = counts[call.dice.index(counts.size())];
    switch (call.dice.below(5)) {
      case 4:  // right again in 16 or 32 bits
        count += call.dice.one_in(2) ? std::int64_t{1} << 32 : std::int64_t{1} << 16;
        break;
      case 0:
        count += 1;
        break;
      case 1:
        count -= 1;
        break;
      case 2:
        count = INT64_MAX;
        break;
      default:  // one negative entry, and the sum is right
        counts.back() += count + 1;
        count = -1;
    }
  }
  return true;
}

bool zero_trailing_axis(Call& call) {
  if (!is_all_to_all_v(call.operation())) return false;
  for (int member : call.all()) {
    const Shape& shape = call.input(member).tensor.shape();
    if (shape.empty()) return false;
    call.give(member, Shape{shape[0], 0});
  }
  return true;
}

// Empty tensors whose rows alone add up beyond 2^63-1.
bool size_overflow(Call& call) {
  if (!is_all_gather(call.operation()) || call.ranks() < 2) return false;
  for (int member : call.all()) call.give(member, Shape{huge, 0});
  return true;
}

constexpr Fault faults[] = {other_operation, other_dtype,      other_axes,         other_shape,
                            no_leading_axis, indivisible_rows, root_out_of_range,  roots_differ,
                            counts_length,   counts_sum,       zero_trailing_axis, size_overflow};

}  // namespace

void break_call(Dice& dice, Step& step) {
  Call call{dice, step};
  int wanted = dice.pick({1, 1, 1, 2, 3});
  // Not every fault applies to every call; a few throws find one that does, and a call that stays
  // whole is an ordinary case.
  for (int tries = 0; wanted > 0 && tries < 40; ++tries) {
    // An operation of its own is put in last: the other faults take all members for alike.
    const Fault fault = faults[1 + dice.index(std::size(faults) - 1)];
    if (fault(call)) --wanted;
    if (fault == size_overflow && call.input(0).tensor.shape() == Shape{huge, 0}) return;
    if (wanted > 0 && dice.one_in(8) && other_operation(call)) return;
  }
}

}  // namespace lockstep::kit
