// The oracle against loops that a beginner would write: one element at a time, by the indices that
// the contract names, with no thought of speed and none of the oracle's own code.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include <rapidcheck.h>

#include <lockstep/kit/case_file.hpp>
#include <lockstep/kit/program_oracle.hpp>
#include <lockstep/kit/rapidcheck.hpp>
#include <lockstep/oracle.hpp>

namespace lockstep::kit {
namespace {

using Elements = std::vector<std::string>;  // each element as its bits

Elements elements_of(const Tensor& tensor) {
  Elements elements;
  const auto size = static_cast<std::size_t>(size_of(tensor.dtype()));
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    elements.emplace_back(
        reinterpret_cast<const char*>(tensor.data()) + static_cast<std::size_t>(i) * size, size);
  }
  return elements;
}

std::int64_t product(std::span<const std::int64_t> axes) {
  std::int64_t result = 1;
  for (std::int64_t axis : axes) result *= axis;
  return result;
}

std::vector<Elements> elements_of(const std::vector<Tensor>& tensors) {
  std::vector<Elements> elements;
  for (const Tensor& tensor : tensors) elements.push_back(elements_of(tensor));
  return elements;
}

std::vector<Tensor> inputs_of(const Step& step) {
  std::vector<Tensor> inputs;
  for (const std::optional<Input>& input : step.inputs) inputs.push_back(input->tensor);
  return inputs;
}

// The first step of a generated case for one operation: a single call on the world, valid.
Step any_call(std::string_view operation) {
  const Case c = *cases_for(std::string(operation), {.most_ranks = 7});
  return c.steps[0];
}

std::vector<Outcome> answer(const Step& step, SumRule rule = SumRule::exact) {
  Case c;
  c.world = static_cast<int>(step.members());
  c.steps = {step};
  return expected_transcript(c, rule)[0];
}

void require(const Tensor& value, DType dtype, const Shape& shape, const Elements& elements) {
  RC_ASSERT(value.dtype() == dtype);
  RC_ASSERT(value.shape() == shape);
  RC_ASSERT(elements_of(value) == elements);
}

void gather_property(std::string_view operation) {
  const Step step = any_call(operation);
  const std::vector<Tensor> inputs = inputs_of(step);
  const auto n = static_cast<std::int64_t>(inputs.size());
  const Shape& shape = inputs[0].shape();
  const std::int64_t row = product(shape.trailing());
  const std::vector<Elements> held = elements_of(inputs);
  // Element (i, j) of the result is element (i mod rows, j) of rank i / rows.
  Elements expected;
  for (std::int64_t i = 0; i < n * shape[0]; ++i) {
    for (std::int64_t j = 0; j < row; ++j) {
      const auto rank = static_cast<std::size_t>(i / shape[0]);
      expected.push_back(held[rank][static_cast<std::size_t>(i % shape[0] * row + j)]);
    }
  }
  for (const Outcome& outcome : answer(step)) {
    require(outcome.value, inputs[0].dtype(), shape.with_rows(n * shape[0]), expected);
  }
}

void exchange_property(std::string_view operation) {
  const Step step = any_call(operation);
  const std::vector<Tensor> inputs = inputs_of(step);
  const std::size_t n = inputs.size();
  const std::int64_t row = product(inputs[0].shape().trailing());
  const std::vector<Elements> held = elements_of(inputs);
  const std::vector<Outcome> outcomes = answer(step);
  for (std::size_t receiver = 0; receiver < n; ++receiver) {
    Elements expected;
    std::vector<std::int64_t> receive_counts;
    std::int64_t rows = 0;
    for (std::size_t source = 0; source < n; ++source) {
      const std::vector<std::int64_t>& counts = step.inputs[source]->send_counts;
      std::int64_t first = 0;
      for (std::size_t before = 0; before < receiver; ++before) first += counts[before];
      for (std::int64_t i = first; i < first + counts[receiver]; ++i) {
        for (std::int64_t j = 0; j < row; ++j) {
          expected.push_back(held[source][static_cast<std::size_t>(i * row + j)]);
        }
      }
      receive_counts.push_back(counts[receiver]);
      rows += counts[receiver];
    }
    require(outcomes[receiver].value, inputs[receiver].dtype(),
            inputs[receiver].shape().with_rows(rows), expected);
    RC_ASSERT(outcomes[receiver].receive_counts == receive_counts);
  }
}

void broadcast_property() {
  const Step step = any_call("broadcast_float");
  const Tensor root = inputs_of(step)[static_cast<std::size_t>(step.roots[0])];
  for (const Outcome& outcome : answer(step)) {
    require(outcome.value, root.dtype(), root.shape(), elements_of(root));
  }
}

// Sums of f32 in rank order, which plain C++ gives; how exact sums are rounded is checked against
// MPFR elsewhere, here it is which elements are added and who gets them.
void sum_property(std::string_view operation) {
  const Step step = any_call(operation);
  std::vector<Tensor> inputs = inputs_of(step);
  RC_PRE(inputs[0].dtype() == DType::f32);
  const auto n = static_cast<std::int64_t>(inputs.size());
  std::vector<float> sums;
  for (std::size_t i = 0; i < static_cast<std::size_t>(inputs[0].elements()); ++i) {
    float sum = inputs[0].values<float>()[i];
    for (std::size_t rank = 1; rank < inputs.size(); ++rank) sum += inputs[rank].values<float>()[i];
    sums.push_back(sum);
  }
  const bool scatter = operation == "reduce_scatter_sum";
  const std::vector<Outcome> outcomes = answer(step, SumRule::rank_order);
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    const Tensor& value = outcomes[rank].value;
    const std::size_t share = scatter ? sums.size() / outcomes.size() : sums.size();
    RC_ASSERT(value.shape() == (scatter ? inputs[0].shape().with_rows(inputs[0].shape()[0] / n)
                                        : inputs[0].shape()));
    for (std::size_t i = 0; i < share; ++i) {
      const float expected = sums[scatter ? rank * share + i : i];
      const float actual = value.values<float>()[i];
      if (expected != expected) {
        RC_ASSERT(actual != actual);  // some NaN
      } else {
        RC_ASSERT(to_bits(actual) == to_bits(expected));
      }
    }
  }
}

