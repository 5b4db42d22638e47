// A case: a world, steps, what every rank passes, and optionally what every rank must get back.
// The case file (case_file.hpp) is this, written down.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/error.hpp>
#include <lockstep/kit/memory_layout.hpp>
#include <lockstep/operation.hpp>
#include <lockstep/sum_rule.hpp>
#include <lockstep/tensor.hpp>

namespace lockstep::kit {

// How a rank leaves the world, instead of entering the first step in which it has no input.
enum class Departure : std::uint8_t {
  returns,  // its part of the program is over
  throws,   // an exception ends it
  stalls,   // it is stuck in its own code, and leaves only when no peer waits any more
};

// "throws".
std::string_view name(Departure departure);

// What one rank passes to one step: a tensor of its own, or what the same world rank got back from
// an earlier step.
struct Input {
  std::optional<int> from_step;  // counted from 0; `tensor` is then unused
  Tensor tensor;
  std::vector<std::int64_t> send_counts;  // the exchanges only
  // How `tensor` lies in the rank's memory, which changes nothing that must come back.
  MemoryLayout layout = MemoryLayout::dense;
};

// What became of one rank in one step.
struct Outcome {
  enum class Kind : std::uint8_t {
    absent,     // the rank did not enter the step, it has left the world
    value,      // the call returned
    contract,   // it threw ContractError
    transport,  // it threw TransportError
    broken,     // it threw anything else, or its result could not be read
  };
  Kind kind = Kind::absent;

  Tensor value;                              // kind value
  std::vector<std::int64_t> receive_counts;  // kind value, of an exchange
  Violation violation{};                     // kind contract
  std::string message;                       // the error's text, as that rank saw it
  std::vector<int> lost_ranks;               // kind transport: whom it names, ranks of the
                                             // communicator

  // The gradient with respect to the rank's input, where the step asked for one and somebody's loss
  // reached it: a tensor, or the violation that asking for it gave.
  std::optional<Tensor> gradient;
  std::optional<Violation> gradient_violation;

  // The rank's own input was other than before the call, which no rule permits.
  bool input_changed = false;
  // A later call changed what this one had returned, which no rule permits either.
  bool result_changed = false;

  // Of a step that is repeated: which of its calls, counted from 0, this is the outcome of.
  std::int64_t repetition = 0;
};

// One collective. Every per-rank list has one entry per member: per entry of `group`, or per rank of
// the world when `group` is empty.
struct Step {
  std::vector<int> group;                  // world ranks of the sub-communicator, in its order
  std::vector<Operation> operations;       // per member
  std::vector<std::int64_t> roots;         // per member where any member broadcasts, else empty
  std::vector<std::optional<Input>> inputs;  // per member; nothing for a rank that has left
  // Per member how it leaves, which counts in the step where it leaves; empty when all return.
  std::vector<Departure> departures;
  // Per member the upstream gradient of its result, of a floating dtype; nothing where its loss does
  // not reach it, and for a rank that has left. Empty when the step asks for no gradient.
  std::vector<std::optional<Tensor>> upstream;
  // How often the call is made, one right after the other with the same arguments. Its outcome is
  // that of the first call that went otherwise than the one before it; where all went alike, of the
  // first. (A gradient is asked for once, after the last.)
  std::int64_t repeat = 1;
  std::vector<Outcome> expected;  // per member, or empty when the case does not say
  // Per member what a backend gave when the case was recorded, in every step of such a case and in
  // none of any other. Of kind `absent` also where nothing was reported.
  std::vector<Outcome> received;

  // The world rank of a member.
  int world_rank(std::size_t member) const {
    return group.empty() ? static_cast<int>(member) : group[member];
  }
  std::size_t members() const { return inputs.size(); }
};

// The backend whose outcomes a case holds.
struct RecordedBackend {
  std::string name;
  SumRule sum_rule = SumRule::exact;  // that it promises, and is judged by
};

struct Case {
  int world = 1;
  // The rule by which sums are expected.
  SumRule sum_rule = SumRule::exact;
  // The steps are one forward window: gradients are those of all ranks' losses together, through
  // every step that took its input from an earlier one, and are asked for once, after all steps.
  // Nobody leaves the world.
  bool window = false;
  std::vector<Step> steps;
  std::optional<RecordedBackend> recorded = {};
};

// What became of every member of every step: [step][member].
using Transcript = std::vector<std::vector<Outcome>>;

}  // namespace lockstep::kit
