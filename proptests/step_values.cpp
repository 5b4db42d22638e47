#include <algorithm>

#include <lockstep/differentiation/tensor_operations.hpp>
#include <lockstep/kit/program_oracle.hpp>

#include "step_values.hpp"

namespace lockstep::kit {

std::optional<std::size_t> member_of(const Step& step, int world_rank) {
  if (step.group.empty()) return static_cast<std::size_t>(world_rank);
  const auto found = std::ranges::find(step.group, world_rank);
  if (found == step.group.end()) return std::nullopt;
  return static_cast<std::size_t>(found - step.group.begin());
}

std::optional<std::size_t> missing_member(const Step& step) {
  const auto missing = std::ranges::find_if(step.inputs, [](const auto& input) { return !input; });
  if (missing == step.inputs.end()) return std::nullopt;
  return static_cast<std::size_t>(missing - step.inputs.begin());
}

bool has_stall(const Case& c) {
  return std::ranges::any_of(c.steps, [](const Step& step) {
    return std::ranges::count(step.departures, Departure::stalls) > 0;
  });
}

std::optional<Departure> departure_of(const Case& c, int world_rank) {
  for (const Step& step : c.steps) {
    const std::optional<std::size_t> member = member_of(step, world_rank);
    if (!member || step.inputs[*member]) continue;
    return step.departures.empty() ? Departure::returns : step.departures[*member];
  }
  return std::nullopt;
}

std::vector<Tensor> inputs_of(const Case& c, std::size_t step, const Transcript& earlier) {
  const Step& call = c.steps[step];
  std::vector<Tensor> tensors;
  tensors.reserve(call.members());
  for (std::size_t member = 0; member < call.members(); ++member) {
    const Input& input = *call.inputs[member];
    if (!input.from_step) {
      tensors.push_back(input.tensor);
      continue;
    }
    const auto source = static_cast<std::size_t>(*input.from_step);
    const int rank = call.world_rank(member);
    const std::optional<std::size_t> position = member_of(c.steps[source], rank);
    if (!position || *position >= earlier[source].size() ||
        earlier[source][*position].kind != Outcome::Kind::value) {
      throw NoSuchValue("/steps/" + std::to_string(step) + "/inputs/" + std::to_string(member) +
                        "/from_step: rank " + std::to_string(rank) + " got no value from step " +
                        std::to_string(source));
    }
    tensors.push_back(earlier[source][*position].value);
  }
  return tensors;
}

bool asks_for_gradient(const Step& step) {
  return std::ranges::any_of(step.upstream, [](const auto& one) { return one.has_value(); });
}

bool depends_on_input(const Step& step, std::size_t member) {
  return step.operations[member] != Operation::broadcast_float ||
         step.roots[member] == static_cast<std::int64_t>(member);
}

std::vector<Tensor> window_upstream(const Case& c, std::size_t index,
                                    const std::vector<Outcome>& outcomes,
                                    const Transcript& transcript) {
  using Operations = differentiation::TensorOperations<FloatTensor>;
  const Step& step = c.steps[index];
  std::vector<Tensor> all;
  for (std::size_t member = 0; member < step.members(); ++member) {
    const Tensor& result = outcomes[member].value;
    const int rank = step.world_rank(member);
    std::optional<Tensor> sum = step.upstream.empty() ? std::nullopt : step.upstream[member];
    for (std::size_t later = c.steps.size(); --later > index;) {
      const Step& user = c.steps[later];
      const std::optional<std::size_t> position = member_of(user, rank);
      if (!position || !depends_on_input(user, *position)) continue;
      const std::optional<Input>& input = user.inputs[*position];
      if (!input || input->from_step != static_cast<int>(index)) continue;
      const std::optional<Tensor>& back = transcript[later][*position].gradient;
      if (!back || back->dtype() != result.dtype() || back->shape() != result.shape()) continue;
      sum = sum ? Operations::add(FloatTensor(*sum), FloatTensor(*back)) : *back;
    }
    all.push_back(sum ? *std::move(sum) : Tensor::zeros(result.dtype(), result.shape()));
  }
  return all;
}

std::optional<std::vector<Tensor>> full_upstream(const Step& step,
                                                 const std::vector<Outcome>& outcomes) {
  std::vector<Tensor> full;
  for (std::size_t member = 0; member < step.members(); ++member) {
    const Tensor& result = outcomes[member].value;
    const std::optional<Tensor>& upstream = step.upstream[member];
    if (!upstream) {
      full.push_back(Tensor::zeros(result.dtype(), result.shape()));
    } else if (upstream->dtype() == result.dtype() && upstream->shape() == result.shape()) {
      full.push_back(*upstream);
    } else {
      return std::nullopt;
    }
  }
  return full;
}

std::optional<Operation> reverse_of(Operation operation) {
  switch (operation) {
    case Operation::all_gather_float:
      return Operation::reduce_scatter_sum;
    case Operation::reduce_scatter_sum:
      return Operation::all_gather_float;
    case Operation::all_reduce_sum:
      return Operation::all_reduce_sum;
    case Operation::broadcast_float:
      return Operation::all_reduce_sum;
    case Operation::all_to_all_v_float:
      return Operation::all_to_all_v_float;
    case Operation::all_gather_int:
    case Operation::all_to_all_v_int:
    case Operation::split:
      break;
  }
  return std::nullopt;
}

}  // namespace lockstep::kit
