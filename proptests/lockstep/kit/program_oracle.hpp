// What every rank must get back from a whole case: the oracle of reference/, step after step.
#pragma once

#include <cstddef>
#include <vector>

#include <lockstep/kit/case.hpp>

namespace lockstep::kit {

// A step takes a value from an earlier step that has none for that rank (it was an error there).
// The message holds the JSON pointer of the reference.
class NoSuchValue : public Error {
 public:
  using Error::Error;
};

// The outcome of every member of every step, sums by `rule`. A rank without input has left for
// good: from then on every step on a communicator that it belongs to is a transport error for its
// other members, and so is every later step on a communicator that met with one. `from_step` takes
// values from `actual` where it is given, the transcript of a backend whose sums follow another
// rule, and from this oracle's own results otherwise.
Transcript expected_transcript(const Case& c, SumRule rule, const Transcript* actual = nullptr);

// One step of it: the outcomes of the members of step `step`, when the steps before it went as
// `earlier` says (which may hold more steps; those are not looked at, but for the gradients that came
// back to later steps of a window, without which this one's are left out).
std::vector<Outcome> expected_step(const Case& c, std::size_t step, SumRule rule,
                                   const Transcript& earlier);

// A copy of the case with `expected` filled in by the case's own sum rule.
Case with_expected(Case c);

}  // namespace lockstep::kit
