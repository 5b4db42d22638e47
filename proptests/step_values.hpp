// What the members of a step pass, once references to earlier steps are followed; and the reverse
// of a step, which is another collective.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include <lockstep/kit/case.hpp>
#include <lockstep/operation.hpp>

namespace lockstep::kit {

// The position of a world rank in a step's communicator; nothing where it is no member.
std::optional<std::size_t> member_of(const Step& step, int world_rank);

// The first member without input, which has left the world; nothing when all enter.
std::optional<std::size_t> missing_member(const Step& step);

// Whether any rank of the case gets stuck.
bool has_stall(const Case& c);

// How a world rank leaves: in the first step that it is a member of and does not enter. Nothing
// when there is none.
std::optional<Departure> departure_of(const Case& c, int world_rank);

// The tensors that all members of step `step` pass, where all of them enter, when the steps before
// it went as `earlier` says. Throws NoSuchValue for a reference to a step that gave no value.
std::vector<Tensor> inputs_of(const Case& c, std::size_t step, const Transcript& earlier);

// Does any member's loss reach the step's result? Only then has it a reverse.
bool asks_for_gradient(const Step& step);

// Does the step's result depend on what this member passed? Of a broadcast, only on the root's.
bool depends_on_input(const Step& step, std::size_t member);

// Everybody's gradient of step `index` of a window with respect to its results, which are like those
// of `outcomes`: the member's own upstream, and then what came back from the later steps that took
// the result as their input, the latest one first, each sum of two rounded. A zero one where there
// is nothing. What came back is in `transcript`; where it is not of the right type it counts as
// nothing.
std::vector<Tensor> window_upstream(const Case& c, std::size_t index,
                                    const std::vector<Outcome>& outcomes,
                                    const Transcript& transcript);

// Everybody's upstream gradient for results like those of `outcomes`, a zero one where the member's
// loss does not reach its result; nothing when one is unlike the result that it belongs to.
std::optional<std::vector<Tensor>> full_upstream(const Step& step,
                                                 const std::vector<Outcome>& outcomes);

// The collective on the upstream gradients that gives the gradients with respect to the inputs. (Of
// a broadcast it is the root's gradient; the others' are zeros of their input's shape. An exchange
// goes back with the receive counts as send counts.) Nothing for integer operations.
std::optional<Operation> reverse_of(Operation operation);

}  // namespace lockstep::kit
