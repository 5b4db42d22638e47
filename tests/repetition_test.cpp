#include <algorithm>
#include <functional>
#include <memory>

#include <gtest/gtest.h>

#include <lockstep/kit/case_file.hpp>
#include <lockstep/kit/program_oracle.hpp>
#include <lockstep/kit/verification.hpp>

#include "shrunk.hpp"
#include "simulated_backend.hpp"
#include "stand_in.hpp"
#include "watchdog.hpp"

namespace lockstep::kit {
namespace {

std::string gather_of_two(const std::string& repeat) {
  return R"({"lockstep_case": 1, "world": 2, "steps": [{"op": "all_gather_int", "repeat": )" +
         repeat + R"(, "inputs": [
    {"dtype": "i32", "shape": [1], "values": [5]}, {"dtype": "i32", "shape": [1], "values": [6]}]}]})";
}

TEST(Repetition, IsReadAndWritten) {
  const Case c = read_case(gather_of_two("70000"));
  EXPECT_EQ(c.steps[0].repeat, 70000);
  EXPECT_EQ(read_case(write_case(c)).steps[0].repeat, 70000);
  EXPECT_EQ(write_case(read_case(gather_of_two("1"))).find("repeat"), std::string::npos);
}

TEST(Repetition, OutOfRangeIsRefused) {
  for (const std::string repeat : {"0", "-1", "1000001", "1.5", "null"}) {
    EXPECT_THROW((void)read_case(gather_of_two(repeat)), CaseFileError) << repeat;
  }
}

TEST(Repetition, MayTakeLongerBeforeItCountsAsHanging) {
  EXPECT_EQ(allowance(read_case(gather_of_two("9999")), 60), 60);
  EXPECT_EQ(allowance(read_case(gather_of_two("10000")), 60), 120);
  EXPECT_EQ(allowance(read_case(gather_of_two("65537")), 0.5), 3.5);
}

TEST(Repetition, ExpectsOneOutcome) {
  const Case c = with_expected(read_case(gather_of_two("3")));
  ASSERT_EQ(c.steps[0].expected.size(), 2u);
  EXPECT_EQ(c.steps[0].expected[1].value.values<std::int32_t>()[1], 6);
}

// Right but for what `spoil(calls before, result)` does on rank 1.
class Spoiled final : public StandIn {
 public:
  using Spoil = std::function<void(int calls, IntTensor& result)>;
  Spoiled(Subject& right, Spoil spoil) : StandIn(right), spoil_(std::move(spoil)) {}

  IntTensor all_gather_int(const IntTensor& x) override {
    IntTensor result = right_.all_gather_int(x);
    result = IntTensor::from_bytes(result.dtype(), result.shape(), result.bytes());
    spoil_(calls_++, result);
    return result;
  }

 private:
  Spoil spoil_;
  int calls_ = 0;
};

class SpoiledBackend final : public ThreadBackend {
 public:
  explicit SpoiledBackend(Spoiled::Spoil spoil) : spoil_(std::move(spoil)) {}
  BackendInfo info() const override {
    BackendInfo info;
    info.name = "spoiled";
    info.offers_groups = false;
    return info;
  }
  void launch(int ranks, const RankBody& body) override {
    right_.launch(ranks, [&](int rank, Subject& right) {
      Spoiled subject(
          right, rank == 1 ? spoil_ : [](int, IntTensor&) {});
      body(rank, subject);
    });
  }

 private:
  testing::SimulatedBackend right_;
  Spoiled::Spoil spoil_;
};

// From its third call on, rank 1 gets another last element in every call.
SpoiledBackend wrong_from_the_third_call() {
  return SpoiledBackend([](int calls, IntTensor& result) {
    if (calls >= 2) result.mutable_values<std::int32_t>().back() += calls;
  });
}

TEST(Repetition, ShowsTheFirstCallThatWentOtherwise) {
  SpoiledBackend backend = wrong_from_the_third_call();
  const auto divergence = run_and_judge(backend, read_case(gather_of_two("5")));
  ASSERT_TRUE(divergence.has_value());
  EXPECT_EQ(divergence->explanation,
            "step 0, all_gather_int, rank 1, call 3 of 5: element 1 of i32 [2]\n"
            "  expected 6 (0x00000006)\n"
            "  received 8 (0x00000008)");
}

