#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <lockstep/half.hpp>
#include <lockstep/kit/case_file.hpp>
#include <lockstep/kit/judge.hpp>
#include <lockstep/kit/program_oracle.hpp>

namespace lockstep::kit {
namespace {

// The case with what is expected filled in, one line per step as a case file writes it: the tests
// below are whole tiny programs and their answers.
std::vector<std::string> expected(std::string_view text) {
  const Case c = with_expected(read_case(text));
  EXPECT_EQ(write_case(read_case(write_case(c))), write_case(c));  // it can all be read back
  EXPECT_FALSE(judge_expected(c).has_value());
  std::vector<std::string> lines;
  for (const Step& step : c.steps) {
    Case one;
    one.world = c.world;
    one.steps.push_back(step);
    const std::string line = write_case(one, Layout::one_line);
    const std::size_t begin = line.find("\"expected\": ") + 12;
    lines.push_back(line.substr(begin, line.rfind(" } ] }") - begin));
  }
  return lines;
}

std::string world(int ranks, const std::string& steps) {
  return R"({"lockstep_case": 1, "world": )" + std::to_string(ranks) + R"(, "steps": [)" + steps +
         "]}";
}

using Lines = std::vector<std::string>;

TEST(ProgramOracle, AnswersTheWorkedExample) {
  // By hand. Step 0: rank 0 sends row [1, 2] to itself and rows [3, 4], [5, 6] to rank 1; rank 2
  // sends [7, -8] to itself. Step 1: rank 1 is the root. Step 2: three times -0 is -0, a NaN stays
  // one; the gradient of a sum is the sum of the upstreams, [1, 0] + [0, 0] + [0, 2].
  EXPECT_EQ(
      expected(R"({
  "lockstep_case": 1,
  "world": 3,
  "steps": [
    { "op": "all_to_all_v_int",
      "inputs": [
        { "dtype": "i32", "shape": [3, 2], "values": [1, 2, 3, 4, 5, 6], "send_counts": [1, 2, 0] },
        { "dtype": "i32", "shape": [0, 2], "values": [], "send_counts": [0, 0, 0] },
        { "dtype": "i32", "shape": [1, 2], "values": [7, -8], "send_counts": [0, 0, 1] } ] },
    { "op": "broadcast_float", "root": 1,
      "inputs": [ { "dtype": "f32", "shape": [2], "values": [0, 0] },
                  { "dtype": "f32", "shape": [2], "values": ["-0", "0x7fc00123"] },
                  { "dtype": "f32", "shape": [2], "values": ["inf", 1.5] } ] },
    { "op": "all_reduce_sum", "inputs": [ { "from_step": 1 }, { "from_step": 1 }, { "from_step": 1 } ],
      "upstream": [ { "dtype": "f32", "shape": [2], "values": [1, 0] }, null, { "dtype": "f32", "shape": [2], "values": [0, 2] } ] }
  ]
})"),
      (Lines{
          R"([ { "dtype": "i32", "shape": [1, 2], "values": [1, 2], "receive_counts": [1, 0, 0] }, )"
          R"({ "dtype": "i32", "shape": [2, 2], "values": [3, 4, 5, 6], "receive_counts": [2, 0, 0] }, )"
          R"({ "dtype": "i32", "shape": [1, 2], "values": [7, -8], "receive_counts": [0, 0, 1] } ])",
          R"([ { "dtype": "f32", "shape": [2], "values": ["-0", "0x7fc00123"] }, )"
          R"({ "dtype": "f32", "shape": [2], "values": ["-0", "0x7fc00123"] }, )"
          R"({ "dtype": "f32", "shape": [2], "values": ["-0", "0x7fc00123"] } ])",
          R"([ { "dtype": "f32", "shape": [2], "values": ["-0", "0x7fc00000"], "gradient": { "dtype": "f32", "shape": [2], "values": [1, 2] } }, )"
          R"({ "dtype": "f32", "shape": [2], "values": ["-0", "0x7fc00000"], "gradient": { "dtype": "f32", "shape": [2], "values": [1, 2] } }, )"
          R"({ "dtype": "f32", "shape": [2], "values": ["-0", "0x7fc00000"], "gradient": { "dtype": "f32", "shape": [2], "values": [1, 2] } } ])"}));
}

TEST(ProgramOracle, AddsByTheRuleOfTheCase) {
  const std::string steps = R"({"op": "all_reduce_sum", "inputs": [
      {"dtype": "bf16", "shape": [1], "values": [256]}, {"dtype": "bf16", "shape": [1], "values": [1]},
      {"dtype": "bf16", "shape": [1], "values": [1]}]})";
  const std::string exact = R"({ "dtype": "bf16", "shape": [1], "values": [258] })";
  const std::string rank_order = R"({ "dtype": "bf16", "shape": [1], "values": [256] })";
  EXPECT_EQ(expected(world(3, steps)), Lines{"[ " + exact + ", " + exact + ", " + exact + " ]"});
  EXPECT_EQ(expected(R"({"sum_rule": "rank_order", )" + world(3, steps).substr(1)),
            Lines{"[ " + rank_order + ", " + rank_order + ", " + rank_order + " ]"});
}

