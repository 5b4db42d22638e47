#include <lockstep/agreement.hpp>

#include "result_types.hpp"
#include "step_values.hpp"

namespace lockstep::kit {

const std::optional<std::vector<TensorType>>& ResultTypes::of(std::size_t step) {
  if (!known_[step]) known_[step] = work_out(case_.steps[step]);
  return *known_[step];
}

std::optional<std::vector<TensorType>> ResultTypes::work_out(const Step& step) {
  if (missing_member(step)) return std::nullopt;
  std::vector<Signature> signatures;
  for (std::size_t member = 0; member < step.members(); ++member) {
    const Input& input = *step.inputs[member];
    TensorType type{input.tensor.dtype(), input.tensor.shape()};
    if (input.from_step) {
      const auto source = static_cast<std::size_t>(*input.from_step);
      const auto position = member_of(case_.steps[source], step.world_rank(member));
      const std::optional<std::vector<TensorType>>& types = of(source);
      if (!position || !types) return std::nullopt;
      type = (*types)[*position];
    }
    signatures.push_back({step.operations[member], type.dtype, type.shape,
                          step.roots.empty() ? 0 : step.roots[member], input.send_counts});
  }
  if (find_breach(signatures)) return std::nullopt;
  std::vector<TensorType> types;
  for (std::size_t member = 0; member < step.members(); ++member) {
    types.push_back({signatures[member].dtype, result_shape(signatures, static_cast<int>(member))});
  }
  return types;
}

bool upstream_fits(const Step& step, const std::vector<TensorType>& results) {
  for (std::size_t member = 0; member < step.members(); ++member) {
    const std::optional<Tensor>& upstream = step.upstream[member];
    if (upstream && TensorType{upstream->dtype(), upstream->shape()} != results[member]) {
      return false;
    }
  }
  return true;
}

}  // namespace lockstep::kit
