// Cases that are one forward window: what they say, what must come of them, and how they are judged.
#include <gtest/gtest.h>

#include <string>

#include <lockstep/kit/backend.hpp>
#include <lockstep/kit/case_file.hpp>
#include <lockstep/kit/judge.hpp>
#include <lockstep/kit/program_oracle.hpp>

#include "expect.hpp"
#include "simulated_backend.hpp"
#include "stand_in.hpp"

namespace lockstep::kit {
namespace {

using lockstep::testing::tensor;

// Rank 0's loss uses the sum, rank 1's the gather before it; the scatter is used by nobody.
const std::string sum_of_a_gather = R"({"lockstep_case": 1, "world": 2, "window": true, "steps": [
  {"op": "all_gather_float", "inputs": [
    {"dtype": "f32", "shape": [1], "values": [2]}, {"dtype": "f32", "shape": [1], "values": [3]}],
   "upstream": [null, {"dtype": "f32", "shape": [2], "values": [5, 7]}]},
  {"op": "all_reduce_sum", "inputs": [{"from_step": 0}, {"from_step": 0}],
   "upstream": [{"dtype": "f32", "shape": [2], "values": [10, 100]}, null]},
  {"op": "reduce_scatter_sum", "inputs": [{"from_step": 1}, {"from_step": 1}]}]})";

TEST(WindowCase, GradientsGoThroughLaterSteps) {
  const Transcript expected = expected_transcript(read_case(sum_of_a_gather), SumRule::exact);
  // Of the sum: (10, 100) on both ranks. Of the gather: that on rank 0, and (5, 7) more on rank 1.
  for (std::size_t rank : {0u, 1u}) {
    EXPECT_TENSOR(tensor<float>({2}, {10, 100}), *expected[1][rank].gradient);
    EXPECT_FALSE(expected[2][rank].gradient.has_value());
  }
  EXPECT_TENSOR(tensor<float>({1}, {25}), *expected[0][0].gradient);
  EXPECT_TENSOR(tensor<float>({1}, {207}), *expected[0][1].gradient);
}

TEST(WindowCase, IsTakenBackByTheBackendsOwnRanks) {
  const Case c = read_case(sum_of_a_gather);
  lockstep::testing::SimulatedBackend backend;
  const Transcript actual = backend.run(c);
  EXPECT_TENSOR(tensor<float>({1}, {25}), *actual[0][0].gradient);
  EXPECT_TENSOR(tensor<float>({1}, {207}), *actual[0][1].gradient);
  EXPECT_FALSE(actual[2][0].gradient.has_value());
  const auto divergence = judge(c, actual, SumRule::exact);
  EXPECT_FALSE(divergence.has_value()) << divergence->explanation;
}

TEST(WindowCase, IsJudgedFromTheLastStepBack) {
  const Case c = read_case(sum_of_a_gather);
  Transcript transcript = expected_transcript(c, SumRule::exact);
  transcript[1][1].gradient = tensor<float>({2}, {10, 101});
  auto divergence = judge(c, transcript, SumRule::exact);
  ASSERT_TRUE(divergence.has_value());
  EXPECT_EQ(divergence->step, 1);
  EXPECT_EQ(divergence->member, 1);
  EXPECT_EQ(divergence->aspect, "gradient");

  // Under a rule that leaves sums open, earlier steps go by what really came back.
  transcript[1][1].gradient = tensor<float>({2}, {10, 100});
  transcript[0][1].gradient = tensor<float>({1}, {7});
  divergence = judge(c, transcript, SumRule::unspecified);
  ASSERT_TRUE(divergence.has_value());
  EXPECT_EQ(divergence->step, 0);
  EXPECT_EQ(divergence->member, 1);
}

TEST(WindowCase, AResultUsedTwiceHasBothGradientsTheLatestUseFirst) {
  // 2^24 and 1 are added before -2^24: first to the upstream, then from the later use.
  const Case c = read_case(R"({"lockstep_case": 1, "world": 1, "window": true, "steps": [
    {"op": "all_reduce_sum", "inputs": [{"dtype": "f32", "shape": [], "values": [4]}],
     "upstream": [{"dtype": "f32", "shape": [], "values": [16777216]}]},
    {"op": "all_reduce_sum", "inputs": [{"from_step": 0}],
     "upstream": [{"dtype": "f32", "shape": [], "values": [-16777216]}]},
    {"op": "all_reduce_sum", "inputs": [{"from_step": 0}],
     "upstream": [{"dtype": "f32", "shape": [], "values": [1]}]}]})");
  EXPECT_TENSOR(tensor<float>({}, {0}),
                *expected_transcript(c, SumRule::exact)[0][0].gradient);
  lockstep::testing::SimulatedBackend backend;
  EXPECT_FALSE(judge(c, backend.run(c), SumRule::exact).has_value());
}

TEST(WindowCase, NothingFlowsIntoWhatABroadcastIgnored) {
  const Case c = read_case(R"({"lockstep_case": 1, "world": 2, "window": true, "steps": [
    {"op": "all_reduce_sum", "group": [0], "inputs": [{"dtype": "f32", "shape": [1], "values": ["inf"]}]},
    {"op": "all_reduce_sum", "group": [1], "inputs": [{"dtype": "f32", "shape": [1], "values": [2]}]},
    {"op": "broadcast_float", "root": 1, "inputs": [{"from_step": 0}, {"from_step": 1}],
     "upstream": [{"dtype": "f32", "shape": [1], "values": [3]},
                  {"dtype": "f32", "shape": [1], "values": [4]}]}]})");
  const Transcript expected = expected_transcript(c, SumRule::exact);
  EXPECT_FALSE(expected[0][0].gradient.has_value());
  EXPECT_TENSOR(tensor<float>({1}, {7}), *expected[1][0].gradient);
  EXPECT_TENSOR(tensor<float>({1}, {0}), *expected[2][0].gradient);
  EXPECT_TENSOR(tensor<float>({1}, {7}), *expected[2][1].gradient);
  lockstep::testing::SimulatedBackend backend;
  EXPECT_FALSE(judge(c, backend.run(c), SumRule::exact).has_value());
}

