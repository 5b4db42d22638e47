// What the moves on tensors share.
#pragma once

#include <cstddef>
#include <optional>
#include <utility>

#include "result_types.hpp"
#include "shrink_moves.hpp"

namespace lockstep::kit {

// The case with every tensor of one step put through `change(member, tensor)`, an optional result.
// Nothing when a tensor cannot be changed.
template <class Change>
std::optional<Case> with_tensors(const Case& c, std::size_t step, Change change) {
  Case changed = c;
  for (std::size_t member = 0; member < changed.steps[step].members(); ++member) {
    std::optional<Input>& input = changed.steps[step].inputs[member];
    if (!input || input->from_step) continue;
    std::optional<Tensor> tensor = change(member, input->tensor);
    if (!tensor) return std::nullopt;
    input->tensor = std::move(*tensor);
  }
  return changed;
}

// Small whole numbers, different in neighbouring elements.
Tensor plain_tensor(const TensorType& type);

// The elements in another dtype: the same one, or f32 for floats and i32 for integers.
Tensor converted(const Tensor& tensor, DType to);

}  // namespace lockstep::kit
