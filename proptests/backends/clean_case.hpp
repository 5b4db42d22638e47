// When a communicator that has been through a case is as good as a new one. Making one takes longer
// than most cases.
#pragma once

#include <algorithm>
#include <optional>

#include <lockstep/kit/backend.hpp>

namespace lockstep::kit {

// A case after which nobody can tell its communicator from a new one.
inline bool leaves_no_trace(const Case& c) {
  for (const Step& step : c.steps) {
    if (!step.group.empty()) return false;
    for (const std::optional<Input>& input : step.inputs) {
      if (!input) return false;
    }
  }
  return true;
}

// Whether its communicator is of no more use.
inline bool is_failure(const Outcome& outcome) {
  return outcome.kind == Outcome::Kind::transport || outcome.kind == Outcome::Kind::broken;
}
inline bool has_failed(const RankTranscript& transcript) {
  return std::ranges::any_of(transcript, [](const std::optional<Outcome>& outcome) {
    return outcome && is_failure(*outcome);
  });
}

}  // namespace lockstep::kit
