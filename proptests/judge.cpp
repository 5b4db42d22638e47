#include <algorithm>

#include <lockstep/kit/judge.hpp>
#include <lockstep/kit/program_oracle.hpp>

#include "explanation.hpp"
#include "json_document.hpp"
#include "step_values.hpp"
#include "sum_judge.hpp"

namespace lockstep::kit {
namespace {

// --- One step

// The addends of a tensor of sums: element i is the sum over all members of their element first +
// i.
struct Addends {
  const std::vector<Tensor>* tensors;
  std::int64_t first;
};

class StepJudge {
 public:
  StepJudge(const Case& c, std::size_t index, const Transcript& actual, SumRule rule)
      : step_(c.steps[index]),
        index_(index),
        window_(c.window),
        rule_(rule),
        // The rule `unspecified` has no answer of its own; the exact one serves for everything but
        // the elements of sums, and is one of those that it allows.
        expected_(
            expected_step(c, index, rule == SumRule::unspecified ? SumRule::exact : rule, actual)),
        actual_(actual[index]),
        case_(c),
        transcript_(actual) {
    if (rule != SumRule::unspecified || expected_[0].kind != Outcome::Kind::value) return;
    inputs_ = inputs_of(c, index, actual);
    if (!expected_[0].gradient) return;
    upstream_ =
        window_ ? window_upstream(c, index, expected_, actual) : full_upstream(step_, expected_);
  }

  std::optional<Divergence> judge() const {
    if (auto divergence = judge_calls()) return divergence;
    return judge_gradients();
  }

  // What the calls gave.
  std::optional<Divergence> judge_calls() const {
    // What broke by itself comes first: the others' errors follow from it.
    for (std::size_t member = 0; member < step_.members(); ++member) {
      if (actual_[member].kind == Outcome::Kind::broken) return judge_kind(member);
    }
    for (std::size_t member = 0; member < step_.members(); ++member) {
      if (auto divergence = judge_member(member)) return divergence;
    }
    return judge_agreement("agreement", "", [](const Outcome& outcome) { return &outcome.value; });
  }

  // The gradients, where the calls gave what they should.
  std::optional<Divergence> judge_gradients() const {
    if (expected_[0].kind != Outcome::Kind::value) return std::nullopt;
    for (std::size_t member = 0; member < step_.members(); ++member) {
      if (auto divergence = judge_gradient(member)) return divergence;
    }
    if (!expected_[0].gradient) return std::nullopt;
    return judge_agreement(
        "gradient", "the gradient: ", [](const Outcome& outcome) { return &*outcome.gradient; });
  }

 private:
  Divergence diverges(std::size_t member, std::string aspect, const std::string& what) const {
    std::string where = member_place(step_, index_, member);
    const std::int64_t repetition = actual_[member].repetition;
    if (repetition > 0) {
      where += ", call " + std::to_string(repetition + 1) + " of " + std::to_string(step_.repeat);
    }
    return {static_cast<int>(index_), static_cast<int>(member),       step_.world_rank(member),
            std::move(aspect),        where + ": " + printable(what), repetition};
  }

  std::optional<Divergence> judge_kind(std::size_t member) const {
    const Outcome& expected = expected_[member];
    const Outcome& actual = actual_[member];
    if (expected.kind == actual.kind) return std::nullopt;
    if (actual.kind == Outcome::Kind::absent) {
      return diverges(member, "missing",
                      "no outcome was reported, where there should be " + kind_text(expected));
    }
    return diverges(member, "outcome",
                    "a wrong outcome" + two_lines(with_message(expected), with_message(actual)));
  }

  static std::string with_message(const Outcome& outcome) {
    return kind_text(outcome) + (outcome.message.empty() ? "" : ": " + outcome.message);
  }

