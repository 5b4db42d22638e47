#include <algorithm>

#include <lockstep/kit/program_oracle.hpp>
#include <lockstep/oracle.hpp>

#include "step_values.hpp"

namespace lockstep::kit {
namespace {

using Outcomes = std::vector<Outcome>;

Outcome value_outcome(reference::Result result) {
  Outcome outcome;
  outcome.kind = Outcome::Kind::value;
  outcome.value = std::move(result.value);
  outcome.receive_counts = std::move(result.receive_counts);
  return outcome;
}

// Every member that enters gets a transport error. That covers all there is to say about lost
// ranks: a rank that has left stays without input, so that every later call on any communicator
// that it belongs to comes here as well, and a communicator that met with a transport error once
// has such a member for good.
Outcomes transport_errors(const Step& step, std::size_t missing) {
  Outcome error;
  error.kind = Outcome::Kind::transport;
  error.message = "rank " + std::to_string(step.world_rank(missing)) + " has left the world";
  Outcomes outcomes(step.members());
  for (std::size_t member = 0; member < step.members(); ++member) {
    if (step.inputs[member]) outcomes[member] = error;
  }
  return outcomes;
}

// Adds the gradients to the outcomes of a step that went well.
void add_gradients(const Step& step, std::span<const Tensor> inputs, SumRule rule,
                   Outcomes& outcomes) {
  const auto everybody = [&](Violation violation) {
    for (Outcome& outcome : outcomes) outcome.gradient_violation = violation;
  };
  const Operation operation = step.operations[0];
  const std::optional<Operation> reverse = reverse_of(operation);
  if (!reverse) return everybody(Violation::not_differentiable);
  const std::optional<std::vector<Tensor>> upstream = full_upstream(step, outcomes);
  if (!upstream) return everybody(Violation::gradient);

  std::vector<Signature> signatures;
  for (std::size_t member = 0; member < step.members(); ++member) {
    signatures.push_back(
        reference::signature_of(*reverse, (*upstream)[member], 0, outcomes[member].receive_counts));
  }
  std::vector<reference::Result> results(step.members());
  // Never a breach: results of a call that fitted together fit together in its reverse.
  (void)reference::evaluate(signatures, *upstream, rule, results);
  for (std::size_t member = 0; member < step.members(); ++member) {
    const bool takes_no_part = operation == Operation::broadcast_float &&
                               static_cast<std::int64_t>(member) != step.roots[member];
    outcomes[member].gradient = takes_no_part
                                    ? Tensor::zeros(inputs[member].dtype(), inputs[member].shape())
                                    : std::move(results[member].value);
  }
}

}  // namespace

std::vector<Outcome> expected_step(const Case& c, std::size_t index, SumRule rule,
                                   const Transcript& earlier) {
  const Step& step = c.steps[index];
  if (const std::optional<std::size_t> missing = missing_member(step)) {
    return transport_errors(step, *missing);
  }
  const std::vector<Tensor> inputs = inputs_of(c, index, earlier);
  std::vector<Signature> signatures;
  for (std::size_t member = 0; member < step.members(); ++member) {
    signatures.push_back(reference::signature_of(step.operations[member], inputs[member],
                                                 step.roots.empty() ? 0 : step.roots[member],
                                                 step.inputs[member]->send_counts));
  }

  std::vector<reference::Result> results(step.members());
  if (const std::optional<Breach> breach = reference::evaluate(signatures, inputs, rule, results)) {
    Outcome error;
    error.kind = Outcome::Kind::contract;
    error.violation = breach->violation;
    error.message = breach->explanation;
    return Outcomes(step.members(), error);
  }
  Outcomes outcomes;
  for (reference::Result& result : results) outcomes.push_back(value_outcome(std::move(result)));
  if (asks_for_gradient(step)) add_gradients(step, inputs, rule, outcomes);
  return outcomes;
}

Transcript expected_transcript(const Case& c, SumRule rule, const Transcript* actual) {
  Transcript transcript;
  for (std::size_t step = 0; step < c.steps.size(); ++step) {
    transcript.push_back(expected_step(c, step, rule, actual != nullptr ? *actual : transcript));
  }
  return transcript;
}

Case with_expected(Case c) {
  Transcript transcript = expected_transcript(c, c.sum_rule);
  for (std::size_t step = 0; step < c.steps.size(); ++step) {
    c.steps[step].expected = std::move(transcript[step]);
  }
  return c;
}

}  // namespace lockstep::kit