TEST(WindowCase, OneWrongUpstreamIsTheErrorOfAllThatIsReached) {
  const Case c = read_case(R"({"lockstep_case": 1, "world": 2, "window": true, "steps": [
    {"op": "all_reduce_sum", "inputs": [
      {"dtype": "f32", "shape": [1], "values": [1]}, {"dtype": "f32", "shape": [1], "values": [2]}]},
    {"op": "all_gather_float", "inputs": [{"from_step": 0}, {"from_step": 0}],
     "upstream": [null, {"dtype": "f64", "shape": [2], "values": [1, 2]}]},
    {"op": "all_gather_float", "inputs": [{"from_step": 0}, {"from_step": 0}]}]})");
  lockstep::testing::SimulatedBackend backend;
  const Transcript actual = backend.run(c);
  EXPECT_FALSE(judge(c, actual, SumRule::exact).has_value());
  for (std::size_t rank : {0u, 1u}) {
    EXPECT_EQ(actual[0][rank].gradient_violation, Violation::gradient);
    EXPECT_EQ(actual[1][rank].gradient_violation, Violation::gradient);
    EXPECT_EQ(actual[2][rank].gradient_violation, std::nullopt);
  }
}

TEST(WindowCase, IntegersWithinAWindowHaveNoDerivative) {
  const Case c = read_case(R"({"lockstep_case": 1, "world": 2, "window": true, "steps": [
    {"op": "all_gather_int", "inputs": [
      {"dtype": "u8", "shape": [1], "values": [1]}, {"dtype": "u8", "shape": [1], "values": [2]}],
     "upstream": [null, {"dtype": "f64", "shape": [2], "values": [1, 2]}]},
    {"op": "all_gather_int", "inputs": [{"from_step": 0}, {"from_step": 0}]}]})");
  lockstep::testing::SimulatedBackend backend;
  const Transcript actual = backend.run(c);
  EXPECT_FALSE(judge(c, actual, SumRule::exact).has_value());
  EXPECT_EQ(actual[0][1].gradient_violation, Violation::not_differentiable);
}

TEST(WindowCase, ABackendWithoutGroupsBreaksOnlyWhereOneIsAskedFor) {
  class Groupless final : public lockstep::testing::SimulatedBackend {
    void launch(int ranks, const RankBody& body) override {
      SimulatedBackend::launch(ranks, [&](int rank, Subject& right) {
        StandIn stand_in(right);
        body(rank, stand_in);
      });
    }
  } backend;
  EXPECT_FALSE(judge(read_case(sum_of_a_gather), backend.run(read_case(sum_of_a_gather)),
                     SumRule::exact)
                   .has_value());
  const Case grouped = read_case(R"({"lockstep_case": 1, "world": 1, "window": true, "steps": [
    {"op": "all_reduce_sum", "group": [0], "inputs": [{"dtype": "f32", "shape": [], "values": [1]}],
     "upstream": [{"dtype": "f32", "shape": [], "values": [1]}]}]})");
  const Transcript actual = backend.run(grouped);
  EXPECT_EQ(actual[0][0].kind, Outcome::Kind::broken);
  EXPECT_NE(actual[0][0].message.find("not offered"), std::string::npos) << actual[0][0].message;
}

// --- The file

TEST(WindowCase, IsWrittenAndReadBack) {
  const Case c = with_expected(read_case(sum_of_a_gather));
  const std::string text = write_case(c);
  EXPECT_NE(text.find("\"world\": 2,\n  \"window\": true,"), std::string::npos) << text;
  const Case again = read_case(text);
  EXPECT_TRUE(again.window);
  EXPECT_EQ(write_case(again), text);
  EXPECT_FALSE(judge_expected(again).has_value());
  EXPECT_FALSE(read_case(R"({"lockstep_case": 1, "world": 1, "window": false, "steps": []})").window);
}

TEST(WindowCase, WhatItExpectsIsComparedWithTheOracle) {
  std::string text = write_case(with_expected(read_case(sum_of_a_gather)));
  const std::size_t at = text.find("207");
  ASSERT_NE(at, std::string::npos);
  const auto divergence = judge_expected(read_case(text.replace(at, 3, "200")));
  ASSERT_TRUE(divergence.has_value());
  EXPECT_EQ(divergence->step, 0);
  EXPECT_EQ(divergence->member, 1);
}

TEST(WindowCase, NobodyLeavesWithinIt) {
  EXPECT_ERROR(read_case(R"({"lockstep_case": 1, "world": 2, "window": true, "steps": [
    {"op": "all_reduce_sum", "inputs": [null, {"dtype": "f32", "shape": [], "values": [1]}]}]})"),
               CaseFileError, "/steps/0/inputs/0: found null, wanted an input, as nobody leaves");
  EXPECT_ERROR(read_case(R"({"lockstep_case": 1, "world": 2, "window": 1, "steps": []})"),
               CaseFileError, "/window: found 1, wanted true or false");
}

}  // namespace
}  // namespace lockstep::kit