  std::optional<Divergence> judge_member(std::size_t member) const {
    if (auto divergence = judge_kind(member)) return divergence;
    const Outcome& expected = expected_[member];
    const Outcome& actual = actual_[member];
    if (expected.kind == Outcome::Kind::contract && expected.violation != actual.violation) {
      return diverges(
          member, "violation",
          "another violation" + two_lines(with_message(expected), with_message(actual)));
    }
    if (expected.kind == Outcome::Kind::contract) {
      if (auto divergence = judge_message(member)) return divergence;
    }
    if (expected.kind == Outcome::Kind::transport) {
      if (auto divergence = judge_loss(member)) return divergence;
    }
    if (expected.kind == Outcome::Kind::value) {
      if (auto divergence = judge_value(member)) return divergence;
    }
    if (actual.input_changed) {
      return diverges(member, "input", "the call changed the tensor that the caller passed");
    }
    if (actual.result_changed) {
      return diverges(member, "result", "a later call changed the tensor that this one returned");
    }
    return std::nullopt;
  }

  // An error for a missing rank names one, and remains the same. It is the same for all where only
  // one is missing (several leave in no order, so that ranks may have seen others of them) and all
  // call the same (the error may name the call).
  std::optional<Divergence> judge_loss(std::size_t member) const {
    const Outcome& actual = actual_[member];
    const auto is_missing = [this](int lost) {
      return lost >= 0 && static_cast<std::size_t>(lost) < step_.members() &&
             !step_.inputs[static_cast<std::size_t>(lost)];
    };
    if (std::ranges::none_of(actual.lost_ranks, is_missing)) {
      return diverges(member, "lost", "the error names no rank that is missing: " + actual.message);
    }
    for (std::size_t earlier = 0; earlier < index_; ++earlier) {
      if (case_.steps[earlier].group != step_.group) continue;
      const Outcome& before = transcript_[earlier][member];
      if (before.kind != Outcome::Kind::transport) continue;
      if (before.message == actual.message) return std::nullopt;
      return diverges(member, "message",
                      "the error reads otherwise than in step " + std::to_string(earlier) +
                          "\n  there " + before.message + "\n  here  " + actual.message);
    }
    const auto missing =
        std::ranges::count_if(step_.inputs, [](const auto& input) { return !input; });
    const bool alike = std::ranges::count(step_.operations, step_.operations[0]) ==
                       static_cast<std::ptrdiff_t>(step_.members());
    return missing == 1 && alike ? judge_message(member) : std::nullopt;
  }

  // Against the first member that got the error: it is one error for all.
  std::optional<Divergence> judge_message(std::size_t member) const {
    const bool loss = expected_[member].kind == Outcome::Kind::transport;
    const auto first = std::ranges::find_if(actual_, [loss](const Outcome& outcome) {
      if (loss) return outcome.kind == Outcome::Kind::transport;
      return outcome.kind == Outcome::Kind::contract || outcome.gradient_violation;
    });
    if (first->message == actual_[member].message) return std::nullopt;
    return diverges(member, "message",
                    "the error reads otherwise than on rank " +
                        std::to_string(first - actual_.begin()) + "\n  there " + first->message +
                        "\n  here  " + actual_[member].message);
  }

  std::optional<Divergence> judge_value(std::size_t member) const {
    const Outcome& expected = expected_[member];
    const Outcome& actual = actual_[member];
    if (expected.value.dtype() != actual.value.dtype()) {
      return diverges(member, "dtype",
                      "a result of another dtype" +
                          two_lines(type_text(expected.value), type_text(actual.value)));
    }
    if (expected.value.shape() != actual.value.shape()) {
      return diverges(member, "shape",
                      "a result of another shape" +
                          two_lines(type_text(expected.value), type_text(actual.value)));
    }
    if (is_all_to_all_v(step_.operations[member]) &&
        expected.receive_counts != actual.receive_counts) {
      return diverges(member, "receive_counts",
                      "other receive counts" + two_lines(counts_text(expected.receive_counts),
                                                         counts_text(actual.receive_counts)));
    }
    const bool sum = is_sum(step_.operations[member]);
    const auto what = compare(expected.value, actual.value, sum,
                              addends(step_.operations[member], inputs_, member, expected.value));
    if (what) return diverges(member, sum ? "sum" : "bits", *what);
    return std::nullopt;
  }

