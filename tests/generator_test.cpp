#include <algorithm>
#include <map>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include <lockstep/kit/case_file.hpp>
#include <lockstep/kit/corners.hpp>
#include <lockstep/kit/generator.hpp>
#include <lockstep/kit/program_oracle.hpp>
#include <lockstep/kit/verification.hpp>

#include "shrunk.hpp"

namespace lockstep::kit {
namespace {

// The cases of a small run of one property.
std::vector<Case> cases_of(std::string_view property, int count, GeneratorLimits limits = {}) {
  std::vector<Case> cases;
  for (int i = 0; i < count; ++i) {
    cases.push_back(
        draw_case(property, limits, case_seed(1, property, static_cast<std::uint64_t>(i))));
  }
  return cases;
}

TEST(Generator, GivesEachOperationAllItsDtypes) {
  for (const Operation operation : tensor_operations) {
    std::set<DType> seen;
    for (const Case& c : cases_of(name(operation), 100)) {
      for (const Step& step : c.steps) {
        ASSERT_EQ(step.operations[0], operation);
        for (const auto& input : step.inputs) {
          if (!input->from_step) seen.insert(input->tensor.dtype());
        }
      }
    }
    EXPECT_EQ(seen.size(), 4u) << operation;
    for (DType dtype : seen) EXPECT_EQ(is_integer(dtype), takes_integers(operation)) << operation;
  }
}

TEST(Generator, BreaksTheContractInEveryWayAndThenCallsOn) {
  std::map<Violation, int> seen;
  for (const Case& c : cases_of("contract", 3000)) {
    const Transcript expected = expected_transcript(c, SumRule::exact);
    EXPECT_EQ(expected.back()[0].kind, Outcome::Kind::value);
    for (const auto& outcomes : expected) {
      if (outcomes[0].kind == Outcome::Kind::contract) ++seen[outcomes[0].violation];
    }
  }
  for (const Violation violation : all_violations) {
    if (violation == Violation::gradient) break;  // these belong to reverse passes
    EXPECT_GE(seen[violation], 5) << violation;
  }
}

TEST(Generator, LetsRanksLeaveAndOthersNotice) {
  int groups_that_go_on = 0;
  for (const Case& c : cases_of("transport", 300, {.fewest_ranks = 2, .most_ranks = 6})) {
    bool noticed = false;
    for (const auto& outcomes : expected_transcript(c, SumRule::exact)) {
      const auto any = [&](Outcome::Kind kind) {
        return std::ranges::count(outcomes, kind, &Outcome::kind) > 0;
      };
      if (noticed && any(Outcome::Kind::value)) ++groups_that_go_on;
      noticed = noticed || any(Outcome::Kind::transport);
    }
    EXPECT_TRUE(noticed) << write_case(c);
  }
  EXPECT_GE(groups_that_go_on, 20);
}

TEST(Generator, LetsRanksThrowAndGetStuck) {
  for (const Departure how : {Departure::throws, Departure::stalls}) {
    const std::string_view property = how == Departure::throws ? "throw" : "stall";
    for (const Case& c : cases_of(property, 200, {.fewest_ranks = 1, .most_ranks = 6})) {
      std::int64_t departures = 0;
      for (const Step& step : c.steps) departures += std::ranges::count(step.departures, how);
      EXPECT_GE(departures, 1) << write_case(c);
      EXPECT_EQ(write_case(read_case(write_case(c))), write_case(c));
    }
  }
}

TEST(Generator, MakesEveryRankInTurnTheOnlySender) {
  std::set<std::size_t> senders;
  for (const Case& c : cases_of("all_to_all_v_int", 400, {.fewest_ranks = 5, .most_ranks = 5})) {
    std::vector<std::size_t> sending;
    for (std::size_t rank = 0; rank < 5; ++rank) {
      const auto& counts = c.steps[0].inputs[rank]->send_counts;
      if (std::ranges::any_of(counts, [](std::int64_t count) { return count > 0; })) {
        sending.push_back(rank);
      }
    }
    if (sending.size() == 1) senders.insert(sending[0]);
  }
  EXPECT_EQ(senders.size(), 5u);
}

TEST(Generator, WritesProgramsOfUpToTwentySteps) {
  std::map<std::size_t, int> lengths;
  int mostly_short = 0;
  for (const Case& c : cases_of("programs", 1000)) {
    ++lengths[c.steps.size()];
    if (c.steps.size() <= 8) ++mostly_short;
  }
  EXPECT_EQ(lengths.rbegin()->first, 20u);
  EXPECT_GE(lengths.size(), 15u);
  EXPECT_GE(mostly_short, 850);
}

TEST(Generator, CallsAgainWithTheSameShapesAndOtherElements) {
  int again = 0;
  for (const Case& c : cases_of("programs", 200)) {
    for (std::size_t s = 1; s < c.steps.size(); ++s) {
      const auto& before = c.steps[s - 1].inputs[0];
      const auto& now = c.steps[s].inputs[0];
      if (before->from_step || now->from_step || now->tensor.elements() < 2) continue;
      if (now->tensor.shape() != before->tensor.shape()) continue;
      if (c.steps[s].operations != c.steps[s - 1].operations) continue;
      if (!same_bits(now->tensor, before->tensor)) ++again;
    }
  }
  EXPECT_GE(again, 50);
}

TEST(Generator, BroadcastsFromEveryRoot) {
  std::set<std::int64_t> roots;
  for (const Case& c : cases_of("broadcast_float", 200, {.fewest_ranks = 7, .most_ranks = 7})) {
    for (const Step& step : c.steps) roots.insert(step.roots[0]);
  }
  EXPECT_EQ(roots, (std::set<std::int64_t>{0, 1, 2, 3, 4, 5, 6}));
}

TEST(Generator, DiffersInEveryElementOfEveryRankWhereTheDtypeIsWideEnough) {
  int distinct_cases = 0;
  for (const Case& c : cases_of("all_gather_int", 200, {.fewest_ranks = 3, .most_ranks = 3})) {
    std::set<std::int64_t> seen;
    std::int64_t elements = 0;
    for (const auto& input : c.steps[0].inputs) {
      if (input->tensor.dtype() != DType::i64) continue;
      for (std::int64_t value : input->tensor.values<std::int64_t>()) seen.insert(value);
      elements += input->tensor.elements();
    }
    if (elements > 6 && static_cast<std::int64_t>(seen.size()) == elements) ++distinct_cases;
  }
  EXPECT_GE(distinct_cases, 10);
}

TEST(Generator, DrawsTheSameCaseForTheSameSeedOnEveryMachine) {
  // Changes when the generator does; then seeds that people wrote down no longer mean what they
  // did.
  const Case c = draw_case("broadcast_float", {.most_ranks = 3}, 7);
  EXPECT_EQ(write_case(c), write_case(draw_case("broadcast_float", {.most_ranks = 3}, 7)));
  EXPECT_NE(case_seed(1, "programs", 0), case_seed(1, "programs", 1));
  EXPECT_NE(case_seed(1, "programs", 0), case_seed(1, "groups", 0));
  EXPECT_NE(case_seed(1, "programs", 0), case_seed(2, "programs", 0));
}

TEST(Generator, RefusesWhatItDoesNotKnow) {
  EXPECT_THROW((void)draw_case("all_gather", {}, 1), InvalidArgument);
  EXPECT_THROW((void)draw_case("contract", {.fewest_ranks = 4, .most_ranks = 3}, 1),
               InvalidArgument);
}

TEST(Shrinking, ComesDownToOneElement) {
  const auto elements = [](const Case& c) {
    std::int64_t sum = 0;
    for (const Step& step : c.steps) {
      for (const auto& input : step.inputs) {
        if (input && !input->from_step) sum += input->tensor.elements();
      }
    }
    return sum;
  };
  int tried = 0;
  for (const Case& c : cases_of("programs", 30)) {
    if (elements(c) == 0) continue;
    ++tried;
    const Case least = shrunk(c, [&](const Case& candidate) { return elements(candidate) > 0; });
    EXPECT_EQ(least.steps.size(), 1u) << write_case(least);
    EXPECT_EQ(elements(least), 1);
    // One rank, but for a block on its way from one to another.
    EXPECT_LE(least.world, is_all_to_all_v(least.steps[0].operations[0]) ? 2 : 1);
  }
  EXPECT_GE(tried, 20);
}

TEST(Shrinking, KeepsTheOneBlockThatMatters) {
  // The failure: rank 2 sends at least two rows to rank 0.
  const auto fails = [](const Case& c) {
    return c.world > 2 && std::ranges::any_of(c.steps, [](const Step& step) {
             return step.members() > 2 && is_all_to_all_v(step.operations[2]) && step.inputs[2] &&
                    step.inputs[2]->send_counts.size() > 2 && step.inputs[2]->send_counts[0] >= 2;
           });
  };
  int tried = 0;
  for (const Case& c : cases_of("all_to_all_v_int", 60)) {
    if (!fails(c)) continue;
    ++tried;
    const Case least = shrunk(c, fails);
    ASSERT_EQ(least.world, 3);
    ASSERT_EQ(least.steps.size(), 1u);
    EXPECT_EQ(least.steps[0].inputs[2]->send_counts, (std::vector<std::int64_t>{2, 0, 0}));
    EXPECT_EQ(least.steps[0].inputs[0]->send_counts, (std::vector<std::int64_t>{0, 0, 0}));
    EXPECT_EQ(least.steps[0].inputs[1]->send_counts, (std::vector<std::int64_t>{0, 0, 0}));
    EXPECT_EQ(least.steps[0].inputs[2]->tensor.dtype(), DType::i32);
  }
  EXPECT_GE(tried, 5);
}

TEST(Shrinking, WritesOutTheValueOfAStepThatGoes) {
  Case c = read_case(R"({"lockstep_case": 1, "world": 2, "steps": [
    {"op": "all_gather_int", "inputs": [
      {"dtype": "i32", "shape": [1], "values": [7]},
      {"dtype": "i32", "shape": [1], "values": [8]}]},
    {"op": "all_gather_int", "inputs": [{"from_step": 0}, {"from_step": 0}]}]})");
  // The failure: somebody passes the numbers 7, 8.
  const auto fails = [](const Case& candidate) {
    return std::ranges::any_of(candidate.steps, [](const Step& step) {
      return std::ranges::any_of(step.inputs, [](const auto& input) {
        return input && !input->from_step && input->tensor.elements() == 2 &&
               input->tensor.template values<std::int32_t>()[1] == 8;
      });
    });
  };
  const Case least = shrunk(c, fails);
  ASSERT_EQ(least.steps.size(), 1u);
  EXPECT_EQ(least.world, 1);
  EXPECT_EQ(least.steps[0].inputs[0]->tensor.values<std::int32_t>()[1], 8);
}