TEST(ProgramOracle, GoesOnAfterABrokenContract) {
  EXPECT_EQ(expected(world(2, R"(
      {"op": "all_gather_int", "inputs": [{"dtype": "u8", "shape": [1], "values": [1]},
                                          {"dtype": "i64", "shape": [1], "values": [2]}]},
      {"op": "all_gather_int", "inputs": [{"dtype": "u8", "shape": [1], "values": [1]},
                                          {"dtype": "u8", "shape": [1], "values": [2]}]})")),
            (Lines{R"([ { "error": { "kind": "contract", "violation": "dtype" } }, )"
                   R"({ "error": { "kind": "contract", "violation": "dtype" } } ])",
                   R"([ { "dtype": "u8", "shape": [2], "values": [1, 2] }, )"
                   R"({ "dtype": "u8", "shape": [2], "values": [1, 2] } ])"}));
}

TEST(ProgramOracle, LosesOnlyTheCommunicatorsOfARankThatLeft) {
  const std::string one = R"({"dtype": "f32", "shape": [], "values": [1]})";
  const std::string two = R"({"dtype": "f32", "shape": [], "values": [2]})";
  const std::string lost = R"({ "error": { "kind": "transport" } })";
  const std::string three = R"({ "dtype": "f32", "shape": [], "values": [3] })";
  EXPECT_EQ(
      expected(world(3, R"({"op": "all_reduce_sum", "inputs": [)" + one + ", null, " + one + R"(]},
      {"group": [2, 0], "op": "all_reduce_sum", "inputs": [)" +
                            one + "," + two + R"(]},
      {"group": [1, 2], "op": "all_reduce_sum", "inputs": [null, )" +
                            two + R"(]},
      {"op": "broadcast_float", "root": 0, "inputs": [)" +
                            two + ", null, " + two + "]}")),
      (Lines{"[ " + lost + ", null, " + lost + " ]", "[ " + three + ", " + three + " ]",
             "[ null, " + lost + " ]", "[ " + lost + ", null, " + lost + " ]"}));
}

TEST(ProgramOracle, GoesOnNamingTheRankThatWasMissedFirst) {
  const Case c = read_case(R"({"lockstep_case": 1, "world": 3, "steps": [
    {"op": "all_reduce_sum", "inputs": [
      {"dtype": "f32", "shape": [1], "values": [1]}, {"dtype": "f32", "shape": [1], "values": [2]},
      null]},
    {"op": "all_reduce_sum", "inputs": [
      {"dtype": "f32", "shape": [1], "values": [1]}, null, null]}]})");
  const Transcript expected = expected_transcript(c, SumRule::exact);
  EXPECT_EQ(expected[0][0].lost_ranks, (std::vector<int>{2}));
  EXPECT_EQ(expected[1][0].lost_ranks, (std::vector<int>{2}));
  EXPECT_EQ(expected[1][0].message, expected[0][0].message);
}

TEST(ProgramOracle, PutsAMissingRankAboveABrokenRule) {
  EXPECT_EQ(
      expected(
          world(3, R"({"op": ["all_gather_int", "all_reduce_sum", "all_reduce_sum"], "inputs": [
      {"dtype": "u8", "shape": [1], "values": [1]}, {"dtype": "f32", "shape": [1], "values": [1]}, null]})")),
      Lines{
          R"([ { "error": { "kind": "transport" } }, { "error": { "kind": "transport" } }, null ])"});
}

TEST(ProgramOracle, NumbersRanksByTheirPlaceInTheGroup) {
  EXPECT_EQ(
      expected(world(4, R"({"group": [3, 1], "op": "all_gather_int", "inputs": [
      {"dtype": "u8", "shape": [1], "values": [33]}, {"dtype": "u8", "shape": [1], "values": [11]}]},
      {"group": [1, 3], "op": "broadcast_float", "root": 1, "inputs": [
      {"dtype": "f16", "shape": [1], "values": [1]}, {"dtype": "f16", "shape": [1], "values": [3]}]},
      {"group": [3, 1], "op": "all_gather_int", "inputs": [{"from_step": 0}, {"from_step": 0}]})")),
      (Lines{
          R"([ { "dtype": "u8", "shape": [2], "values": [33, 11] }, { "dtype": "u8", "shape": [2], "values": [33, 11] } ])",
          R"([ { "dtype": "f16", "shape": [1], "values": [3] }, { "dtype": "f16", "shape": [1], "values": [3] } ])",
          R"([ { "dtype": "u8", "shape": [4], "values": [33, 11, 33, 11] }, { "dtype": "u8", "shape": [4], "values": [33, 11, 33, 11] } ])"}));
}

