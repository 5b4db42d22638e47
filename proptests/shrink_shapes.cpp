// Smaller tensors.

#include <algorithm>
#include <vector>

#include "shrink_moves.hpp"
#include "shrink_tensors.hpp"

namespace lockstep::kit {
namespace {

enum class End : bool { front, back };

// `length` entries of an axis, from one of its ends.
Tensor narrowed(const Tensor& tensor, std::size_t axis, std::int64_t length, End kept) {
  std::vector<std::int64_t> axes(tensor.shape().axes().begin(), tensor.shape().axes().end());
  std::vector<std::int64_t> strides(axes.size(), 1);
  for (std::size_t i = axes.size(); i-- > 1;)
    strides[i - 1] = strides[i] * std::max<std::int64_t>(axes[i], 1);
  const std::int64_t skipped = kept == End::front ? 0 : axes[axis] - length;
  const std::byte* start = tensor.data();
  axes[axis] = length;
  const Shape shape{std::span<const std::int64_t>(axes)};
  if (tensor.elements() == 0 || length == 0) return Tensor::zeros(tensor.dtype(), shape);
  start += skipped * strides[axis] * size_of(tensor.dtype());
  return Tensor::from_strided(tensor.dtype(), shape, strides, start);
}

std::optional<Tensor> without_axis(const Tensor& tensor, std::size_t axis, End kept) {
  if (tensor.shape()[axis] == 0) return std::nullopt;
  const Tensor single = narrowed(tensor, axis, 1, kept);
  std::vector<std::int64_t> axes(single.shape().axes().begin(), single.shape().axes().end());
  axes.erase(axes.begin() + static_cast<long>(axis));
  return single.reshape(Shape(std::span<const std::int64_t>(axes)));
}

// Nothing for an axis so long that the product could not be a length.
std::optional<Tensor> joined_axis(const Tensor& tensor, std::size_t axis) {
  std::vector<std::int64_t> axes(tensor.shape().axes().begin(), tensor.shape().axes().end());
  const std::optional<std::int64_t> length = checked_multiply(axes[axis - 1], axes[axis]);
  if (!length) return std::nullopt;
  axes[axis - 1] = *length;
  axes.erase(axes.begin() + static_cast<long>(axis));
  return tensor.reshape(Shape(std::span<const std::int64_t>(axes)));
}

std::int64_t longest(const Step& step, std::size_t axis) {
  std::int64_t length = 0;
  for (const std::optional<Input>& input : step.inputs) {
    if (input && !input->from_step && input->tensor.shape().size() > axis) {
      length = std::max(length, input->tensor.shape()[axis]);
    }
  }
  return length;
}

// Every member's axis is `less` shorter, so that lengths that differ go on to differ.
void add_shortening(const Origin& origin, std::size_t step, std::size_t axis, std::int64_t less,
                    Moves& moves) {
  if (less <= 0) return;
  for (const End kept : {End::front, End::back}) {
    moves.push_back([=] {
      return with_tensors(
          *origin, step, [&](std::size_t, const Tensor& tensor) -> std::optional<Tensor> {
            if (tensor.shape().size() <= axis) return tensor;
            const std::int64_t length = std::max<std::int64_t>(0, tensor.shape()[axis] - less);
            return narrowed(tensor, axis, length, kept);
          });
    });
  }
}

// Every step's axis, where it has one, is shortened alike: what fails in two calls that are alike may
// need them to stay so. `shorter` gives the new length, counted for a reduce-scatter's rows in shares.
template <class Shorter>
void add_joint_shortening(const Origin& origin, std::size_t axis, Shorter shorter, Moves& moves) {
  for (const End kept : {End::front, End::back}) {
    moves.push_back([=]() -> std::optional<Case> {
      std::optional<Case> c = *origin;
      for (std::size_t s = 0; s < c->steps.size(); ++s) {
        const Operation operation = origin->steps[s].operations[0];
        if (axis == 0 && is_all_to_all_v(operation)) continue;
        const bool shares = axis == 0 && operation == Operation::reduce_scatter_sum;
        const auto unit = shares ? static_cast<std::int64_t>(origin->steps[s].members()) : 1;
        c = with_tensors(*c, s, [&](std::size_t, const Tensor& tensor) -> std::optional<Tensor> {
          if (tensor.shape().size() <= axis || tensor.shape()[axis] % unit != 0) return tensor;
          const std::int64_t length = tensor.shape()[axis] / unit;
          return narrowed(tensor, axis, std::min(length, shorter(length)) * unit, kept);
        });
      }
      return c;
    });
  }
}

void add_joint_moves(const Origin& origin, Moves& moves) {
  std::int64_t most = 0;
  std::size_t axes = 0;
  for (const Step& step : origin->steps) {
    for (std::size_t axis = 0; longest(step, axis) > 0; ++axis) {
      most = std::max(most, longest(step, axis));
      axes = std::max(axes, axis + 1);
    }
  }
  for (std::size_t axis = 0; axis < axes; ++axis) {
    add_joint_shortening(origin, axis, [](std::int64_t) { return std::int64_t{0}; }, moves);
    add_joint_shortening(origin, axis, [](std::int64_t) { return std::int64_t{1}; }, moves);
    for (std::int64_t less = most / 2; less > 0; less /= 2) {
      add_joint_shortening(
          origin, axis,
          [less](std::int64_t length) { return std::max<std::int64_t>(1, length - less); }, moves);
    }
  }
}

}  // namespace

void add_shape_moves(const Origin& origin, Moves& moves) {
  if (origin->steps.size() > 1) add_joint_moves(origin, moves);
  for (std::size_t s = 0; s < origin->steps.size(); ++s) {
    const Step& step = origin->steps[s];
    const bool exchange = std::ranges::any_of(step.operations, is_all_to_all_v);
    if (exchange) {
      add_block_moves(origin, s, moves);
    } else if (const std::int64_t rows = longest(step, 0); rows > 0) {
      // The rows of a reduce-scatter stay divisible.
      const bool scatter = std::ranges::count(step.operations, Operation::reduce_scatter_sum) > 0;
      const auto unit = scatter ? static_cast<std::int64_t>(step.members()) : std::int64_t{1};
      const std::int64_t units = rows / unit;
      add_shortening(origin, s, 0, units * unit, moves);
      add_shortening(origin, s, 0, (units - 1) * unit, moves);
      // Ever smaller parts, so that a length from which on it fails is found quickly.
      for (std::int64_t less = units / 2; less > 0; less /= 2) {
        add_shortening(origin, s, 0, less * unit, moves);
      }
    }
    std::size_t most_axes = 0;
    for (const std::optional<Input>& input : step.inputs) {
      if (input && !input->from_step) most_axes = std::max(most_axes, input->tensor.shape().size());
    }
    // An axis joined with the one before it; where rows are counted, the leading one stays apart.
    for (std::size_t axis = exchange ? 2 : 1; axis < most_axes; ++axis) {
      moves.push_back([=] {
        return with_tensors(*origin, s,
                            [&](std::size_t, const Tensor& tensor) -> std::optional<Tensor> {
                              if (tensor.shape().size() <= axis) return tensor;
                              return joined_axis(tensor, axis);
                            });
      });
    }
    const bool keeps_leading = std::ranges::any_of(step.operations, needs_leading_axis);
    for (std::size_t axis = keeps_leading ? 1 : 0; axis < most_axes; ++axis) {
      for (const End kept : {End::front, End::back}) {
        moves.push_back([=] {
          return with_tensors(*origin, s,
                              [&](std::size_t, const Tensor& tensor) -> std::optional<Tensor> {
                                if (tensor.shape().size() <= axis) return tensor;
                                return without_axis(tensor, axis, kept);
                              });
        });
      }
      const std::int64_t length = longest(step, axis);
      if (axis == 0) continue;
      for (std::int64_t less : {length, length - 1, length / 2, std::int64_t{1}}) {
        add_shortening(origin, s, axis, less, moves);
      }
    }
  }
}

}  // namespace lockstep::kit
