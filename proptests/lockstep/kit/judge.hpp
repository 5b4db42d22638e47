// The judge: does what a backend did hold against the oracle?
#pragma once

#include <optional>
#include <string>

#include <lockstep/kit/case.hpp>

namespace lockstep::kit {

// The first difference between what a rank had to get and what it got.
struct Divergence {
  int step = 0;
  int member = 0;  // the rank within the step's communicator
  int world_rank = 0;
  // What differs, a closed list of words for machines: outcome, violation, message, lost (a
  // transport error names nobody who is missing), dtype, shape,
  // receive_counts, bits, sum, agreement (ranks of an all-reduce hold different bits), gradient,
  // input (the caller's tensor was changed), result (a later call changed an earlier result),
  // missing (no outcome was reported), relation (calls that are related do not agree,
  // relations.hpp).
  std::string aspect;
  // A few lines for a person: rank, row, element, expected and received bits and values, and for
  // sums the distance in units in the last place.
  std::string explanation;
  // Of a step that is repeated: which of its calls, counted from 0.
  std::int64_t repetition = 0;
};

// Compares every rank of every step. Values are compared bit for bit, except sums of a backend
// whose rule is `unspecified`, which must be results that some order of summation could give, and
// the payload of a NaN that comes out of a sum (docs/sums.md). Violations are compared by kind, and
// the texts of errors with each other: the error must be the same on every rank. (A transport error
// must name a missing peer; where several left, or ranks called different operations, its text may
// differ from rank to rank.)
// `from_step` stands for what the backend
// itself returned. Throws NoSuchValue for a case that feeds on an error which the contract demands.
std::optional<Divergence> judge(const Case& c, const Transcript& actual, SumRule rule);

// What the case holds of a recorded backend, judged by that backend's rule. Throws InvalidArgument
// for a case that was not recorded.
std::optional<Divergence> judge_received(const Case& c);

// The first outcome that the case itself expects (`expected`) and the oracle does not give, by the
// case's own sum rule. Steps without `expected` are passed over.
std::optional<Divergence> judge_expected(const Case& c);

}  // namespace lockstep::kit
