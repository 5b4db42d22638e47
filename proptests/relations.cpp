#include <algorithm>
#include <numeric>
#include <string>

#include <lockstep/kit/program_oracle.hpp>
#include <lockstep/kit/relations.hpp>

#include "explanation.hpp"
#include "related_calls.hpp"
#include "result_types.hpp"
#include "step_values.hpp"
#include "sum_judge.hpp"

namespace lockstep::kit {
namespace {

struct RelationText {
  std::string_view name;
  std::string_view statement;
};

constexpr RelationText texts[relation_count] = {
    {"scatter_then_gather", "a scatter that is gathered again is the all-reduce"},
    {"exchange_and_back", "an exchange that is sent back gives everybody its own tensor"},
    {"split_rows", "rows that go in two calls come as in one"},
    {"relabelled_ranks", "the same ranks in another order get the same, in that order"},
    {"gathered_root", "a broadcast gives the root's part of the gather"},
    {"gather_by_exchange", "an exchange of everything with everybody is the gather"},
};

Divergence divergence(const Case& c, std::size_t step, std::size_t member, std::string aspect,
                      const std::string& what) {
  const Step& call = c.steps[step];
  return {static_cast<int>(step), static_cast<int>(member), call.world_rank(member),
          std::move(aspect), member_place(call, step, member) + ": " + what};
}

// What a call that fits the contract must give in any case, whatever the elements.
std::optional<Divergence> judge_kind(const Case& c, std::size_t step, const Transcript& actual,
                                     const std::vector<TensorType>& types) {
  const auto differs = [&](std::size_t member, std::string aspect, const std::string& what) {
    return divergence(c, step, member, std::move(aspect), what);
  };
  for (std::size_t member = 0; member < types.size(); ++member) {
    const Outcome& outcome = actual[step][member];
    const TensorType& type = types[member];
    if (outcome.kind != Outcome::Kind::value) {
      return differs(member, "outcome",
                     "the calls fit together, but gave " + kind_text(outcome) +
                         (outcome.message.empty() ? "" : ": " + outcome.message));
    }
    if (TensorType{outcome.value.dtype(), outcome.value.shape()} != type) {
      const bool shape = outcome.value.dtype() == type.dtype;
      return differs(member, shape ? "shape" : "dtype",
                     "a result of another " + std::string(shape ? "shape" : "dtype") +
                         two_lines(std::string(name(type.dtype)) + " " + to_string(type.shape),
                                   type_text(outcome.value)));
    }
    if (!is_all_to_all_v(c.steps[step].operations[0])) continue;
    const std::vector<std::int64_t>& counts = outcome.receive_counts;
    const bool sound =
        counts.size() == types.size() &&
        std::ranges::all_of(counts,
                            [&](auto rows) { return rows >= 0 && rows <= type.shape[0]; }) &&
        std::accumulate(counts.begin(), counts.end(), std::int64_t{0}) == type.shape[0];
    if (!sound) {
      return differs(member, "receive_counts",
                     "receive counts " + counts_text(counts) + " for " + type_text(outcome.value));
    }
  }
  return std::nullopt;
}

// Throws NoSuchValue where a step takes the value of one that gives none.
void require_values(const Case& c, ResultTypes& types, std::size_t step) {
  if (missing_member(c.steps[step])) return;
  for (const std::optional<Input>& input : c.steps[step].inputs) {
    if (!input->from_step || types.of(static_cast<std::size_t>(*input->from_step))) continue;
    throw NoSuchValue("/steps/" + std::to_string(step) + ": takes values from step " +
                      std::to_string(*input->from_step) + ", which gives none");
  }
}

// One relation, between results of the right shapes.
class RelationJudge {
 public:
  RelationJudge(const Case& c, const RelatedSteps& related, const RelatedCalls& calls,
                const Transcript& actual, SumRule rule)
      : case_(c),
        related_(related),
        calls_(calls),
        actual_(actual),
        rule_(rule),
        base_(c.steps[related.first]),
        ranks_(base_.members()),
        operation_(base_.operations[0]),
        inputs_(inputs_of(c, related.first, actual)) {}

  std::optional<Divergence> judge() const {
    for (std::size_t member = 0; member < ranks_; ++member) {
      if (auto found = judge_member(member)) return found;
    }
    return std::nullopt;
  }

