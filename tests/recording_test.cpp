// Programs recorded through a wrapped communicator, and judged from the case files alone.
#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include <lockstep/kit/case_file.hpp>
#include <lockstep/kit/check.hpp>
#include <lockstep/kit/recording.hpp>

#include "simulated_backend.hpp"

namespace lockstep::kit {
namespace {

using Ranks = Recorded<sim::Communicator>;
static_assert(VariableTensorCollective<Ranks> && Groupable<Ranks>);

// A backend of every rung of the ladder is recorded as what it is.
struct OnlyGathers {
  using float_tensor = FloatTensor;
  using int_tensor = IntTensor;
  int world_size() const { return 1; }
  std::nullptr_t autodiff_context() const { return nullptr; }
  FloatTensor all_gather_float(const FloatTensor& x) const { return x; }
  FloatTensor reduce_scatter_sum(const FloatTensor& x) const { return x; }
  friend std::ostream& operator<<(std::ostream& out, const OnlyGathers&) { return out; }
};
static_assert(TensorCollective<Recorded<OnlyGathers>>);
static_assert(!ReplicatedTensorCollective<Recorded<OnlyGathers>>);

// What a program of so many ranks does, recorded.
std::vector<Case> recorded(RecordingOptions options, const std::function<void(Ranks)>& program,
                           Recording* into = nullptr) {
  Recording own(options);
  Recording& recording = into != nullptr ? *into : own;
  sim::World(options.ranks).run([&](sim::Communicator c) {
    const int rank = c.rank();
    program(Ranks(std::move(c), recording, rank));
  });
  recording.finish();
  // Every case is a file.
  for (const Case& c : recording.cases()) {
    EXPECT_EQ(write_case(read_case(write_case(c))), write_case(c));
  }
  return recording.cases();
}

FloatTensor ramp(std::int64_t rows, std::int64_t columns, float first) {
  std::vector<float> values(static_cast<std::size_t>(rows * columns));
  std::iota(values.begin(), values.end(), first);
  return FloatTensor::of<float>({rows, columns}, values);
}

// All there is: values of every operation, a group, a broken contract, a rank that leaves early.
void program(Ranks ranks) {
  const auto rank = static_cast<std::int64_t>(ranks.rank());
  const FloatTensor x = ramp(3, 2, 10.0f * static_cast<float>(rank));
  ranks.all_gather_float(ranks.all_reduce_sum(x));
  ranks.reduce_scatter_sum(x);
  ranks.broadcast_float(x, 2);
  ranks.all_gather_int(IntTensor::of<std::int64_t>({1}, {(std::int64_t{1} << 60) + rank}));
  const std::vector<std::int64_t> counts = {rank, 2 - rank, 1};
  ranks.all_to_all_v_float(x, counts);
  if (rank != 1) {
    const int members[] = {2, 0};
    ranks.group(members).all_reduce_sum(x);
  }
  EXPECT_THROW(ranks.broadcast_float(x, rank), ContractError);
  if (rank == 1) return;
  EXPECT_THROW(ranks.all_reduce_sum(x), TransportError);
  EXPECT_THROW(ranks.all_gather_float(x), TransportError);
}

TEST(Recording, OfARightBackendHolds) {
  const std::vector<Case> cases = recorded({.ranks = 3, .backend = "sim"}, program);
  ASSERT_EQ(cases.size(), 1u);
  EXPECT_EQ(cases[0].steps.size(), 10u);
  EXPECT_EQ(cases[0].recorded->name, "sim");
  EXPECT_FALSE(cases[0].steps.back().inputs[1].has_value());
  const auto divergence = judge_received(cases[0]);
  EXPECT_FALSE(divergence.has_value()) << divergence->explanation;
  // It is an ordinary case too.
  testing::SimulatedBackend backend;
  EXPECT_FALSE(run_and_judge(backend, cases[0]).has_value());
}

// A recording may come from anybody, and its messages end on a terminal.
TEST(Recording, IsExplainedWithoutWhatATerminalWouldObey) {
  const Case c = read_case(R"({"lockstep_case": 1, "world": 1,
    "recorded": {"backend": "mine", "sum_rule": "exact"}, "steps": [
    {"op": "all_reduce_sum", "inputs": [{"dtype": "f32", "shape": [1], "values": [1]}],
     "received": [{"error": {"kind": "broken"}, "message": "\u001b[2J\u001b[31mred\nline"}]}]})");
  const auto divergence = judge_received(c);
  ASSERT_TRUE(divergence.has_value());
  EXPECT_NE(divergence->explanation.find("\\x1b[2J\\x1b[31mred\nline"), std::string::npos)
      << divergence->explanation;
}

TEST(Recording, CanBeJudgedFromTheFileAlone) {
  const Case c = read_case(R"({"lockstep_case": 1, "world": 2,
    "recorded": {"backend": "mine", "sum_rule": "unspecified"}, "steps": [
    {"op": "all_reduce_sum", "inputs": [
      {"dtype": "f32", "shape": [1], "values": [1]}, {"dtype": "f32", "shape": [1], "values": [2]}],
     "received": [
      {"dtype": "f32", "shape": [1], "values": [3]}, {"dtype": "f32", "shape": [1], "values": [4]}]}]})");
  const auto divergence = judge_received(c);
  ASSERT_TRUE(divergence.has_value());
  EXPECT_EQ(divergence->aspect, "sum");
  EXPECT_EQ(divergence->world_rank, 1);
  EXPECT_THROW(judge_received(read_case(R"({"lockstep_case": 1, "world": 1, "steps": []})")),
               InvalidArgument);
}

