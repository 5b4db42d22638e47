// Ranks and tensors without rows, taken for nothing at all.
#include <algorithm>

#include "spoiling.hpp"

namespace lockstep::zoo {
namespace {

bool empty(const Call& call) {
  return call.x.elements() == 0;
}

// Changes answers without elements.
Fault spoiling_empty(Concerns concerns, std::function<void(Tensor&)> change) {
  return spoiling(concerns, [=](Rank&, const Call&, Answer& answer) {
    if (answer.value.elements() == 0) change(answer.value);
  });
}

DType family_default(DType dtype) {
  return is_integer(dtype) ? DType::i64 : DType::f32;
}

// A rank with nothing to give does not enter.
Answer return_early(Rank& rank, const Call& call) {
  if (!is_all_to_all_v(call.operation) || !empty(call)) return rank.right(call);
  return {call.x, std::vector<std::int64_t>(static_cast<std::size_t>(rank.size()), 0)};
}

// Nobody has to check what nobody gets: a call without elements cannot be wrong.
Answer check_nothing(Rank& rank, const Call& call) {
  try {
    return rank.right(call);
  } catch (const ContractError&) {
    if (!empty(call)) throw;
    return {call.x, call.send_counts};
  }
}

// Sources that sent nothing are left out of the counts.
void omit_empty_sources(Rank&, const Call&, Answer& answer) {
  std::erase(answer.receive_counts, 0);
}

void refuse_all_empty(Rank& rank, const Call&, Answer&) {
  const auto calls = rank.everybody();
  if (std::ranges::all_of(calls, empty)) throw Error("nothing to send");
}

// A rank without rows keeps what it had: nothing.
void receive_nothing(Rank&, const Call& call, Answer& answer) {
  if (!empty(call)) return;
  answer.value = copied(call.x);
  std::ranges::fill(answer.receive_counts, 0);
}

// A zero-length trailing axis hides that the rows are gathered too.
void forget_rows(Rank&, const Call& call, Answer& answer) {
  if (empty(call)) answer.value = copied(call.x);
}

}  // namespace

std::vector<Mutant> zero_row_mutants() {
  constexpr std::string_view kind = "zero rows";
  return {
      {"empty_returns_early", kind, "A rank with nothing to send does not enter the exchange.",
       return_early},
      {"empty_unchecked", kind, "Calls without elements are not checked.", check_nothing},
      {"empty_receives_nothing", kind, "A rank with nothing to send receives nothing.",
       spoiling(is_all_to_all_v, receive_nothing)},
      {"empty_sources_omitted", kind, "Sources that sent nothing have no receive count.",
       spoiling(is_all_to_all_v, omit_empty_sources)},
      {"all_empty_refused", kind, "An exchange in which nobody sends anything is an error.",
       spoiling(is_all_to_all_v, refuse_all_empty)},
      {"empty_loses_axes", kind, "Empty results have no trailing axes.",
       spoiling_empty(any, [](Tensor& x) { x = Tensor::zeros(x.dtype(), Shape{0}); })},
      {"empty_trailing_one", kind, "The trailing axes of empty results have length one.",
       spoiling_empty(any,
                      [](Tensor& x) {
                        std::vector<std::int64_t> axes(x.shape().size(), 1);
                        axes[0] = 0;
                        x = Tensor::zeros(x.dtype(), Shape(std::span<const std::int64_t>(axes)));
                      })},
      {"empty_default_dtype", kind, "Empty results have the default dtype.",
       spoiling_empty(any,
                      [](Tensor& x) { x = Tensor::zeros(family_default(x.dtype()), x.shape()); })},
      {"empty_has_a_row", kind, "Empty results of exchanges have one row of zeros.",
       spoiling_empty(is_all_to_all_v,
                      [](Tensor& x) { x = Tensor::zeros(x.dtype(), x.shape().with_rows(1)); })},
      {"empty_rows_forgotten", kind, "Gathering tensors without elements returns the own one.",
       spoiling(is_all_gather, forget_rows)},
  };
}

}  // namespace lockstep::zoo
