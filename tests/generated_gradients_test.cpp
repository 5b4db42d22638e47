// What the property `gradient` generates, and how its cases become simpler.
#include <algorithm>
#include <map>

#include <gtest/gtest.h>

#include <lockstep/kit/case_file.hpp>
#include <lockstep/kit/generator.hpp>
#include <lockstep/kit/program_oracle.hpp>

namespace lockstep::kit {
namespace {

Case gradient_case(int i, int most_ranks = 6) {
  return draw_case("gradient", {.fewest_ranks = 1, .most_ranks = most_ranks, .groups = true},
                   case_seed(1, "gradient", static_cast<std::uint64_t>(i)));
}

bool some_are_absent(const Step& step) {
  const auto absent = std::ranges::count_if(step.upstream, [](const auto& one) { return !one; });
  return absent > 0 && absent < static_cast<std::ptrdiff_t>(step.upstream.size());
}

TEST(GeneratedGradients, VisitEveryOperationAndEveryWayToAsk) {
  std::map<Operation, int> gradients, absent, without_rows, groups;
  std::map<Violation, int> violations;
  int skipped = 0;
  for (int i = 0; i < 3000; ++i) {
    const Case c = gradient_case(i);
    if (c.window) continue;
    const Transcript expected = expected_transcript(c, SumRule::exact);
    for (std::size_t s = 0; s < c.steps.size(); ++s) {
      const Step& step = c.steps[s];
      const Operation operation = step.operations[0];
      ASSERT_EQ(expected[s][0].kind, Outcome::Kind::value);
      if (step.upstream.empty()) continue;
      const Outcome& first = expected[s][0];
      if (first.gradient_violation) ++violations[*first.gradient_violation];
      if (!first.gradient) {
        skipped += first.gradient_violation ? 0 : 1;
        continue;
      }
      ++gradients[operation];
      if (some_are_absent(step)) ++absent[operation];
      if (!step.group.empty()) ++groups[operation];
      if (std::ranges::any_of(expected[s], [](const Outcome& outcome) {
            return outcome.value.shape().size() > 0 && outcome.value.rows() == 0;
          })) {
        ++without_rows[operation];
      }
    }
  }
  for (Operation operation : tensor_operations) {
    if (takes_integers(operation)) continue;
    EXPECT_GE(gradients[operation], 200) << operation;
    EXPECT_GE(absent[operation], 40) << operation;
    EXPECT_GE(without_rows[operation], 15) << operation;
    EXPECT_GE(groups[operation], 20) << operation;
  }
  EXPECT_GE(violations[Violation::gradient], 100);
  EXPECT_GE(violations[Violation::not_differentiable], 50);
  EXPECT_GE(skipped, 20);
}

TEST(GeneratedGradients, VisitWindowsThatReachResultsThroughOthersAndLeaveSomeOut) {
  int windows = 0, through_others = 0, unreached = 0, in_groups = 0, twice = 0, breaches = 0;
  std::map<Operation, int> reached_without_upstream;
  for (int i = 0; i < 3000; ++i) {
    const Case c = gradient_case(i);
    if (!c.window) continue;
    ++windows;
    const Transcript expected = expected_transcript(c, SumRule::exact);
    std::map<int, int> uses;  // of rank 0's results
    for (std::size_t s = 0; s < c.steps.size(); ++s) {
      const Step& step = c.steps[s];
      const Outcome& first = expected[s][0];
      if (first.kind == Outcome::Kind::contract) ++breaches;
      if (step.world_rank(0) == 0 && step.inputs[0]->from_step) ++uses[*step.inputs[0]->from_step];
      if (first.kind != Outcome::Kind::value || takes_integers(step.operations[0])) continue;
      const bool asked =
          std::ranges::any_of(step.upstream, [](const auto& one) { return one.has_value(); });
      if (!first.gradient && !first.gradient_violation) ++unreached;
      if (first.gradient && !asked) {
        ++through_others;
        ++reached_without_upstream[step.operations[0]];
      }
      if (first.gradient && !step.group.empty()) ++in_groups;
    }
    twice += std::ranges::any_of(uses, [](const auto& use) { return use.second > 1; }) ? 1 : 0;
  }
  EXPECT_GE(windows, 600);
  EXPECT_GE(through_others, 300);
  EXPECT_GE(unreached, 300);
  EXPECT_GE(in_groups, 300);
  EXPECT_GE(twice, 50);
  EXPECT_GE(breaches, 50);
  EXPECT_EQ(reached_without_upstream.size(), 5u);
}

TEST(GeneratedGradients, StayGradientsInSimplerCases) {
  const auto broken = [](const Case& c) {
    for (const auto& outcomes : expected_transcript(c, SumRule::exact)) {
      if (outcomes[0].gradient_violation == Violation::gradient) return true;
    }
    return false;
  };
  int candidates = 0;
  int smaller_upstreams = 0;
  for (int i = 0; i < 100; ++i) {
    const Case c = gradient_case(i, 4);
    if (broken(c)) continue;
    Simplifications simplifications(c);
    for (int k = 0; k < 40; ++k) {
      const std::optional<Case> simpler = simplifications.next();
      if (!simpler) break;
      try {
        EXPECT_FALSE(broken(*simpler)) << write_case(c) << write_case(*simpler);
      } catch (const NoSuchValue&) {
        continue;  // it refers to a value that is no longer there
      }
      ++candidates;
      if (c.steps.size() == 1 && simpler->steps.size() == 1 && c.world == simpler->world &&
          !simpler->steps[0].upstream.empty() && simpler->steps[0].upstream[0] &&
          simpler->steps[0].upstream[0]->elements() < c.steps[0].upstream[0]->elements()) {
        ++smaller_upstreams;
      }
    }
  }
  EXPECT_GE(candidates, 1000);
  EXPECT_GE(smaller_upstreams, 20);
}

}  // namespace
}  // namespace lockstep::kit