  std::optional<Divergence> judge_gradient(std::size_t member) const {
    const Outcome& expected = expected_[member];
    const Outcome& actual = actual_[member];
    const auto differs = [&](const std::string& what) {
      return diverges(member, "gradient", "the gradient: " + what);
    };
    if (expected.gradient.has_value() != actual.gradient.has_value() ||
        expected.gradient_violation != actual.gradient_violation) {
      return differs("a wrong outcome" + two_lines(gradient_text(expected), gradient_text(actual)));
    }
    if (expected.gradient_violation) return judge_message(member);
    if (!expected.gradient) return std::nullopt;
    const Tensor& right = *expected.gradient;
    const Tensor& given = *actual.gradient;
    if (right.dtype() != given.dtype() || right.shape() != given.shape()) {
      return differs("another dtype or shape" + two_lines(type_text(right), type_text(given)));
    }
    const Operation reverse = *reverse_of(step_.operations[member]);
    const bool sum = is_sum(reverse) && depends_on_input(step_, member);
    const auto what = compare(
        right, given, sum,
        addends(reverse, upstream_.value_or(std::vector<Tensor>()), member, right), window_);
    if (what) return differs(*what);
    return std::nullopt;
  }

  static std::string gradient_text(const Outcome& outcome) {
    if (outcome.gradient) return "a gradient " + type_text(*outcome.gradient);
    const std::string message = outcome.message.empty() ? "" : ": " + outcome.message;
    if (!outcome.gradient_violation) return "no gradient" + message;
    return "a contract error (" + std::string(name(*outcome.gradient_violation)) + ")" + message;
  }

  static Addends addends(Operation operation, const std::vector<Tensor>& tensors,
                         std::size_t member, const Tensor& result) {
    const bool scattered = operation == Operation::reduce_scatter_sum;
    return {&tensors, scattered ? static_cast<std::int64_t>(member) * result.elements() : 0};
  }

  // The first element that is not as it should be, in words. `expected` and `actual` have the same
  // dtype and shape. In a window, gradients may be moved after they were added up, so that NaNs are
  // all alike (`any_nan`).
  std::optional<std::string> compare(const Tensor& expected, const Tensor& actual, bool sum,
                                     const Addends& addends, bool any_nan = false) const {
    if (same_bits(expected, actual)) return std::nullopt;
    // A communicator of one adds nothing up, it moves its tensor.
    const bool lenient = sum && step_.members() > 1;
    std::optional<std::string> first;
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < expected.elements(); ++i) {
      if (same_element(expected, actual, i)) continue;
      if (any_nan && is_nan(expected.dtype(), element_at(expected, i)) &&
          is_nan(actual.dtype(), element_at(actual, i))) {
        continue;
      }
      std::optional<std::string> reason = "";
      if (lenient) reason = refute(expected, actual, i, addends);
      if (!reason) continue;
      ++wrong;
      if (first) continue;
      first = element_place(expected.shape(), i) + " of " + type_text(expected) +
              two_lines(element_and_bits(expected, i), element_and_bits(actual, i));
      if (const auto units = units_apart(expected, actual, i); units && sum) {
        *first += ", " + std::to_string(*units) + (*units == 1 ? " unit" : " units") +
                  " in the last place away";
      }
      if (!reason->empty()) *first += "\n  " + *reason;
    }
    if (wrong > 1) *first += "\n  " + std::to_string(wrong) + " elements are wrong";
    return first;
  }

  // Why an element of a sum that is not the expected one is wrong; nothing when it is right too.
  std::optional<std::string> refute(const Tensor& expected, const Tensor& actual, std::int64_t i,
                                    const Addends& addends) const {
    const DType dtype = expected.dtype();
    if (rule_ != SumRule::unspecified) {
      const bool nans =
          is_nan(dtype, element_at(expected, i)) && is_nan(dtype, element_at(actual, i));
      return nans ? std::nullopt : std::optional<std::string>("");
    }
    std::vector<const std::byte*> elements;
    for (const Tensor& tensor : *addends.tensors) {
      elements.push_back(element_at(tensor, addends.first + i));
    }
    return refute_sum(dtype, elements, element_at(actual, i));
  }