 private:
  const Outcome& result(std::size_t offset, std::size_t member) const {
    return actual_[related_.first + offset][member];
  }
  std::vector<Tensor> blocks(std::size_t offset, std::size_t member) const {
    const Outcome& outcome = result(offset, member);
    return divided(outcome.value, result_blocks(operation_), ranks_, outcome.receive_counts);
  }

  std::optional<Divergence> judge_member(std::size_t member) const {
    switch (calls_.relation) {
      case Relation::scatter_then_gather:
        return compare(1, member, result(2, member).value, Order::as_the_rule_says, 0);
      case Relation::exchange_and_back: {
        if (auto found = compare_counts(1, member, base_.inputs[member]->send_counts)) return found;
        return compare(1, member, inputs_[member]);
      }
      case Relation::split_rows:
        return judge_split(member);
      case Relation::relabelled_ranks:
        return judge_relabelled(member);
      case Relation::gathered_root:
        return compare(
            1, member,
            blocks(0, member)[static_cast<std::size_t>(case_.steps[related_.first + 1].roots[0])]);
      case Relation::gather_by_exchange: {
        const std::vector<std::int64_t> counts(ranks_, inputs_[member].rows());
        if (auto found = compare_counts(1, member, counts)) return found;
        return compare(1, member, result(0, member).value);
      }
    }
    return std::nullopt;
  }

  std::optional<Divergence> judge_split(std::size_t member) const {
    if (is_all_to_all_v(operation_)) {
      std::vector<std::int64_t> counts = result(1, member).receive_counts;
      for (std::size_t source = 0; source < ranks_; ++source) {
        counts[source] += result(2, member).receive_counts[source];
      }
      if (auto found = compare_counts(0, member, counts)) return found;
    }
    const std::vector<Tensor> front = blocks(1, member);
    const std::vector<Tensor> back = blocks(2, member);
    std::vector<Tensor> both;
    for (std::size_t i = 0; i < front.size(); ++i) both.push_back(joined({front[i], back[i]}));
    return compare(0, member, joined(both), Order::as_the_rule_says, member);
  }

  std::optional<Divergence> judge_relabelled(std::size_t member) const {
    const auto base_member = [&](std::size_t i) {
      return static_cast<std::size_t>(calls_.parameter[i]);
    };
    // A scatter gives its parts to ranks by their place.
    if (operation_ == Operation::reduce_scatter_sum) {
      return compare(1, member, result(0, member).value, Order::another, member);
    }
    const std::size_t same_rank = base_member(member);
    if (result_blocks(operation_) == Blocks::one) {
      return compare(1, member, result(0, same_rank).value, Order::another, 0);
    }
    const std::vector<Tensor> original = blocks(0, same_rank);
    std::vector<Tensor> reordered;
    std::vector<std::int64_t> counts;
    for (std::size_t source = 0; source < ranks_; ++source) {
      reordered.push_back(original[base_member(source)]);
      if (is_all_to_all_v(operation_)) {
        counts.push_back(result(0, same_rank).receive_counts[base_member(source)]);
      }
    }
    if (is_all_to_all_v(operation_)) {
      if (auto found = compare_counts(1, member, counts)) return found;
    }
    return compare(1, member, joined(reordered));
  }

  // Whether addends may come in another order than in the call that is compared with.
  enum class Order { as_the_rule_says, another };

  // May two sums of the same addends differ?
  bool order_is_open(Order order) const {
    if (rule_ == SumRule::exact) return false;
    return rule_ == SumRule::unspecified || order == Order::another;
  }

  std::optional<Divergence> differs(std::size_t offset, std::size_t member,
                                    const std::string& what) const {
    return divergence(case_, related_.first + offset, member, "relation",
                      "steps " + std::to_string(related_.first) + " to " +
                          std::to_string(related_.first + related_.count - 1) +
                          " belong together: " + std::string(statement(calls_.relation)) +
                          "; but " + what);
  }

  std::optional<Divergence> compare_counts(std::size_t offset, std::size_t member,
                                           const std::vector<std::int64_t>& by_others) const {
    const std::vector<std::int64_t>& received = result(offset, member).receive_counts;
    if (received == by_others) return std::nullopt;
    return differs(offset, member,
                   "not its receive counts" + lines(counts_text(by_others), counts_text(received)));
  }

