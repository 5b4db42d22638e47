// Literal cases in which calls are related, and backends that are caught by nothing else.
#include <string>

#include <gtest/gtest.h>

#include <lockstep/kit/case_file.hpp>
#include <lockstep/kit/program_oracle.hpp>
#include <lockstep/kit/relations.hpp>
#include <lockstep/kit/verification.hpp>

#include "simulated_backend.hpp"
#include "stand_in.hpp"

namespace lockstep::kit {
namespace {

Case world(int ranks, const std::string& steps) {
  return read_case(R"({"lockstep_case": 1, "world": )" + std::to_string(ranks) + R"(, "steps": [)" +
                   steps + "]}");
}

const Case scatter_and_gather = world(2, R"(
  {"op": "reduce_scatter_sum", "inputs": [
    {"dtype": "f32", "shape": [2], "values": [1, 16777216]},
    {"dtype": "f32", "shape": [2], "values": [2, 1]}]},
  {"op": "all_gather_float", "inputs": [{"from_step": 0}, {"from_step": 0}]},
  {"op": "all_reduce_sum", "inputs": [
    {"dtype": "f32", "shape": [2], "values": [1, 16777216]},
    {"dtype": "f32", "shape": [2], "values": [2, 1]}]})");

const Case there_and_back = world(2, R"(
  {"op": "all_to_all_v_int", "inputs": [
    {"dtype": "i32", "shape": [3], "values": [1, 2, 3], "send_counts": [1, 2]},
    {"dtype": "i32", "shape": [1], "values": [4], "send_counts": [1, 0]}]},
  {"op": "all_to_all_v_int", "inputs": [
    {"from_step": 0, "send_counts": [1, 1]}, {"from_step": 0, "send_counts": [2, 0]}]})");

const Case split_gather = world(2, R"(
  {"op": "all_gather_int", "inputs": [
    {"dtype": "u8", "shape": [3], "values": [1, 2, 3]},
    {"dtype": "u8", "shape": [3], "values": [4, 5, 6]}]},
  {"op": "all_gather_int", "inputs": [
    {"dtype": "u8", "shape": [1], "values": [1]}, {"dtype": "u8", "shape": [1], "values": [4]}]},
  {"op": "all_gather_int", "inputs": [
    {"dtype": "u8", "shape": [2], "values": [2, 3]},
    {"dtype": "u8", "shape": [2], "values": [5, 6]}]})");

const Case split_exchange = world(2, R"(
  {"op": "all_to_all_v_int", "inputs": [
    {"dtype": "i32", "shape": [3], "values": [1, 2, 3], "send_counts": [1, 2]},
    {"dtype": "i32", "shape": [1], "values": [4], "send_counts": [1, 0]}]},
  {"op": "all_to_all_v_int", "inputs": [
    {"dtype": "i32", "shape": [2], "values": [1, 2], "send_counts": [1, 1]},
    {"dtype": "i32", "shape": [0], "values": [], "send_counts": [0, 0]}]},
  {"op": "all_to_all_v_int", "inputs": [
    {"dtype": "i32", "shape": [1], "values": [3], "send_counts": [0, 1]},
    {"dtype": "i32", "shape": [1], "values": [4], "send_counts": [1, 0]}]})");

const Case relabelled_exchange = world(3, R"(
  {"op": "all_to_all_v_int", "inputs": [
    {"dtype": "i32", "shape": [3], "values": [1, 2, 3], "send_counts": [0, 1, 2]},
    {"dtype": "i32", "shape": [1], "values": [4], "send_counts": [1, 0, 0]},
    {"dtype": "i32", "shape": [0], "values": [], "send_counts": [0, 0, 0]}]},
  {"op": "all_to_all_v_int", "group": [2, 0, 1], "inputs": [
    {"dtype": "i32", "shape": [0], "values": [], "send_counts": [0, 0, 0]},
    {"dtype": "i32", "shape": [3], "values": [2, 3, 1], "send_counts": [2, 0, 1]},
    {"dtype": "i32", "shape": [1], "values": [4], "send_counts": [0, 1, 0]}]})");

const Case relabelled_sum = world(3, R"(
  {"op": "all_reduce_sum", "inputs": [
    {"dtype": "f32", "shape": [1], "values": [16777216]},
    {"dtype": "f32", "shape": [1], "values": [1]}, {"dtype": "f32", "shape": [1], "values": [1]}]},
  {"op": "all_reduce_sum", "group": [1, 2, 0], "inputs": [
    {"dtype": "f32", "shape": [1], "values": [1]}, {"dtype": "f32", "shape": [1], "values": [1]},
    {"dtype": "f32", "shape": [1], "values": [16777216]}]})");

const Case root_of_a_gather = world(2, R"(
  {"op": "all_gather_float", "inputs": [
    {"dtype": "f16", "shape": [1], "values": ["0x7c01"]},
    {"dtype": "f16", "shape": [1], "values": ["-0"]}]},
  {"op": "broadcast_float", "root": 1, "inputs": [
    {"dtype": "f16", "shape": [1], "values": ["0x7c01"]},
    {"dtype": "f16", "shape": [1], "values": ["-0"]}]})");

const Case gather_and_exchange = world(2, R"(
  {"op": "all_gather_int", "inputs": [
    {"dtype": "i64", "shape": [1], "values": [7]}, {"dtype": "i64", "shape": [1], "values": [8]}]},
  {"op": "all_to_all_v_int", "inputs": [
    {"dtype": "i64", "shape": [2], "values": [7, 7], "send_counts": [1, 1]},
    {"dtype": "i64", "shape": [2], "values": [8, 8], "send_counts": [1, 1]}]})");

struct Related {
  Relation relation;
  const Case& related;
};
const Related examples[] = {
    {Relation::scatter_then_gather, scatter_and_gather},
    {Relation::exchange_and_back, there_and_back},
    {Relation::split_rows, split_gather},
    {Relation::split_rows, split_exchange},
    {Relation::relabelled_ranks, relabelled_exchange},
    {Relation::relabelled_ranks, relabelled_sum},
    {Relation::gathered_root, root_of_a_gather},
    {Relation::gather_by_exchange, gather_and_exchange},
};

TEST(Relations, AreRecognizedWhereverTheyStandInACase) {
  for (const Related& example : examples) {
    Case c = example.related;
    ASSERT_EQ(related_steps(c).size(), 1u) << name(example.relation);
    EXPECT_EQ(related_steps(c)[0].relation, example.relation);
    EXPECT_EQ(related_steps(c)[0].first, 0u);
    EXPECT_EQ(related_steps(c)[0].count, c.steps.size());

    // One call earlier than they stand now, which the references must follow.
    c.steps.insert(c.steps.begin(), c.steps[0]);
    for (std::size_t s = 2; s < c.steps.size(); ++s) {
      for (auto& input : c.steps[s].inputs) {
        if (input->from_step) input->from_step = 1;
      }
    }
    const auto found = related_steps(c);
    ASSERT_FALSE(found.empty()) << name(example.relation);
    EXPECT_EQ(found.back().relation, example.relation);
    EXPECT_EQ(found.back().first, 1u);
  }
}

TEST(Relations, AreNoneWhereACallIsAnother) {
  Case other_element = gather_and_exchange;
  other_element.steps[1].inputs[0]->tensor.mutable_values<std::int64_t>()[1] = 9;
  EXPECT_TRUE(related_steps(other_element).empty());
  Case other_counts = there_and_back;
  other_counts.steps[1].inputs[0]->send_counts = {2, 0};
  EXPECT_TRUE(related_steps(other_counts).empty());
  Case somebody_left = scatter_and_gather;
  for (Step& step : somebody_left.steps) step.inputs[1].reset();
  EXPECT_TRUE(related_steps(somebody_left).empty());
}

TEST(Relations, HoldBetweenRightResults) {
  for (const Related& example : examples) {
    for (const SumRule rule : {SumRule::exact, SumRule::rank_order, SumRule::unspecified}) {
      const SumRule right = rule == SumRule::unspecified ? SumRule::rank_order : rule;
      const auto broken =
          judge_relations(example.related, expected_transcript(example.related, right), rule);
      EXPECT_FALSE(broken) << name(rule) << ": " << broken->explanation;
    }
  }
}

// The last byte of one result is another; every other result is as it was.
TEST(Relations, DoNotHoldWithASingleWrongResult) {
  for (const Related& example : examples) {
    const Transcript right = expected_transcript(example.related, SumRule::exact);
    for (std::size_t step = 0; step < right.size(); ++step) {
      for (std::size_t member = 0; member < right[step].size(); ++member) {
        Transcript wrong = right;
        Tensor& value = wrong[step][member].value;
        if (value.elements() == 0) continue;
        value.mutable_bytes().back() ^= std::byte{64};
        const auto broken = judge_relations(example.related, wrong, SumRule::exact);
        // What a scatter gave is compared once it is gathered, what was exchanged once it is back.
        const bool compared = !(example.relation == Relation::scatter_then_gather && step == 0) &&
                              !(example.relation == Relation::exchange_and_back && step == 0);
        ASSERT_EQ(broken.has_value(), compared)
            << name(example.relation) << ", step " << step << ", rank " << member;
        if (compared) {
          EXPECT_EQ(broken->aspect, "relation");
        }
      }
    }
  }
}

TEST(Relations, AreExplainedByBothElements) {
  Transcript wrong = expected_transcript(scatter_and_gather, SumRule::exact);
  wrong[1][1].value.mutable_values<float>()[0] = 4;
  const auto broken = judge_relations(scatter_and_gather, wrong, SumRule::exact);
  ASSERT_TRUE(broken);
  EXPECT_EQ(broken->explanation,
            "step 1, all_gather_float, rank 1: steps 0 to 2 belong together: a scatter that is "
            "gathered again is the all-reduce; but not element 0 of f32 [2]\n"
            "  by the others 3 (0x40400000)\n"
            "  received      4 (0x40800000), 4194304 units in the last place away");
}

// 2^24 + 1 + 1 in f32 is 2^24 from the front and 2^24 + 2 from the back.
TEST(Relations, AllowForTheOrderThatARuleLeavesOpen) {
  Transcript two_orders = expected_transcript(relabelled_sum, SumRule::rank_order);
  EXPECT_FALSE(same_bits(two_orders[0][0].value, two_orders[1][0].value));
  EXPECT_FALSE(judge_relations(relabelled_sum, two_orders, SumRule::rank_order));
  EXPECT_FALSE(judge_relations(relabelled_sum, two_orders, SumRule::unspecified));
  EXPECT_TRUE(judge_relations(relabelled_sum, two_orders, SumRule::exact));
  two_orders[0][0].value.mutable_values<float>()[0] = 16777200;
  EXPECT_TRUE(judge_relations(relabelled_sum, two_orders, SumRule::unspecified));
}

TEST(Relations, AreNotLookedAtWhereACallThatFitsGaveAnError) {
  Transcript refused = expected_transcript(there_and_back, SumRule::exact);
  refused[1][0] = Outcome();
  refused[1][0].kind = Outcome::Kind::contract;
  refused[1][0].message = "no";
  const auto broken = judge_relations(there_and_back, refused, SumRule::exact);
  ASSERT_TRUE(broken);
  EXPECT_EQ(broken->aspect, "outcome");
}

// Loses the last element of what it scatters, wherever there are two.
class LastElementLost : public StandIn {
 public:
  using StandIn::StandIn;
  FloatTensor reduce_scatter_sum(const FloatTensor& x) override {
    FloatTensor result = right_.reduce_scatter_sum(x);
    if (result.elements() > 1) {
      const auto size = static_cast<std::size_t>(size_of(result.dtype()));
      std::ranges::fill(result.mutable_bytes().last(size), std::byte{0});
    }
    return result;
  }
};

class LosingBackend : public testing::SimulatedBackend {
  void launch(int ranks, const RankBody& body) override {
    SimulatedBackend::launch(ranks, [&](int rank, Subject& right) {
      LastElementLost subject(right);
      body(rank, subject);
    });
  }
  BackendInfo info() const override {
    BackendInfo info = SimulatedBackend::info();
    info.offers_groups = false;
    return info;
  }
};

TEST(Relations, CatchAWrongBackendAndStayRelatedInASmallCase) {
  LosingBackend backend;
  const VerifyReport report =
      verify(backend, {.most_ranks = 4, .seed = 1, .cases = 500, .properties = {"relations"}});
  ASSERT_FALSE(report.holds());
  const Counterexample& found = *report.properties[0].counterexample;
  EXPECT_EQ(found.divergence.aspect, "relation") << explain(found);
  EXPECT_EQ(found.shrunk.world, 1) << explain(found);
  ASSERT_EQ(found.shrunk.steps.size(), 3u) << explain(found);
  EXPECT_EQ(found.shrunk.steps[0].inputs[0]->tensor.elements(), 2) << explain(found);
  EXPECT_FALSE(related_steps(found.shrunk).empty());

  // An ordinary case file, and no less wrong when it is replayed.
  const Case replayed = read_case(write_case(found.shrunk));
  EXPECT_TRUE(judge_relations(replayed, backend.run(replayed), SumRule::exact));
  EXPECT_TRUE(run_and_judge(backend, replayed));
  testing::SimulatedBackend right;
  EXPECT_FALSE(run_and_judge(right, replayed));
}

}  // namespace
}  // namespace lockstep::kit
