#include <gtest/gtest.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include <lockstep/kit/backend.hpp>
#include <lockstep/kit/case_file.hpp>
#include <lockstep/kit/judge.hpp>
#include <lockstep/kit/program_oracle.hpp>
#include <lockstep/kit/subject.hpp>
#include <lockstep/sim/world.hpp>

namespace lockstep::kit {
namespace {

std::string world(int ranks, const std::string& steps) {
  return R"({"lockstep_case": 1, "world": )" + std::to_string(ranks) + R"(, "steps": [)" + steps +
         "]}";
}

// The simulator's end of a communicator, to go wrong in one way or another.
class Simulated : public SubjectOf<sim::Communicator> {
 public:
  using SubjectOf::SubjectOf;
};

template <class S>
class BackendOf : public ThreadBackend {
 public:
  BackendInfo info() const override {
    BackendInfo info;
    info.most_ranks = 64;
    return info;
  }
  void launch(int world, const RankBody& body) override {
    sim::World(world).run([&](sim::Communicator communicator) {
      const int rank = communicator.rank();
      S subject(std::move(communicator));
      body(rank, subject);
    });
  }
};

// The aspect in which a backend fails a case, "holds" when it does not.
template <class S>
std::string verdict(const std::string& text) {
  const Case c = read_case(text);
  const auto divergence = judge(c, BackendOf<S>().run(c), SumRule::exact);
  return divergence ? divergence->aspect : "holds";
}
template <class S>
std::string explanation(const std::string& text) {
  const Case c = read_case(text);
  const auto divergence = judge(c, BackendOf<S>().run(c), SumRule::exact);
  return divergence ? divergence->explanation : "holds";
}

// Every operation with its gradient, on the world and on a group, with ranks that disagree and a
// rank that leaves.
const std::string everything = world(3, R"(
  {"op": "all_to_all_v_float", "inputs": [
    {"dtype": "f32", "shape": [3, 2], "values": [1, 2, 3, 4, 5, 6], "send_counts": [1, 2, 0]},
    {"dtype": "f32", "shape": [0, 2], "values": [], "send_counts": [0, 0, 0]},
    {"dtype": "f32", "shape": [1, 2], "values": [7, -8], "send_counts": [0, 0, 1]}],
   "upstream": [{"dtype": "f32", "shape": [1, 2], "values": [10, 20]}, null,
                {"dtype": "f32", "shape": [1, 2], "values": [30, 40]}]},
  {"op": "all_to_all_v_int", "inputs": [
    {"dtype": "i64", "shape": [1, 1], "values": ["9007199254740993"], "send_counts": [0, 1, 0]},
    {"dtype": "i64", "shape": [2, 1], "values": [-1, -2], "send_counts": [1, 0, 1]},
    {"dtype": "i64", "shape": [0, 1], "values": [], "send_counts": [0, 0, 0]}]},
  {"op": "broadcast_float", "root": 2, "inputs": [
    {"dtype": "f64", "shape": [2], "values": [1, 2]}, {"dtype": "f64", "shape": [2], "values": [3, 4]},
    {"dtype": "f64", "shape": [2], "values": ["0x7ff0000000000001", "-0"]}],
   "upstream": [{"dtype": "f64", "shape": [2], "values": [1, 2]}, null,
                {"dtype": "f64", "shape": [2], "values": [100, 200]}]},
  {"op": "reduce_scatter_sum", "inputs": [
    {"dtype": "bf16", "shape": [3, 1], "values": [1, 2, 3]},
    {"dtype": "bf16", "shape": [3, 1], "values": [10, 20, 30]},
    {"dtype": "bf16", "shape": [3, 1], "values": [100, 200, 300]}],
   "upstream": [null, {"dtype": "bf16", "shape": [1, 1], "values": [5]}, null]},
  {"op": "all_gather_float", "inputs": [{"from_step": 3}, {"from_step": 3}, {"from_step": 3}],
   "upstream": [{"dtype": "bf16", "shape": [3, 1], "values": [1, 2, 3]}, null,
                {"dtype": "bf16", "shape": [3, 1], "values": [10, 20, 30]}]},
  {"group": [2, 0], "op": "all_reduce_sum", "inputs": [{"from_step": 4}, {"from_step": 4}],
   "upstream": [{"dtype": "bf16", "shape": [3, 1], "values": [1, 2, 3]},
                {"dtype": "bf16", "shape": [3, 1], "values": [10, 20, 30]}]},
  {"op": ["all_gather_int", "all_reduce_sum", "all_reduce_sum"], "inputs": [
    {"dtype": "u8", "shape": [1], "values": [1]}, {"dtype": "f32", "shape": [1], "values": [2]},
    {"dtype": "f32", "shape": [1], "values": [3]}]},
  {"op": "all_gather_int", "inputs": [
    {"dtype": "u8", "shape": [1], "values": [1]}, {"dtype": "u8", "shape": [1], "values": [2]},
    {"dtype": "u8", "shape": [1], "values": [3]}],
   "upstream": [{"dtype": "f32", "shape": [3], "values": [1, 2, 3]}, null, null]},
  {"op": "all_reduce_sum", "inputs": [
    {"dtype": "f32", "shape": [], "values": [1]}, {"dtype": "f32", "shape": [], "values": [2]},
    {"dtype": "f32", "shape": [], "values": [3]}],
   "upstream": [{"dtype": "f32", "shape": [1], "values": [1]}, null, null]},
  {"op": "broadcast_float", "root": 0, "inputs": [{"from_step": 8}, null, {"from_step": 8}]},
  {"group": [0, 2], "op": "broadcast_float", "root": 1, "inputs": [{"from_step": 8}, {"from_step": 2}]},
  {"group": [0, 2], "op": "all_reduce_sum", "inputs": [{"from_step": 8}, {"from_step": 8}]},
  {"group": [1, 2], "op": "all_reduce_sum", "inputs": [null, {"from_step": 8}]})");

TEST(Perform, FindsThatTheSimulatorDoesEverythingRight) {
  EXPECT_EQ(explanation<Simulated>(everything), "holds");
}

TEST(Perform, ReportsWhatTheOracleExpects) {
  const Case c = read_case(everything);
  const Transcript actual = BackendOf<Simulated>().run(c);
  const Transcript expected = expected_transcript(c, SumRule::exact);
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t step = 0; step < c.steps.size(); ++step) {
    for (std::size_t member = 0; member < c.steps[step].members(); ++member) {
      SCOPED_TRACE(testing::Message() << "step " << step << ", member " << member);
      const Outcome& got = actual[step][member];
      const Outcome& wanted = expected[step][member];
      EXPECT_EQ(got.kind, wanted.kind);
      EXPECT_EQ(got.violation, wanted.violation);
      EXPECT_TRUE(same_bits(got.value, wanted.value));
      EXPECT_EQ(got.gradient.has_value(), wanted.gradient.has_value());
      EXPECT_EQ(got.gradient_violation, wanted.gradient_violation);
      if (got.gradient && wanted.gradient) {
        EXPECT_TRUE(same_bits(*got.gradient, *wanted.gradient));
      }
    }
  }
}

// Writes to memory that is not its own, as a backend does that works in place.
void write_over(const Tensor& victim) {
  auto* bytes = const_cast<std::byte*>(victim.data());
  if (bytes != nullptr) bytes[0] ^= std::byte{1};
}

const std::string two_sums = world(2, R"(
  {"op": "all_reduce_sum", "inputs": [{"dtype": "f32", "shape": [2], "values": [1, 2]},
                                      {"dtype": "f32", "shape": [2], "values": [3, 4]}]},
  {"op": "all_reduce_sum", "inputs": [{"from_step": 0}, {"from_step": 0}]})");

class WorksInPlace : public Simulated {
 public:
  using Simulated::Simulated;
  FloatTensor all_reduce_sum(const FloatTensor& x) override {
    FloatTensor result = Simulated::all_reduce_sum(x);
    write_over(x);
    return result;
  }
};

TEST(Perform, SeesAChangedInputAndLeavesTheCaseAsItWas) {
  const Case c = read_case(world(2, R"({"op": "all_reduce_sum", "inputs": [
      {"dtype": "f32", "shape": [2], "values": [1, 2]}, {"dtype": "f32", "shape": [2], "values": [3, 4]}]})"));
  const std::string before = write_case(c);
  const auto divergence = judge(c, BackendOf<WorksInPlace>().run(c), SumRule::exact);
  EXPECT_EQ(divergence->aspect, "input");
  EXPECT_EQ(write_case(c), before);
}