  // All ranks of an all-reduce hold the same bits, also where a rule leaves them open. So do the
  // gradients that are all-reduces.
  template <class TensorOf>
  std::optional<Divergence> judge_agreement(const std::string& aspect, const std::string& of_what,
                                            TensorOf tensor_of) const {
    if (expected_[0].kind != Outcome::Kind::value) return std::nullopt;
    if (step_.operations[0] != Operation::all_reduce_sum) return std::nullopt;
    for (std::size_t member = 1; member < step_.members(); ++member) {
      if (auto divergence = disagreement(member, aspect, of_what, *tensor_of(actual_[0]),
                                         *tensor_of(actual_[member]))) {
        return divergence;
      }
    }
    return std::nullopt;
  }

  std::optional<Divergence> disagreement(std::size_t member, const std::string& aspect,
                                         const std::string& of_what, const Tensor& first,
                                         const Tensor& other) const {
    if (same_bits(first, other)) return std::nullopt;
    std::int64_t i = 0;
    while (same_element(first, other, i)) ++i;
    return diverges(member, aspect,
                    of_what + element_place(first.shape(), i) + " of " + type_text(first) +
                        " is not the same on every rank\n  on rank 0 " +
                        element_and_bits(first, i) + "\n  here      " + element_and_bits(other, i));
  }

  const Step& step_;
  const std::size_t index_;
  const bool window_;
  const SumRule rule_;
  const std::vector<Outcome> expected_;
  const std::vector<Outcome>& actual_;
  const Case& case_;
  const Transcript& transcript_;
  // What was added up, only under the rule `unspecified`.
  std::vector<Tensor> inputs_;
  std::optional<std::vector<Tensor>> upstream_;
};

}  // namespace

std::optional<Divergence> judge(const Case& c, const Transcript& actual, SumRule rule) {
  for (std::size_t step = 0; step < c.steps.size(); ++step) {
    if (step >= actual.size() || actual[step].size() != c.steps[step].members()) {
      return Divergence{static_cast<int>(step), 0, c.steps[step].world_rank(0), "missing",
                        "step " + std::to_string(step) + ": no outcomes were reported"};
    }
    const StepJudge one(c, step, actual, rule);
    if (auto divergence = c.window ? one.judge_calls() : one.judge()) return divergence;
  }
  // What came back to a step depends on what came back to later ones, so the last is looked at
  // first.
  for (std::size_t step = c.window ? c.steps.size() : 0; step-- > 0;) {
    if (auto divergence = StepJudge(c, step, actual, rule).judge_gradients()) return divergence;
  }
  return std::nullopt;
}

std::optional<Divergence> judge_received(const Case& c) {
  if (!c.recorded) throw InvalidArgument("the case holds nothing that was received");
  Transcript received;
  for (const Step& step : c.steps) received.push_back(step.received);
  return judge(c, received, c.recorded->sum_rule);
}

std::optional<Divergence> judge_expected(const Case& c) {
  Transcript transcript = expected_transcript(c, c.sum_rule);
  for (std::size_t step = 0; step < c.steps.size(); ++step) {
    std::vector<Outcome> stated = c.steps[step].expected;
    if (stated.empty()) continue;
    // The oracle's own answers feed the steps that follow, wherever the case agrees with them.
    std::swap(transcript[step], stated);
    // No file says how an error is worded.
    for (std::size_t m = 0; m < stated.size() && m < transcript[step].size(); ++m) {
      if (transcript[step][m].kind == stated[m].kind) {
        transcript[step][m].message = stated[m].message;
      }
    }
    if (auto divergence = StepJudge(c, step, transcript, c.sum_rule).judge()) return divergence;
    std::swap(transcript[step], stated);
  }
  return std::nullopt;
}

}  // namespace lockstep::kit
