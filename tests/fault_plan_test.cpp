// Cases in which a rank throws or gets stuck, on simulated ranks and on backends that do not offer
// it.
#include <gtest/gtest.h>

#include <string>

#include <lockstep/kit/case_file.hpp>
#include <lockstep/kit/verification.hpp>

#include "simulated_backend.hpp"

namespace lockstep::kit {
namespace {

// Ranks 0, 1 and 2 enter an all-reduce that rank 1 leaves in this way; then another one; then ranks
// 2 and 0 alone.
Case three_ranks(const std::string& departure) {
  const std::string x = R"({"dtype": "f32", "shape": [1], "values": [)";
  return read_case(R"({"lockstep_case": 1, "world": 3, "steps": [
    {"op": "all_reduce_sum", "inputs": [)" +
                   x + "1]}, " + departure + ", " + x + R"(3]}]},
    {"op": "all_reduce_sum", "inputs": [)" +
                   x + "4]}, null, " + x + R"(6]}]},
    {"op": "all_reduce_sum", "group": [2, 0], "inputs": [)" +
                   x + "7]}, " + x + "8]}]}]}");
}

void expect_one_error(const Transcript& transcript, const std::string& message) {
  for (std::size_t step : {0u, 1u}) {
    for (std::size_t rank : {0u, 2u}) {
      const Outcome& outcome = transcript[step][rank];
      EXPECT_EQ(outcome.kind, Outcome::Kind::transport) << step << ", rank " << rank;
      EXPECT_EQ(outcome.message, message) << step << ", rank " << rank;
      EXPECT_NE(std::ranges::find(outcome.lost_ranks, 1), outcome.lost_ranks.end());
    }
    EXPECT_EQ(transcript[step][1].kind, Outcome::Kind::absent);
  }
  for (const Outcome& outcome : transcript[2]) {
    ASSERT_EQ(outcome.kind, Outcome::Kind::value) << outcome.message;
    EXPECT_EQ(outcome.value.values<float>()[0], 15.0f);
  }
}

TEST(FaultPlan, OfARankThatReturnsIsToldToItsPeers) {
  testing::SimulatedBackend backend;
  expect_one_error(run_case(backend, three_ranks("null")),
                   "communicator world: rank 1 can no longer arrive: it returned (made no call)");
}

TEST(FaultPlan, OfARankThatThrowsIsToldToItsPeersWithTheException) {
  testing::SimulatedBackend backend;
  expect_one_error(run_case(backend, three_ranks(R"({"departure": "throws"})")),
                   "communicator world: rank 1 can no longer arrive: it threw \"rank 1 throws in "
                   "step 0, as the case says\" (made no call)");
}

TEST(FaultPlan, OfARankThatIsStuckEndsWithTheTimeout) {
  testing::SimulatedBackend backend;
  // Long enough for ranks 2 and 0 to meet in the last step, however busy the machine is.
  const Transcript transcript =
      run_case(backend, three_ranks(R"({"departure": "stalls"})"), std::chrono::milliseconds(2000));
  expect_one_error(transcript, transcript[0][0].message);
  EXPECT_TRUE(
      transcript[0][0].message.ends_with("did not arrive within 2000 ms\n"
                                         "  rank 1 made no call"))
      << transcript[0][0].message;
}

TEST(FaultPlan, OfAllRanksLeavesNobodyToTell) {
  testing::SimulatedBackend backend;
  for (const std::string how : {"throws", "stalls"}) {
    const std::string departs = R"({"departure": ")" + how + "\"}";
    const Case c = read_case(R"({"lockstep_case": 1, "world": 2, "steps": [
      {"op": "all_gather_int", "inputs": [)" +
                             departs + ", " + departs + "]}]}");
    const Transcript transcript = run_case(backend, c);
    EXPECT_EQ(transcript[0][0].kind, Outcome::Kind::absent);
    EXPECT_EQ(transcript[0][1].kind, Outcome::Kind::absent);
    EXPECT_FALSE(run_and_judge(backend, c).has_value());
  }
}

// Its ranks may not throw, and wait for ever.
class PatientBackend final : public testing::SimulatedBackend {
 public:
  BackendInfo info() const override {
    BackendInfo info = SimulatedBackend::info();
    info.offers_throws = false;
    info.offers_stalls = false;
    return info;
  }
  void set_timeout(std::optional<std::chrono::milliseconds>) override {
    ADD_FAILURE() << "no timeout is offered";
  }
};

PropertyReport::Verdict verdict_on(const VerifyReport& report, std::string_view name) {
  for (const PropertyReport& property : report.properties) {
    if (property.name == name) return property.verdict;
  }
  ADD_FAILURE() << name;
  return {};
}

TEST(FaultPlan, IsNotTriedWhereItIsNotOffered) {
  PatientBackend patient;
  const VerifyReport report = verify(patient, {.most_ranks = 3, .cases = 100});
  EXPECT_EQ(verdict_on(report, "throw"), PropertyReport::Verdict::not_offered);
  EXPECT_EQ(verdict_on(report, "stall"), PropertyReport::Verdict::not_offered);
  EXPECT_EQ(verdict_on(report, "transport"), PropertyReport::Verdict::holds);
  EXPECT_EQ(report.cases, 100);
  VerifyOptions only;
  only.properties = {"stall"};
  EXPECT_EQ(verify(patient, only).cases, 0);
}

TEST(FaultPlan, IsTriedAmongOtherCases) {
  testing::SimulatedBackend backend;
  const VerifyReport report = verify(backend, {.most_ranks = 3, .cases = 100});
  EXPECT_EQ(verdict_on(report, "throw"), PropertyReport::Verdict::holds);
  EXPECT_EQ(verdict_on(report, "stall"), PropertyReport::Verdict::holds);
  EXPECT_GE(report.visits[static_cast<std::size_t>(Corner::throwing_rank)], 3);
  EXPECT_EQ(report.visits[static_cast<std::size_t>(Corner::stuck_rank)], 1);
}

// On a busy machine a timeout hits a rank that is only slow, here in the first run only.
class SlowAtFirst final : public testing::SimulatedBackend {
 public:
  Transcript run(const Case& c) override {
    Transcript transcript = SimulatedBackend::run(c);
    if (runs_++ == 0) transcript[2][0].kind = Outcome::Kind::transport;
    return transcript;
  }
  int runs_ = 0;
};

TEST(FaultPlan, IsGivenMoreTimeBeforeItCountsAsADivergence) {
  SlowAtFirst backend;
  EXPECT_FALSE(run_and_judge(backend, three_ranks(R"({"departure": "stalls"})")).has_value());
  EXPECT_EQ(backend.runs_, 2);
  SlowAtFirst other;
  EXPECT_TRUE(run_and_judge(other, three_ranks(R"({"departure": "throws"})")).has_value());
}

}  // namespace
}  // namespace lockstep::kit