TEST(Recording, KeepsWhateverWentWrong) {
  const auto aspect = [](const std::string& received) {
    const std::string x = R"({"dtype": "f32", "shape": [1], "values": [1])";
    const Case c = read_case(
        R"({"lockstep_case": 1, "world": 1, "recorded": {"backend": "mine", "sum_rule": "exact"},
            "steps": [{"op": "broadcast_float", "root": 0, "inputs": [)" +
        x + "}], \"received\": [" + received + "]}]}");
    EXPECT_EQ(write_case(read_case(write_case(c))), write_case(c));
    const auto divergence = judge_received(c);
    return divergence ? divergence->aspect : "holds";
  };
  const std::string x = R"({"dtype": "f32", "shape": [1], "values": [1])";
  EXPECT_EQ(aspect(x + "}"), "holds");
  EXPECT_EQ(aspect(x + R"(, "input_changed": true})"), "input");
  EXPECT_EQ(aspect(x + R"(, "result_changed": true})"), "result");
  EXPECT_EQ(aspect("null"), "missing");
  EXPECT_EQ(aspect(R"({"dtype": "f16", "shape": [1], "values": [1]})"), "dtype");
  EXPECT_EQ(aspect(R"({"dtype": "f32", "shape": [2, 1], "values": [1, 2]})"), "shape");
  EXPECT_EQ(aspect(R"({"error": {"kind": "broken"}, "message": "a \"word\"\nand a line"})"),
            "outcome");
  EXPECT_EQ(aspect(R"({"error": {"kind": "transport", "lost_ranks": [0]}})"), "outcome");
  EXPECT_EQ(aspect(R"({"error": {"kind": "contract", "violation": "window"}})"), "outcome");
}

TEST(Recording, SamplesLargeTensorsOfRightCallsToRightCases) {
  RecordingOptions options{.ranks = 3, .backend = "sim"};
  options.most_elements = 40;
  Recording recording(options);
  const auto cases = recorded(
      options,
      [](Ranks ranks) {
        const auto rank = static_cast<std::int64_t>(ranks.rank());
        const float first = 1000.0f * static_cast<float>(rank);
        ranks.all_gather_float(ramp(300, 2, first));
        ranks.all_gather_float(ramp(2, 300, first));
        ranks.reduce_scatter_sum(ramp(150, 7, first));
        ranks.all_reduce_sum(ramp(90, 9, first));
        ranks.broadcast_float(ramp(90, 9, first), 1);
        const std::vector<std::int64_t> counts = {100 * rank, 7, 30};
        ranks.all_to_all_v_float(ramp(100 * rank + 37, 100, first), counts);
        const std::vector<std::int64_t> few = {1, 0, 1};
        ranks.all_to_all_v_float(ramp(2, 3, first), few);
        // Of a broken call a sample would be another call.
        EXPECT_THROW(ranks.all_gather_float(ramp(300 + rank, 2, first)), ContractError);
      },
      &recording);
  EXPECT_EQ(recording.steps(), 7);
  EXPECT_EQ(recording.sampled(), 6);
  EXPECT_EQ(recording.left_out(), 1);
  ASSERT_EQ(cases.size(), 1u);
  const auto divergence = judge_received(cases[0]);
  EXPECT_FALSE(divergence.has_value()) << divergence->explanation;
  for (const Step& step : cases[0].steps) {
    for (const auto& input : step.inputs) EXPECT_LE(input->tensor.elements(), 3 * 64);
  }
  // The last row and column are among what is kept.
  EXPECT_EQ(cases[0].steps[0].inputs[0]->tensor.values<float>().back(), 599.0f);
}

// A communicator with one fault.
class Faulty {
 public:
  using float_tensor = FloatTensor;
  using int_tensor = IntTensor;
  explicit Faulty(sim::Communicator right) : right_(std::move(right)) {}
  int world_size() const { return right_.world_size(); }
  int rank() const { return right_.rank(); }
  std::nullptr_t autodiff_context() const { return nullptr; }
  FloatTensor all_gather_float(const FloatTensor& x) const { return right_.all_gather_float(x); }
  FloatTensor reduce_scatter_sum(const FloatTensor& x) const {
    return right_.reduce_scatter_sum(x);
  }
  // Ranks differ in the last element.
  FloatTensor all_reduce_sum(const FloatTensor& x) const {
    FloatTensor sum = right_.all_reduce_sum(x);
    if (rank() == 1) sum.mutable_values<float>().back() += 1.0f;
    return sum;
  }
  // One row is missing.
  FloatTensor broadcast_float(const FloatTensor& x, std::int64_t root) const {
    const FloatTensor all = right_.broadcast_float(x, root);
    return FloatTensor(all.slice_rows(0, all.rows() - 1));
  }
  IntTensor all_gather_int(const IntTensor&) const { throw std::runtime_error("not implemented"); }
  // The sent counts.
  VariableTensorExchange<FloatTensor> all_to_all_v_float(
      const FloatTensor& x, std::span<const std::int64_t> counts) const {
    auto exchange = right_.all_to_all_v_float(x, counts);
    exchange.receive_counts.assign(counts.begin(), counts.end());
    return exchange;
  }
  VariableTensorExchange<IntTensor> all_to_all_v_int(const IntTensor& x,
                                                     std::span<const std::int64_t> counts) const {
    return right_.all_to_all_v_int(x, counts);
  }
  Faulty group(std::span<const int> ranks) const { return Faulty(right_.group(ranks)); }
  friend std::ostream& operator<<(std::ostream& out, const Faulty& c) { return out << c.right_; }

 private:
  sim::Communicator right_;
};

std::string verdict_on(const std::function<void(Recorded<Faulty>)>& program,
                       std::int64_t most_elements = 1024) {
  RecordingOptions options{.ranks = 2, .backend = "faulty"};
  options.most_elements = most_elements;
  Recording recording(options);
  sim::World(2).run([&](sim::Communicator c) {
    const int rank = c.rank();
    program(Recorded<Faulty>(Faulty(std::move(c)), recording, rank));
  });
  recording.finish();
  const auto divergence = judge_received(read_case(write_case(recording.cases().at(0))));
  return divergence ? divergence->aspect + ": " + divergence->explanation : "holds";
}

TEST(Recording, OfAWrongBackendIsExplained) {
  EXPECT_TRUE(verdict_on([](Recorded<Faulty> c) {
                c.all_reduce_sum(ramp(2, 2, 1));
              }).starts_with("sum: step 0, all_reduce_sum, rank 1: row 1, element [1, 1]"));
  EXPECT_TRUE(verdict_on([](Recorded<Faulty> c) {
                c.broadcast_float(ramp(2, 2, 1), 0);
              }).starts_with("shape: step 0, broadcast_float, rank 0"));
  EXPECT_TRUE(verdict_on([](Recorded<Faulty> c) {
                EXPECT_THROW(c.all_gather_int(IntTensor::of<std::int32_t>({1}, {7})),
                             std::runtime_error);
              }).find("not implemented") != std::string::npos);
}

TEST(Recording, OfAWrongBackendIsExplainedOnASampleToo) {
  EXPECT_TRUE(verdict_on([](Recorded<Faulty> c) { c.all_reduce_sum(ramp(50, 50, 1)); }, 10)
                  .starts_with("sum: step 0, all_reduce_sum, rank 1: element 9"));
  EXPECT_NE(verdict_on([](Recorded<Faulty> c) { c.broadcast_float(ramp(50, 50, 1), 0); }, 10)
                .find("the result was f32 [49, 50], where f32 [50, 50] is due (before sampling)"),
            std::string::npos);
  EXPECT_NE(verdict_on(
                [](Recorded<Faulty> c) {
                  const std::vector<std::int64_t> counts = {30, 20 + c.rank()};
                  c.all_to_all_v_float(ramp(50 + c.rank(), 1, 1), counts);
                },
                10)
                .find("the receive counts were [30, 20], where [30, 30] are due (before sampling)"),
            std::string::npos);
}

TEST(Recording, BeginsAnotherCaseWhenOneIsFullAndEndsWhenAllAre) {
  RecordingOptions options{.ranks = 2};
  options.most_case_bytes = 60;
  options.most_bytes = 200;
  Recording recording(options);
  const auto cases = recorded(
      options,
      [](Ranks ranks) {
        for (int i = 0; i < 20; ++i) ranks.all_reduce_sum(ramp(1, 2, static_cast<float>(i)));
      },
      &recording);
  // A step has 2 tensors of 8 bytes on either rank.
  EXPECT_EQ(recording.steps(), 7);
  EXPECT_EQ(recording.left_out(), 13);
  ASSERT_EQ(cases.size(), 4u);
  for (const Case& c : cases) EXPECT_FALSE(judge_received(c).has_value());
}

TEST(Recording, SaysWhenCallsFitTogetherInNoOrder) {
  Recording recording({.ranks = 2});
  const auto call = [](std::vector<int> group) {
    RecordedCall call;
    call.group = std::move(group);
    call.input = FloatTensor::zeros(DType::f32, {1});
    return call;
  };
  recording.add(0, call({}));
  recording.add(1, call({1, 0}));
  EXPECT_THROW(recording.finish(), Error);
  EXPECT_THROW(recording.add(2, call({})), InvalidArgument);
  EXPECT_THROW(Recording({.ranks = 0}), InvalidArgument);
}

// --- The kit within a test suite

class WrongBackend final : public ThreadBackend {
 public:
  BackendInfo info() const override { return {.name = "wrong", .offers_groups = false}; }
  void launch(int ranks, const RankBody& body) override {
    sim::World(ranks).run([&](sim::Communicator c) {
      const int rank = c.rank();
      SubjectOf<Faulty> subject(Faulty(std::move(c)));
      body(rank, subject);
    });
  }
};

TEST(Check, OfARightBackendHolds) {
  testing::SimulatedBackend backend;
  const CheckResult result = check(backend, {.verify = {.most_ranks = 3, .cases = 200}});
  EXPECT_TRUE(result.holds) << result.report;
  EXPECT_EQ(result.files.size(), 0u);
}

TEST(Check, LeavesACaseThatShowsTheFaultWithoutTheBackend) {
  WrongBackend backend;
  CheckOptions options;
  options.verify.most_ranks = 3;
  options.verify.cases = 200;
  options.verify.properties = {"broadcast_float"};
  options.directory = ::testing::TempDir();
  const CheckResult result = check(backend, options);
  EXPECT_FALSE(result.holds);
  ASSERT_EQ(result.files.size(), 1u);
  EXPECT_NE(result.report.find("lockstep replay " + result.files[0]), std::string::npos)
      << result.report;

  ::setenv("LOCKSTEP_CASE", result.files[0].c_str(), 1);
  const CheckResult again = check(backend, options);
  testing::SimulatedBackend right;
  const CheckResult held = check(right, options);
  ::unsetenv("LOCKSTEP_CASE");
  EXPECT_FALSE(again.holds);
  EXPECT_NE(again.report.find("wrong differs from the oracle"), std::string::npos) << again.report;
  EXPECT_TRUE(held.holds) << held.report;
}

}  // namespace
}  // namespace lockstep::kit
