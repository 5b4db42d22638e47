#include <algorithm>

#include <lockstep/kit/program_oracle.hpp>
#include <lockstep/oracle.hpp>

#include "result_types.hpp"
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

// The member whose absence a step's communicator met with first, in this step or in one before: the
// error stays the same from then on.
std::optional<std::size_t> lost_member(const Case& c, std::size_t index) {
  for (std::size_t s = 0; s <= index; ++s) {
    if (c.steps[s].group != c.steps[index].group) continue;
    if (const std::optional<std::size_t> missing = missing_member(c.steps[s])) return missing;
  }
  return std::nullopt;
}

// Every member that enters gets a transport error. That covers all there is to say about lost
// ranks: a rank that has left stays without input, so that every later call on any communicator
// that it belongs to comes here as well, and a communicator that met with a transport error once
// has such a member for good.
Outcomes transport_errors(const Step& step, std::size_t missing) {
  Outcome error;
  error.kind = Outcome::Kind::transport;
  error.message = "rank " + std::to_string(step.world_rank(missing)) + " has left the world";
  error.lost_ranks = {static_cast<int>(missing)};
  Outcomes outcomes(step.members());
  for (std::size_t member = 0; member < step.members(); ++member) {
    if (step.inputs[member]) outcomes[member] = error;
  }
  return outcomes;
}

// Adds the gradients to the outcomes of a step that went well. `earlier` is the transcript of all
// steps where the step is one of a window.
void add_gradients(const Case& c, std::size_t index, std::span<const Tensor> inputs, SumRule rule,
                   const Transcript& earlier, Outcomes& outcomes) {
  const auto everybody = [&](Violation violation) {
    for (Outcome& outcome : outcomes) outcome.gradient_violation = violation;
  };
  const Step& step = c.steps[index];
  const Operation operation = step.operations[0];
  const std::optional<Operation> reverse = reverse_of(operation);
  if (!reverse) {
    if (asks_for_gradient(step)) everybody(Violation::not_differentiable);
    return;
  }
  std::optional<std::vector<Tensor>> upstream;
  if (c.window) {
    // What comes back depends on what came back to later steps.
    if (earlier.size() < c.steps.size() || !reached_steps(c)[index]) return;
    if (all_upstreams_fit(c)) upstream = window_upstream(c, index, outcomes, earlier);
  } else {
    if (!asks_for_gradient(step)) return;
    upstream = full_upstream(step, outcomes);
  }
  if (!upstream) return everybody(Violation::gradient);

  std::vector<reference::Call> calls;
  for (std::size_t member = 0; member < step.members(); ++member) {
    calls.push_back({*reverse, &(*upstream)[member], 0, outcomes[member].receive_counts});
  }
  std::vector<reference::Result> results(step.members());
  // Never a breach: results of a call that fitted together fit together in its reverse.
  (void)reference::evaluate(calls, rule, results);
  for (std::size_t member = 0; member < step.members(); ++member) {
    outcomes[member].gradient = depends_on_input(step, member)
                                    ? std::move(results[member].value)
                                    : Tensor::zeros(inputs[member].dtype(), inputs[member].shape());
  }
}

}  // namespace

std::vector<Outcome> expected_step(const Case& c, std::size_t index, SumRule rule,
                                   const Transcript& earlier) {
  const Step& step = c.steps[index];
  if (const std::optional<std::size_t> missing = lost_member(c, index)) {
    return transport_errors(step, *missing);
  }
  const std::vector<Tensor> inputs = inputs_of(c, index, earlier);
  std::vector<reference::Call> calls;
  for (std::size_t member = 0; member < step.members(); ++member) {
    calls.push_back({step.operations[member], &inputs[member],
                     step.roots.empty() ? 0 : step.roots[member],
                     step.inputs[member]->send_counts});
  }

  std::vector<reference::Result> results(step.members());
  if (const std::optional<Breach> breach = reference::evaluate(calls, rule, results)) {
    Outcome error;
    error.kind = Outcome::Kind::contract;
    error.violation = breach->violation;
    error.message = breach->explanation;
    return Outcomes(step.members(), error);
  }
  Outcomes outcomes;
  for (reference::Result& result : results) outcomes.push_back(value_outcome(std::move(result)));
  add_gradients(c, index, inputs, rule, earlier, outcomes);
  return outcomes;
}

Transcript expected_transcript(const Case& c, SumRule rule, const Transcript* actual) {
  Transcript transcript;
  for (std::size_t step = 0; step < c.steps.size(); ++step) {
    transcript.push_back(expected_step(c, step, rule, actual != nullptr ? *actual : transcript));
  }
  if (c.window && actual == nullptr) {
    // Once more from the last step back, now that all results are there.
    for (std::size_t step = c.steps.size(); step-- > 0;) {
      transcript[step] = expected_step(c, step, rule, transcript);
    }
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