TEST(Repetition, ThatGoesWellHolds) {
  SpoiledBackend backend = wrong_from_the_third_call();
  EXPECT_FALSE(run_and_judge(backend, read_case(gather_of_two("2"))).has_value());
}

TEST(Repetition, SeesAnEarlierResultChange) {
  // The second call writes into what the first one returned.
  IntTensor first;
  SpoiledBackend backend([&](int calls, IntTensor& result) {
    if (calls == 0) first = result;
    if (calls == 1) *const_cast<std::byte*>(first.data()) = std::byte{9};
  });
  const auto divergence = run_and_judge(backend, read_case(gather_of_two("2")));
  ASSERT_TRUE(divergence.has_value());
  EXPECT_EQ(divergence->aspect, "result");
}

TEST(Repetition, ShrinksToTheCallThatFails) {
  int tried = 0;
  const Case least = shrunk(read_case(gather_of_two("66000")), [&](const Case& c) {
    ++tried;
    return c.steps[0].repeat >= 65537;
  });
  EXPECT_EQ(least.steps[0].repeat, 65537);
  EXPECT_EQ(least.world, 1);
  EXPECT_LT(tried, 400);
}

// A call whose counts ask for 2^32 rows more than there are.
TEST(Shrinking, LeavesWrongCountsAsWrongAsTheyWere) {
  const Case c = read_case(R"({"lockstep_case": 1, "world": 3, "steps": [
    {"op": "all_to_all_v_int", "inputs": [
      {"dtype": "i32", "shape": [4], "values": [1, 2, 3, 4], "send_counts": [1, 4294967297, 2]},
      {"dtype": "i32", "shape": [2], "values": [5, 6], "send_counts": [0, 1, 1]},
      {"dtype": "i32", "shape": [3], "values": [7, 8, 9], "send_counts": [1, 1, 1]}]}]})");
  const Case least = shrunk(c, [](const Case& candidate) {
    return std::ranges::any_of(candidate.steps[0].inputs, [](const auto& input) {
      std::int64_t sum = 0;
      for (std::int64_t count : input->send_counts) sum += count;
      return sum - input->tensor.rows() == std::int64_t{1} << 32;
    });
  });
  // The wrong count is one that rank 0 has for rank 1, so both stay.
  EXPECT_EQ(least.world, 2);
  EXPECT_EQ(least.steps[0].inputs[0]->tensor.rows(), 0);
  EXPECT_EQ(least.steps[0].inputs[0]->send_counts,
            (std::vector<std::int64_t>{0, std::int64_t{1} << 32}));
}

TEST(Shrinking, FindsALengthQuickly) {
  const Case c = read_case(R"({"lockstep_case": 1, "world": 1, "steps": [
    {"op": "all_to_all_v_int", "inputs": [
      {"dtype": "u8", "shape": [3], "values": [1, 2, 3], "send_counts": [3]}]}]})");
  Case large = c;
  large.steps[0].inputs[0]->tensor = Tensor::zeros(DType::u8, Shape{60000});
  large.steps[0].inputs[0]->send_counts = {60000};
  int tried = 0;
  const Case least = shrunk(large, [&](const Case& candidate) {
    ++tried;
    return candidate.steps[0].inputs[0]->tensor.rows() > 32767;
  });
  EXPECT_EQ(least.steps[0].inputs[0]->tensor.rows(), 32768);
  EXPECT_LT(tried, 800);
}

TEST(Shrinking, JoinsAxesThatItCannotShorten) {
  const Case c = read_case(R"({"lockstep_case": 1, "world": 1, "steps": [
    {"op": "all_gather_int", "inputs": [
      {"dtype": "i32", "shape": [2, 3, 2], "values": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]}]}]})");
  const Case least = shrunk(c, [](const Case& candidate) {
    return candidate.steps[0].inputs[0]->tensor.elements() >= 12;
  });
  EXPECT_EQ(least.steps[0].inputs[0]->tensor.shape(), Shape{12});
}

}  // namespace
}  // namespace lockstep::kit