TEST(ProgramOracle, TakesFromAnotherCommunicatorWhatTheSameRankGot) {
  EXPECT_EQ(
      expected(world(2, R"({"op": "reduce_scatter_sum", "inputs": [
      {"dtype": "f64", "shape": [2], "values": [1, 10]}, {"dtype": "f64", "shape": [2], "values": [2, 20]}]},
      {"group": [1, 0], "op": "all_gather_float", "inputs": [{"from_step": 0}, {"from_step": 0}]})"))
          .at(1),
      R"([ { "dtype": "f64", "shape": [2], "values": [30, 3] }, { "dtype": "f64", "shape": [2], "values": [30, 3] } ])");
}

TEST(ProgramOracle, RefusesToTakeAValueFromAnError) {
  const Case c = read_case(world(2, R"({"op": "all_gather_float", "inputs": [
      {"dtype": "f32", "shape": [1], "values": [1]}, {"dtype": "f32", "shape": [2], "values": [1, 2]}]},
      {"op": "all_reduce_sum", "inputs": [{"dtype": "f32", "shape": [1], "values": [1]}, {"from_step": 0}]})"));
  try {
    expected_transcript(c, SumRule::exact);
    FAIL() << "step 0 gave no value";
  } catch (const NoSuchValue& error) {
    EXPECT_STREQ(error.what(), "/steps/1/inputs/1/from_step: rank 1 got no value from step 0");
  }
}

TEST(ProgramOracle, FeedsABackendsOwnResultsToLaterSteps) {
  const Case c = read_case(world(2, R"({"op": "all_reduce_sum", "inputs": [
      {"dtype": "f32", "shape": [1], "values": [1]}, {"dtype": "f32", "shape": [1], "values": [2]}]},
      {"op": "all_gather_float", "inputs": [{"from_step": 0}, {"from_step": 0}]})"));
  Transcript actual = expected_transcript(c, SumRule::exact);
  actual[0][1].value = FloatTensor::of<float>({1}, {4.0f});
  const Transcript expected = expected_transcript(c, SumRule::exact, &actual);
  EXPECT_TRUE(same_bits(expected[0][1].value, FloatTensor::of<float>({1}, {3.0f})));
  EXPECT_TRUE(same_bits(expected[1][0].value, FloatTensor::of<float>({2}, {3.0f, 4.0f})));
}

// --- Gradients

// What is expected of a step in a world of two, with these keys.
std::string one_step(const std::string& keys) {
  return expected(world(2, "{" + keys + "}")).at(0);
}

std::string vector(const std::string& values, int length) {
  return R"({"dtype": "f32", "shape": [)" + std::to_string(length) + R"(], "values": [)" + values +
         "]}";
}