class WorksInPlaceOnItsSecondCall : public Simulated {
 public:
  using Simulated::Simulated;
  FloatTensor all_reduce_sum(const FloatTensor& x) override {
    FloatTensor result = Simulated::all_reduce_sum(x);
    if (++calls_ == 2) write_over(x);
    return result;
  }

 private:
  int calls_ = 0;
};

TEST(Perform, BlamesTheCallThatChangedAnEarlierResultWhichItWasGiven) {
  const Case c = read_case(world(1, R"(
      {"op": "all_reduce_sum", "inputs": [{"dtype": "f32", "shape": [2], "values": [1, 2]}]},
      {"op": "all_reduce_sum", "inputs": [{"from_step": 0}]})"));
  const Transcript actual = BackendOf<WorksInPlaceOnItsSecondCall>().run(c);
  EXPECT_FALSE(actual[0][0].result_changed);
  EXPECT_TRUE(actual[1][0].input_changed);
}

// Writes one element before and one behind what it was given, on its second call.
class WritesBesideTheInput : public Simulated {
 public:
  using Simulated::Simulated;
  FloatTensor all_reduce_sum(const FloatTensor& x) override {
    FloatTensor result = Simulated::all_reduce_sum(x);
    if (++calls_ == 2) {
      auto* values = const_cast<float*>(x.values<float>().data());
      values[-1] = 7;
      values[x.elements()] = 7;
    }
    return result;
  }

 private:
  int calls_ = 0;
};

TEST(Perform, SeesWritesBesideAnInputThatIsPartOfALargerBlock) {
  const auto c = read_case(world(1, R"(
      {"op": "all_reduce_sum", "inputs": [{"dtype": "f32", "shape": [2], "values": [1, 2]}]},
      {"op": "all_reduce_sum",
       "inputs": [{"dtype": "f32", "shape": [2], "values": [3, 4], "layout": "slice"}]})"));
  const auto divergence = judge(c, BackendOf<WritesBesideTheInput>().run(c), SumRule::exact);
  EXPECT_EQ(divergence->aspect, "input");
  EXPECT_EQ(divergence->step, 1);
}

// Returns the same buffer from every call, holding the latest result.
class ReusesItsBuffer : public Simulated {
 public:
  using Simulated::Simulated;
  FloatTensor all_reduce_sum(const FloatTensor& x) override {
    const FloatTensor result = Simulated::all_reduce_sum(x);
    if (buffer_.elements() != result.elements()) {
      buffer_ = FloatTensor::uninitialized(result.dtype(), result.shape());
    }
    std::ranges::copy(result.bytes(), const_cast<std::byte*>(buffer_.data()));
    return buffer_;
  }

 private:
  FloatTensor buffer_;
};

TEST(Perform, SeesAResultThatALaterCallChanges) {
  const std::string text = world(2, R"(
      {"op": "all_reduce_sum", "inputs": [{"dtype": "f32", "shape": [2], "values": [1, 2]},
                                          {"dtype": "f32", "shape": [2], "values": [3, 4]}]},
      {"op": "all_reduce_sum", "inputs": [{"dtype": "f32", "shape": [2], "values": [10, 20]},
                                          {"dtype": "f32", "shape": [2], "values": [30, 40]}]})");
  const Case c = read_case(text);
  const auto divergence = judge(c, BackendOf<ReusesItsBuffer>().run(c), SumRule::exact);
  EXPECT_EQ(divergence->aspect, "result");
  EXPECT_EQ(divergence->step, 0);
}

class BreaksOnRankOne : public Simulated {
 public:
  explicit BreaksOnRankOne(sim::Communicator communicator)
      : Simulated(communicator), rank_(communicator.rank()) {}
  FloatTensor all_reduce_sum(const FloatTensor& x) override {
    if (rank_ == 1) throw std::runtime_error("out of memory");
    return Simulated::all_reduce_sum(x);
  }

 private:
  int rank_;
};

TEST(Perform, ReportsAnErrorOutsideTheContractAndLeaves) {
  EXPECT_EQ(explanation<BreaksOnRankOne>(two_sums),
            "step 0, all_reduce_sum, rank 1: a wrong outcome\n"
            "  expected a value\n"
            "  received an error outside the contract: out of memory");
}

TEST(Perform, LeavesAfterAnErrorOutsideTheContract) {
  const Case c = read_case(world(2, R"(
      {"op": "all_reduce_sum", "inputs": [{"dtype": "f32", "shape": [1], "values": [1]},
                                          {"dtype": "f32", "shape": [1], "values": [2]}]},
      {"op": "all_gather_int", "inputs": [{"dtype": "u8", "shape": [1], "values": [1]},
                                          {"dtype": "u8", "shape": [1], "values": [2]}]})"));
  const Transcript actual = BackendOf<BreaksOnRankOne>().run(c);
  EXPECT_EQ(actual[0][0].kind, Outcome::Kind::transport);
  EXPECT_EQ(actual[0][1].kind, Outcome::Kind::broken);
  EXPECT_EQ(actual[1][0].kind, Outcome::Kind::transport);
  EXPECT_EQ(actual[1][1].kind, Outcome::Kind::absent);
}

class ThrowsANumber : public Simulated {
 public:
  using Simulated::Simulated;
  FloatTensor all_reduce_sum(const FloatTensor&) override { throw 42; }
};

TEST(Perform, SurvivesWhatIsNoException) {
  EXPECT_EQ(explanation<ThrowsANumber>(two_sums),
            "step 0, all_reduce_sum, rank 0: a wrong outcome\n"
            "  expected a value\n"
            "  received an error outside the contract: something was thrown that is no "
            "std::exception");
}

class OffersNoGroups : public Simulated {
 public:
  using Simulated::Simulated;
  std::unique_ptr<Subject> group(std::span<const int>) override { return nullptr; }
};

TEST(Perform, SaysThatGroupsAreNotOffered) {
  EXPECT_EQ(
      explanation<OffersNoGroups>(world(2, R"({"group": [1], "op": "all_gather_int", "inputs": [
                {"dtype": "u8", "shape": [1], "values": [1]}]})")),
      "step 0, all_gather_int, rank 0 of the group [1] (rank 1 of the world): a wrong outcome\n"
      "  expected a value\n"
      "  received an error outside the contract: communicators of chosen ranks are not "
      "offered");
}

class GroupsAreCounted : public Simulated {
 public:
  using Simulated::Simulated;
  std::unique_ptr<Subject> group(std::span<const int> ranks) override {
    if (++groups_ > 1) throw std::runtime_error("asked twice");
    return Simulated::group(ranks);
  }

 private:
  int groups_ = 0;
};

TEST(Perform, AsksForAGroupOnceHoweverManyStepsRunOnIt) {
  const std::string step = R"({"group": [1, 0], "op": "all_gather_int", "inputs": [
      {"dtype": "u8", "shape": [1], "values": [1]}, {"dtype": "u8", "shape": [1], "values": [2]}]})";
  EXPECT_EQ(verdict<GroupsAreCounted>(world(2, step + "," + step)), "holds");
}