Corners corners_of(const std::string& steps, int world = 2) {
  return corners(read_case("{\"lockstep_case\": 1, \"world\": " + std::to_string(world) +
                           ", \"steps\": [" + steps + "]}"));
}

bool visits(const Corners& corners, Corner corner) {
  return corners[static_cast<std::size_t>(corner)];
}

TEST(Corners, SeeASumThatTies) {
  // 2048 + 1 lies halfway between 2048 and 2050 in f16, 2048 + 2 does not.
  const auto sum = [](const std::string& second) {
    return corners_of(R"({"op": "all_reduce_sum", "inputs": [
      {"dtype": "f16", "shape": [1], "values": [2048]},
      {"dtype": "f16", "shape": [1], "values": [)" +
                      second + "]}]}");
  };
  EXPECT_TRUE(visits(sum("1"), Corner::sum_tie));
  EXPECT_FALSE(visits(sum("2"), Corner::sum_tie));
  EXPECT_TRUE(visits(sum("-2048"), Corner::sum_cancellation));
  EXPECT_FALSE(visits(sum("-1024"), Corner::sum_cancellation));
  EXPECT_TRUE(visits(sum("65504"), Corner::sum_overflow));
}

TEST(Corners, TellNaNsApart) {
  const Corners quiet = corners_of(R"({"op": "all_gather_float", "inputs": [
      {"dtype": "f32", "shape": [1], "values": ["0x7fc00001"]}]})",
                                   1);
  EXPECT_TRUE(visits(quiet, Corner::quiet_nan));
  EXPECT_FALSE(visits(quiet, Corner::signalling_nan));
  EXPECT_TRUE(visits(quiet, Corner::world_of_one));
  EXPECT_TRUE(visits(quiet, Corner::one_axis));
}

TEST(Corners, SeeWhoSends) {
  const Corners c = corners_of(R"({"op": "all_to_all_v_int", "inputs": [
      {"dtype": "i64", "shape": [0], "values": [], "send_counts": [0, 0]},
      {"dtype": "i64", "shape": [1], "values": [16777217], "send_counts": [1, 0]}]})");
  for (Corner corner :
       {Corner::one_sender, Corner::one_receiver, Corner::zero_row_rank, Corner::last_full_rank,
        Corner::asymmetric_counts, Corner::empty_counts_row, Corner::empty_counts_column,
        Corner::more_ranks_than_rows, Corner::beyond_2_to_24}) {
    EXPECT_TRUE(visits(c, corner)) << name(corner);
  }
  for (Corner corner : {Corner::all_empty, Corner::beyond_2_to_53, Corner::world_of_one}) {
    EXPECT_FALSE(visits(c, corner)) << name(corner);
  }
}

}  // namespace
}  // namespace lockstep::kit
