#include <lockstep/agreement.hpp>

#include "result_types.hpp"
#include "step_values.hpp"

namespace lockstep::kit {

const std::optional<std::vector<TensorType>>& ResultTypes::of(std::size_t step) {
  if (!known_[step]) {
    // Until it is known there is none: a candidate in shrinking may refer to itself or to what
    // comes later.
    known_[step].emplace();
    known_[step] = work_out(case_.steps[step]);
  }
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

std::vector<bool> reached_steps(const Case& c) {
  ResultTypes types(c);
  std::vector<bool> reached(c.steps.size(), false);
  for (std::size_t s = c.steps.size(); s-- > 0;) {
    const Step& step = c.steps[s];
    if (takes_integers(step.operations[0]) || !types.of(s)) continue;
    if (asks_for_gradient(step)) reached[s] = true;
    if (!reached[s]) continue;
    for (std::size_t member = 0; member < step.members(); ++member) {
      const Input& input = *step.inputs[member];
      if (input.from_step && depends_on_input(step, member)) {
        reached[static_cast<std::size_t>(*input.from_step)] = true;
      }
    }
  }
  return reached;
}

bool all_upstreams_fit(const Case& c) {
  ResultTypes types(c);
  for (std::size_t s = 0; s < c.steps.size(); ++s) {
    const Step& step = c.steps[s];
    if (!asks_for_gradient(step) || takes_integers(step.operations[0])) continue;
    if (const auto& results = types.of(s); results && !upstream_fits(step, *results)) return false;
  }
  return true;
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