TEST(Gradients, OfAGatherAreTheSumsOfEverybodysSlices) {
  EXPECT_EQ(
      one_step(R"("op": "all_gather_float", "inputs": [)" + vector("7", 1) + "," + vector("8", 1) +
               R"(], "upstream": [)" + vector("1, 10", 2) + "," + vector("100, 1000", 2) + "]"),
      R"([ { "dtype": "f32", "shape": [2], "values": [7, 8], "gradient": { "dtype": "f32", "shape": [1], "values": [101] } }, )"
      R"({ "dtype": "f32", "shape": [2], "values": [7, 8], "gradient": { "dtype": "f32", "shape": [1], "values": [1010] } } ])");
}

TEST(Gradients, OfARankWhoseLossDoesNotReachAResultAreZerosThatStillCount) {
  EXPECT_EQ(
      one_step(R"("op": "all_gather_float", "inputs": [)" + vector("7", 1) + "," + vector("8", 1) +
               R"(], "upstream": [)" + vector("\"-0\", 10", 2) + ", null]"),
      // -0 + +0 is +0: the missing gradient is a true zero.
      R"([ { "dtype": "f32", "shape": [2], "values": [7, 8], "gradient": { "dtype": "f32", "shape": [1], "values": [0] } }, )"
      R"({ "dtype": "f32", "shape": [2], "values": [7, 8], "gradient": { "dtype": "f32", "shape": [1], "values": [10] } } ])");
}

TEST(Gradients, OfAReduceScatterAreEverybodysUpstream) {
  EXPECT_EQ(
      one_step(R"("op": "reduce_scatter_sum", "inputs": [)" + vector("1, 2", 2) + "," +
               vector("3, 4", 2) + R"(], "upstream": [)" + vector("3", 1) + "," + vector("5", 1) +
               "]"),
      R"([ { "dtype": "f32", "shape": [1], "values": [4], "gradient": { "dtype": "f32", "shape": [2], "values": [3, 5] } }, )"
      R"({ "dtype": "f32", "shape": [1], "values": [6], "gradient": { "dtype": "f32", "shape": [2], "values": [3, 5] } } ])");
}

TEST(Gradients, OfABroadcastAreTheRootsAlone) {
  EXPECT_EQ(
      one_step(R"("op": "broadcast_float", "root": 1, "inputs": [)" + vector("1", 1) + "," +
               vector("3", 1) + R"(], "upstream": [)" + vector("10", 1) + "," + vector("100", 1) +
               "]"),
      R"([ { "dtype": "f32", "shape": [1], "values": [3], "gradient": { "dtype": "f32", "shape": [1], "values": [0] } }, )"
      R"({ "dtype": "f32", "shape": [1], "values": [3], "gradient": { "dtype": "f32", "shape": [1], "values": [110] } } ])");
}

TEST(Gradients, OfAnExchangeGoBackTheWayTheRowsCame) {
  EXPECT_EQ(
      one_step(R"("op": "all_to_all_v_float", "inputs": [
        {"dtype": "f32", "shape": [3, 1], "values": [1, 2, 3], "send_counts": [1, 2]},
        {"dtype": "f32", "shape": [3, 1], "values": [4, 5, 6], "send_counts": [0, 3]}],
        "upstream": [{"dtype": "f32", "shape": [1, 1], "values": [7]},
                     {"dtype": "f32", "shape": [5, 1], "values": [1, 2, 3, 4, 5]}])"),
      R"([ { "dtype": "f32", "shape": [1, 1], "values": [1], "receive_counts": [1, 0], "gradient": { "dtype": "f32", "shape": [3, 1], "values": [7, 1, 2] } }, )"
      R"({ "dtype": "f32", "shape": [5, 1], "values": [2, 3, 4, 5, 6], "receive_counts": [2, 3], "gradient": { "dtype": "f32", "shape": [3, 1], "values": [3, 4, 5] } } ])");
}

TEST(Gradients, DoNotExistWhereNobodysLossReachesTheResult) {
  EXPECT_EQ(
      one_step(R"("op": "all_reduce_sum", "inputs": [)" + vector("1", 1) + "," + vector("3", 1) +
               R"(], "upstream": [null, null])"),
      R"([ { "dtype": "f32", "shape": [1], "values": [4] }, { "dtype": "f32", "shape": [1], "values": [4] } ])");
}