  static std::string lines(const std::string& by_others, const std::string& received) {
    return "\n  by the others " + by_others + "\n  received      " + received;
  }

  // The result of step `first + offset` against what the other steps make of it. Where the base is
  // a sum, element i is one of the addends' element `share` * elements + i.
  std::optional<Divergence> compare(std::size_t offset, std::size_t member, const Tensor& by_others,
                                    Order order = Order::as_the_rule_says,
                                    std::size_t share = 0) const {
    const Tensor& received = result(offset, member).value;
    if (same_bits(by_others, received)) return std::nullopt;
    if (by_others.shape() != received.shape() || by_others.dtype() != received.dtype()) {
      return differs(offset, member,
                     "not its shape" + lines(type_text(by_others), type_text(received)));
    }
    // A communicator of one adds nothing up, it moves its tensor.
    const bool sum = is_sum(operation_) && ranks_ > 1;
    const bool scattered = operation_ == Operation::reduce_scatter_sum &&
                           calls_.relation != Relation::scatter_then_gather;
    const std::int64_t start =
        scattered ? static_cast<std::int64_t>(share) * received.elements() : 0;
    for (std::int64_t i = 0; i < received.elements(); ++i) {
      if (same_element(by_others, received, i)) continue;
      const DType dtype = received.dtype();
      const std::byte* a = element_at(by_others, i);
      const std::byte* b = element_at(received, i);
      if (sum && is_nan(dtype, a) && is_nan(dtype, b)) continue;
      if (sum && order_is_open(order) && possible_sum(start + i, a) && possible_sum(start + i, b)) {
        continue;
      }
      std::string what = "not " + element_place(received.shape(), i) + " of " +
                         type_text(received) +
                         lines(element_and_bits(by_others, i), element_and_bits(received, i));
      if (const auto units = units_apart(by_others, received, i); units && sum) {
        what += ", " + std::to_string(*units) + (*units == 1 ? " unit" : " units") +
                " in the last place away";
      }
      return differs(offset, member, what);
    }
    return std::nullopt;
  }

  bool possible_sum(std::int64_t i, const std::byte* element) const {
    std::vector<const std::byte*> addends;
    for (const Tensor& input : inputs_) addends.push_back(element_at(input, i));
    return !refute_sum(inputs_[0].dtype(), addends, element);
  }

  const Case& case_;
  const RelatedSteps& related_;
  const RelatedCalls& calls_;
  const Transcript& actual_;
  const SumRule rule_;
  const Step& base_;
  const std::size_t ranks_;
  const Operation operation_;
  const std::vector<Tensor> inputs_;  // of the base
};

}  // namespace

std::string_view name(Relation relation) {
  return texts[static_cast<std::size_t>(relation)].name;
}
std::string_view statement(Relation relation) {
  return texts[static_cast<std::size_t>(relation)].statement;
}

std::vector<RelatedSteps> related_steps(const Case& c) {
  ResultTypes types(c);
  std::vector<RelatedSteps> found;
  for (std::size_t first = 0; first < c.steps.size(); ++first) {
    for (const Relation relation : all_relations) {
      if (recognized(c, types, first, relation)) {
        found.push_back({relation, first, length(relation)});
      }
    }
  }
  return found;
}

std::optional<Divergence> judge_relations(const Case& c, const Transcript& actual, SumRule rule) {
  ResultTypes types(c);
  for (std::size_t step = 0; step < c.steps.size(); ++step) {
    require_values(c, types, step);
    const std::optional<std::vector<TensorType>>& results = types.of(step);
    if (!results) continue;
    if (step >= actual.size() || actual[step].size() != c.steps[step].members()) {
      return divergence(c, step, 0, "missing", "no outcomes were reported");
    }
    if (auto found = judge_kind(c, step, actual, *results)) return found;
  }
  for (std::size_t first = 0; first < c.steps.size(); ++first) {
    for (const Relation relation : all_relations) {
      const std::optional<RelatedCalls> calls = recognized(c, types, first, relation);
      if (!calls) continue;
      const RelatedSteps related{relation, first, length(relation)};
      if (auto found = RelationJudge(c, related, *calls, actual, rule).judge()) return found;
    }
  }
  return std::nullopt;
}

}  // namespace lockstep::kit