// The order of the ranks does not change an exact sum.
void permutation_property() {
  Step step = any_call("all_reduce_sum");
  const std::vector<Outcome> before = answer(step);
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < step.members(); ++i) order.push_back(i);
  const int turns = *rc::gen::inRange(0, 7);
  for (int i = 0; i < turns; ++i)
    std::rotate(step.inputs.begin(), step.inputs.begin() + 1, step.inputs.end());
  std::reverse(step.inputs.begin(), step.inputs.end());
  const std::vector<Outcome> after = answer(step);
  const bool may_be_nan = dispatch(before[0].value.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (is_floating(*dtype_of<T>)) {
      for (const T value : before[0].value.values<T>()) {
        const auto magnitude =
            to_bits(value) & static_cast<typename FormatOf<T>::Bits>(~FormatOf<T>::sign_bit);
        if (magnitude > FormatOf<T>::infinity) return true;
      }
    }
    return false;
  });
  // The payload of a NaN is nobody's promise.
  RC_PRE(!may_be_nan);
  RC_ASSERT(same_bits(before[0].value, after[0].value));
}

// Exact sums of integers that fit are the integers' sum: nothing is lost, doubled or left out.
void composition_property() {
  Step step = any_call("reduce_scatter_sum");
  const std::vector<Outcome> shares = answer(step);
  Step gather = step;
  gather.operations.assign(step.members(), Operation::all_gather_float);
  for (std::size_t i = 0; i < step.members(); ++i) gather.inputs[i]->tensor = shares[i].value;
  const std::vector<Outcome> gathered = answer(gather);
  step.operations.assign(step.members(), Operation::all_reduce_sum);
  const std::vector<Outcome> reduced = answer(step);
  RC_ASSERT(same_bits(gathered[0].value, reduced[0].value));
}

}  // namespace
}  // namespace lockstep::kit

int main() {
  using namespace lockstep::kit;
  bool ok = rc::check("all_gather_float is index arithmetic",
                      [] { gather_property("all_gather_float"); });
  ok &= rc::check("all_gather_int is index arithmetic", [] { gather_property("all_gather_int"); });
  ok &= rc::check("all_to_all_v_float is a triple loop",
                  [] { exchange_property("all_to_all_v_float"); });
  ok &=
      rc::check("all_to_all_v_int is a triple loop", [] { exchange_property("all_to_all_v_int"); });
  ok &= rc::check("broadcast_float gives the root's elements", broadcast_property);
  ok &= rc::check("all_reduce_sum adds element by element", [] { sum_property("all_reduce_sum"); });
  ok &= rc::check("reduce_scatter_sum gives each rank its rows",
                  [] { sum_property("reduce_scatter_sum"); });
  ok &= rc::check("exact sums do not depend on the order of ranks", permutation_property);
  ok &= rc::check("scatter then gather equals all-reduce", composition_property);
  return ok ? 0 : 1;
}