TEST(Gradients, OfAStepThatBrokeTheContractDoNotExist) {
  EXPECT_EQ(one_step(R"("op": "all_reduce_sum", "inputs": [)" + vector("1", 1) + "," +
                     vector("3, 4", 2) + R"(], "upstream": [)" + vector("1", 1) + ", null]"),
            R"([ { "error": { "kind": "contract", "violation": "shape" } }, )"
            R"({ "error": { "kind": "contract", "violation": "shape" } } ])");
}

constexpr std::string_view gradient_error =
    R"("gradient": { "error": { "kind": "contract", "violation": "gradient" } } })";

TEST(Gradients, AreAnErrorOnEveryRankWhereOneUpstreamHasAnotherDtype) {
  EXPECT_EQ(
      one_step(R"("op": "all_reduce_sum", "inputs": [)" + vector("1", 1) + "," + vector("3", 1) +
               R"(], "upstream": [null, {"dtype": "f64", "shape": [1], "values": [1]}])"),
      R"([ { "dtype": "f32", "shape": [1], "values": [4], )" + std::string(gradient_error) +
          R"(, { "dtype": "f32", "shape": [1], "values": [4], )" + std::string(gradient_error) +
          " ]");
}

TEST(Gradients, AreAnErrorOnEveryRankWhereAllUpstreamsHaveTheSameWrongShape) {
  EXPECT_EQ(
      one_step(R"("op": "all_reduce_sum", "inputs": [)" + vector("1", 1) + "," + vector("3", 1) +
               R"(], "upstream": [)" + vector("1, 1", 2) + "," + vector("1, 1", 2) + "]"),
      R"([ { "dtype": "f32", "shape": [1], "values": [4], )" + std::string(gradient_error) +
          R"(, { "dtype": "f32", "shape": [1], "values": [4], )" + std::string(gradient_error) +
          " ]");
}

TEST(Gradients, OfIntegersAreAnError) {
  const std::string error =
      R"("gradient": { "error": { "kind": "contract", "violation": "not_differentiable" } } })";
  EXPECT_EQ(
      one_step(R"("op": "all_gather_int", "inputs": [{"dtype": "u8", "shape": [1], "values": [1]},
                        {"dtype": "u8", "shape": [1], "values": [2]}], "upstream": [null, )" +
               vector("1, 1", 2) + "]"),
      R"([ { "dtype": "u8", "shape": [2], "values": [1, 2], )" + error +
          R"(, { "dtype": "u8", "shape": [2], "values": [1, 2], )" + error + " ]");
}

TEST(Gradients, FollowTheSumRule) {
  const std::string text = world(3, R"({"op": "all_reduce_sum", "inputs": [
      {"dtype": "f16", "shape": [], "values": [0]}, {"dtype": "f16", "shape": [], "values": [0]},
      {"dtype": "f16", "shape": [], "values": [0]}], "upstream": [
      {"dtype": "f16", "shape": [], "values": [2048]}, {"dtype": "f16", "shape": [], "values": [1]},
      {"dtype": "f16", "shape": [], "values": [1]}]})");
  const auto first_gradient = [&](SumRule rule) {
    return expected_transcript(read_case(text), rule)[0][0].gradient->values<f16>()[0].bits;
  };
  EXPECT_EQ(first_gradient(SumRule::exact), 0x6801);       // 2050
  EXPECT_EQ(first_gradient(SumRule::rank_order), 0x6800);  // 2048
}

TEST(Gradients, InAWorldOfOneKeepEveryBit) {
  EXPECT_EQ(
      expected(world(
          1,
          R"({"op": "all_reduce_sum", "inputs": [{"dtype": "f32", "shape": [], "values": ["0x7f800001"]}],
                     "upstream": [{"dtype": "f32", "shape": [], "values": ["0xffc00007"]}]})")),
      Lines{
          R"([ { "dtype": "f32", "shape": [], "values": ["0x7f800001"], "gradient": { "dtype": "f32", "shape": [], "values": ["0xffc00007"] } } ])"});
}

}  // namespace
}  // namespace lockstep::kit
