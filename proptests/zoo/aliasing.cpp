// Memory that belongs to somebody else: the caller's tensor, or an earlier result.
#include "spoiling.hpp"

namespace lockstep::zoo {
namespace {

// Writes the answer, or a part of it, over the caller's tensor.
Fault in_place(Concerns concerns) {
  return spoiling(concerns,
                  [](Rank&, const Call& call, Answer& answer) { overwrite(call.x, answer.value); });
}

// Broadcasts into the tensors of those that only receive.
void receive_in_place(Rank& rank, const Call& call, Answer& answer) {
  if (rank.rank() != call.root) overwrite(call.x, answer.value);
}

// The rank's own share of its tensor serves as the accumulator.
void accumulate_in_place(Rank& rank, const Call& call, Answer& answer) {
  const std::int64_t rows = answer.value.rows();
  if (answer.value.elements() == 0) return;
  overwrite(call.x.slice_rows(rows * rank.rank(), rows * (rank.rank() + 1)), answer.value);
}

// What was sent is marked as such.
void clear_sent(Rank&, const Call& call, Answer&) {
  overwrite(call.x, zeros_like(call.x));
}

// One buffer for all results: the latest one is written over the one before.
void reuse_output(Rank& rank, const Call&, Answer& answer) {
  if (rank.here().answer) overwrite(rank.here().answer->value, answer.value);
}

// A result lives until the next call on any communicator.
void release_output(Rank& rank, const Call&, Answer&) {
  if (!rank.everywhere().answer) return;
  const Tensor& earlier = rank.everywhere().answer->value;
  overwrite(earlier, zeros_like(earlier));
}

// Data has moved by the time that the error is found.
Answer spoil_on_error(Rank& rank, const Call& call) {
  try {
    return rank.right(call);
  } catch (const ContractError&) {
    overwrite(call.x, zeros_like(call.x));
    throw;
  }
}

}  // namespace

std::vector<Mutant> aliasing_mutants() {
  constexpr std::string_view kind = "aliasing";
  return {
      {"all_reduce_in_place", kind, "The sum is written over the caller's tensor.",
       in_place(only<Operation::all_reduce_sum>)},
      {"scatter_in_place", kind, "The rank's share is added up in the caller's tensor.",
       spoiling(only<Operation::reduce_scatter_sum>, accumulate_in_place)},
      {"broadcast_in_place", kind, "The root's elements are written over the caller's tensor.",
       spoiling(only<Operation::broadcast_float>, receive_in_place)},
      {"gather_in_place", kind, "Gathered rows are written over the caller's tensor.",
       in_place(is_all_gather)},
      {"sent_rows_cleared", kind, "Rows are cleared in the caller's tensor once they are sent.",
       spoiling(is_all_to_all_v, clear_sent)},
      {"output_reused", kind, "The next result is written over this one.",
       spoiling(any, reuse_output)},
      {"output_released", kind, "The next call on any communicator clears this result.",
       spoiling(any, release_output)},
      {"error_moves_data", kind, "A call that breaks the contract clears the caller's tensor.",
       spoil_on_error},
  };
}

}  // namespace lockstep::zoo
