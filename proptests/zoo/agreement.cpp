// Calls that do not fit together, and peers that are gone.
#include "spoiling.hpp"

namespace lockstep::zoo {
namespace {

Answer own_tensor(const Call& call) {
  return {copied(call.x), call.send_counts};
}

// One rule that is not checked: everybody gets its own tensor back.
Fault accepting(Violation unchecked) {
  return [=](Rank& rank, const Call& call) {
    try {
      return rank.right(call);
    } catch (const ContractError& error) {
      if (error.violation() != unchecked) throw;
      return own_tensor(call);
    }
  };
}

// Does something else with an error that everybody should get.
Fault instead_of_breach(std::function<Answer(Rank&, const Call&, const ContractError&)> answer) {
  return [=](Rank& rank, const Call& call) {
    try {
      return rank.right(call);
    } catch (const ContractError& error) {
      return answer(rank, call, error);
    }
  };
}

Fault instead_of_loss(std::function<Answer(Rank&, const Call&, const TransportError&)> answer) {
  return [=](Rank& rank, const Call& call) {
    try {
      return rank.right(call);
    } catch (const TransportError& error) {
      return answer(rank, call, error);
    }
  };
}

[[noreturn]] void report(const ContractError& error, Violation violation,
                         const std::string& explanation) {
  throw ContractError(violation, error.operation(), "world", explanation);
}

Answer error_on_first_rank(Rank& rank, const Call& call, const ContractError& error) {
  if (rank.rank() == 0) throw ContractError(error);
  return own_tensor(call);
}

Answer own_view(Rank& rank, const Call&, const ContractError& error) {
  report(error, error.violation(), "as rank " + std::to_string(rank.rank()) + " sees it");
}

// Shapes are compared before dtypes.
Answer shape_first(Rank&, const Call&, const ContractError& error) {
  if (error.violation() != Violation::dtype) throw ContractError(error);
  report(error, Violation::shape, "tensors differ");
}

// One word for all that can be wrong with counts.
Answer one_word_for_counts(Rank&, const Call&, const ContractError& error) {
  if (error.violation() != Violation::counts_length) throw ContractError(error);
  report(error, Violation::counts_sum, "wrong counts");
}

Answer unlisted_error(Rank&, const Call&, const ContractError& error) {
  throw InvalidArgument(error.what());
}

Answer as_transport(Rank&, const Call&, const ContractError& error) {
  throw TransportError(error.what(), {});
}

// An error ends the communicator.
Answer unusable_afterwards(Rank& rank, const Call& call) {
  if (rank.here().breached) throw TransportError("the communicator was aborted", {});
  return rank.right(call);
}

Answer loss_as_breach(Rank&, const Call& call, const TransportError& error) {
  throw ContractError({Violation::operation, call.operation, error.what()}, "world", 0);
}

Answer go_on_alone(Rank&, const Call& call, const TransportError&) {
  return own_tensor(call);
}

// The first call tells of the loss; later ones find nobody else registered.
Answer loss_told_once(Rank& rank, const Call& call, const TransportError& error) {
  if (!rank.here().lost) throw TransportError(error);
  return own_tensor(call);
}

}  // namespace

std::vector<Mutant> agreement_mutants() {
  constexpr std::string_view kind = "agreement";
  return {
      {"operations_unchecked", kind, "Different operations meet.", accepting(Violation::operation)},
      {"dtypes_unchecked", kind, "Different dtypes meet.", accepting(Violation::dtype)},
      {"shapes_unchecked", kind, "Different shapes meet.", accepting(Violation::shape)},
      {"rows_unchecked", kind, "Rows that do not divide are reduced and scattered.",
       accepting(Violation::indivisible_rows)},
      {"roots_unchecked", kind, "Different roots meet.", accepting(Violation::roots_differ)},
      {"counts_unchecked", kind, "Counts that do not add up to the rows are accepted.",
       accepting(Violation::counts_sum)},
      {"zero_axis_unchecked", kind, "Rows without elements are exchanged.",
       accepting(Violation::zero_trailing_axis)},
      {"overflow_unchecked", kind, "Results beyond 2^63-1 are accepted.",
       accepting(Violation::size_overflow)},
      {"error_on_one_rank", kind, "Only rank 0 hears of a broken contract.",
       instead_of_breach(error_on_first_rank)},
      {"errors_differ", kind, "Each rank words the broken contract as it sees it.",
       instead_of_breach(own_view)},
      {"shape_before_dtype", kind, "Ranks that pass different dtypes are told of their shapes.",
       instead_of_breach(shape_first)},
      {"counts_in_one_word", kind, "Too few counts are reported as counts that do not add up.",
       instead_of_breach(one_word_for_counts)},
      {"error_unlisted", kind, "A broken contract is an error of another type.",
       instead_of_breach(unlisted_error)},
      {"error_as_loss", kind, "A broken contract is a transport error.",
       instead_of_breach(as_transport)},
      {"unusable_after_error", kind, "The communicator is finished after a broken contract.",
       unusable_afterwards},
      {"loss_as_breach", kind, "A missing rank is a broken contract.",
       instead_of_loss(loss_as_breach)},
      {"loss_ignored", kind, "Where a rank is missing, the others get their own tensors.",
       instead_of_loss(go_on_alone)},
      {"loss_told_once", kind, "Only the first call tells of a missing rank.",
       instead_of_loss(loss_told_once)},
  };
}

}  // namespace lockstep::zoo