class ReturnsNothingForTheFirstStep : public Simulated {
 public:
  using Simulated::Simulated;
  FloatTensor all_reduce_sum(const FloatTensor&) override {
    const Breach breach{Violation::shape, Operation::all_reduce_sum, "imagined"};
    throw ContractError(breach, "world", 0);
  }
};

TEST(Perform, BreaksOffWhereAStepGaveNothingToPassOn) {
  const Case c = read_case(two_sums);
  const Transcript actual = BackendOf<ReturnsNothingForTheFirstStep>().run(c);
  EXPECT_EQ(actual[0][0].kind, Outcome::Kind::contract);
  EXPECT_EQ(actual[1][0].kind, Outcome::Kind::broken);
  EXPECT_EQ(actual[1][0].message, "step 0 gave this rank nothing to pass on");
  EXPECT_EQ(judge(c, actual, SumRule::exact)->step, 0);
}

TEST(ThreadBackend, RefusesAWorldLargerThanItCanRun) {
  const Case c = read_case(R"({"lockstep_case": 1, "world": 2000000000, "steps": []})");
  EXPECT_THROW(BackendOf<Simulated>().run(c), BackendBroken);
}

class DoesNotStart : public BackendOf<Simulated> {
 public:
  void launch(int, const RankBody&) override { throw std::runtime_error("no threads left"); }
};

TEST(ThreadBackend, IsBrokenWhenItsWorldDoesNotStart) {
  EXPECT_THROW(DoesNotStart().run(read_case(two_sums)), BackendBroken);
}

}  // namespace
}  // namespace lockstep::kit
