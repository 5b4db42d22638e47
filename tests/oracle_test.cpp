#include <lockstep/oracle.hpp>

#include <cmath>
#include <limits>

#include "expect.hpp"

namespace lockstep::reference {
namespace {

using testing::tensor;
using Counts = std::vector<std::vector<std::int64_t>>;

// The results, or a test failure that says what the breach was.
template <class T>
std::vector<T> results_of(const Outcome<T>& outcome, std::size_t ranks) {
  if (outcome.has_results()) return outcome.results();
  ADD_FAILURE() << outcome.breach().explanation;
  return std::vector<T>(ranks);
}

TEST(AllGather, PutsShardsInRankOrder) {
  const std::vector<FloatTensor> inputs = {tensor<float>({2, 2}, {1, 2, 3, 4}),
                                           tensor<float>({2, 2}, {5, 6, 7, 8}),
                                           tensor<float>({2, 2}, {9, 10, 11, 12})};
  for (const FloatTensor& gathered : results_of(all_gather(inputs), 3)) {
    EXPECT_TENSOR(tensor<float>({6, 2}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}), gathered);
  }
}

TEST(AllGather, KeepsEveryBit) {
  const std::vector<IntTensor> nans = {tensor<std::uint32_t>({2}, {0x7f800001, 0xffc12345}),
                                       tensor<std::uint32_t>({2}, {0x80000000, 0x00000001})};
  std::vector<FloatTensor> inputs;
  for (const IntTensor& bits : nans) {
    inputs.push_back(FloatTensor::from_bytes(DType::f32, {2}, bits.bytes()));
  }
  const std::uint32_t expected[] = {0x7f800001, 0xffc12345, 0x80000000, 0x00000001};
  for (const FloatTensor& gathered : results_of(all_gather(inputs), 2)) {
    EXPECT_TENSOR(FloatTensor::from_bytes(DType::f32, {4}, std::as_bytes(std::span(expected))),
                  gathered);
  }
}

// pytorch/pytorch#85234: a zero middle axis killed the process.
TEST(AllGather, OfShardsWithAZeroAxisIsEmptyAndShaped) {
  const std::vector<FloatTensor> middle(4, FloatTensor::zeros(DType::f32, {1, 0, 2}));
  for (const FloatTensor& gathered : results_of(all_gather(middle), 4)) {
    EXPECT_TENSOR(FloatTensor::zeros(DType::f32, {4, 0, 2}), gathered);
  }
  const std::vector<FloatTensor> leading(4, FloatTensor::zeros(DType::f32, {0, 1, 2}));
  for (const FloatTensor& gathered : results_of(all_gather(leading), 4)) {
    EXPECT_TENSOR(FloatTensor::zeros(DType::f32, {0, 1, 2}), gathered);
  }
}

TEST(AllGather, OfLargeShardsIsComputedOnceAndSharedByAllRanks) {
  std::vector<IntTensor> inputs;
  constexpr std::int64_t rows = 700'001;  // not a multiple of anything
  for (std::int64_t rank = 0; rank < 3; ++rank) {
    IntTensor shard = IntTensor::uninitialized(DType::i64, {rows});
    for (std::int64_t i = 0; i < rows; ++i) {
      shard.mutable_values<std::int64_t>()[static_cast<std::size_t>(i)] = rank * rows + i;
    }
    inputs.push_back(shard);
  }
  const std::vector<IntTensor> gathered = results_of(all_gather(inputs), 3);
  ASSERT_EQ(gathered[0].rows(), 3 * rows);
  std::int64_t misplaced = 0;
  for (std::int64_t i = 0; i < 3 * rows; ++i) {
    misplaced += gathered[0].values<std::int64_t>()[static_cast<std::size_t>(i)] != i;
  }
  EXPECT_EQ(misplaced, 0);
  EXPECT_EQ(gathered[0].data(), gathered[1].data());
  EXPECT_EQ(gathered[0].data(), gathered[2].data());
}

TEST(ReduceScatterSum, GivesEachRankItsOwnRowsOfTheSum) {
  const std::vector<FloatTensor> inputs = {tensor<float>({4, 2}, {1, 2, 3, 4, 5, 6, 7, 8}),
                                           tensor<float>({4, 2}, {10, 20, 30, 40, 50, 60, 70, 80})};
  const std::vector<FloatTensor> outputs = results_of(reduce_scatter_sum(inputs), 2);
  EXPECT_TENSOR(tensor<float>({2, 2}, {11, 22, 33, 44}), outputs[0]);
  EXPECT_TENSOR(tensor<float>({2, 2}, {55, 66, 77, 88}), outputs[1]);
}

TEST(ReduceScatterSum, OfNoRowsIsNoRows) {
  const std::vector<FloatTensor> inputs(3, FloatTensor::zeros(DType::f16, {0, 4}));
  for (const FloatTensor& output : results_of(reduce_scatter_sum(inputs), 3)) {
    EXPECT_TENSOR(FloatTensor::zeros(DType::f16, {0, 4}), output);
  }
}

TEST(AllReduceSum, KeepsATensorWithoutAxes) {
  const std::vector<FloatTensor> inputs = {tensor<double>({}, {1}), tensor<double>({}, {10}),
                                           tensor<double>({}, {100})};
  for (const FloatTensor& output : results_of(all_reduce_sum(inputs), 3)) {
    EXPECT_TENSOR(tensor<double>({}, {111}), output);
  }
}

TEST(AllReduceSum, FollowsTheRuleItIsAskedFor) {
  // 2^24 + 1 + 1: each step rounds away the one, the exact sum does not.
  const std::vector<FloatTensor> inputs = {tensor<float>({1}, {16777216}), tensor<float>({1}, {1}),
                                           tensor<float>({1}, {1})};
  EXPECT_TENSOR(tensor<float>({1}, {16777218}),
                results_of(all_reduce_sum(inputs, SumRule::exact), 3)[1]);
  EXPECT_TENSOR(tensor<float>({1}, {16777216}),
                results_of(all_reduce_sum(inputs, SumRule::rank_order), 3)[1]);
}

TEST(AllReduceSum, OfManyElementsDoesNotDependOnTheirPosition) {
  std::vector<FloatTensor> inputs;
  constexpr std::size_t count = 300'007;
  for (int rank = 0; rank < 3; ++rank) {
    FloatTensor x = FloatTensor::uninitialized(DType::f32, {count});
    for (std::size_t i = 0; i < count; ++i) {
      x.mutable_values<float>()[i] = std::ldexp(1.0f + static_cast<float>(i % 97), rank * 13);
    }
    inputs.push_back(x);
  }
  const FloatTensor whole = results_of(all_reduce_sum(inputs), 3)[0];
  for (std::int64_t i : {0, 1, 63, 4096, 150'000, 300'006}) {
    std::vector<FloatTensor> single;
    for (const FloatTensor& input : inputs) single.push_back(input.slice_rows(i, i + 1));
    EXPECT_TENSOR(results_of(all_reduce_sum(single), 3)[0], whole.slice_rows(i, i + 1));
  }
}

TEST(Broadcast, GivesTheRootsElementsWhateverTheOthersHold) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<FloatTensor> inputs = {tensor<float>({2}, {std::nanf(""), infinity}),
                                           tensor<float>({2}, {1, 2}),
                                           tensor<float>({2}, {-infinity, 3})};
  const std::vector<std::int64_t> roots(3, 1);
  for (const FloatTensor& output : results_of(broadcast(inputs, roots), 3)) {
    EXPECT_TENSOR(tensor<float>({2}, {1, 2}), output);
  }
}

TEST(Broadcast, UsesEveryRoot) {
  std::vector<FloatTensor> inputs;
  for (int rank = 0; rank < 4; ++rank) {
    inputs.push_back(tensor<float>({1}, {10.0f * static_cast<float>(rank)}));
  }
  for (std::int64_t root = 0; root < 4; ++root) {
    const std::vector<std::int64_t> roots(4, root);
    for (const FloatTensor& output : results_of(broadcast(inputs, roots), 4)) {
      EXPECT_TENSOR(tensor<float>({1}, {10.0f * static_cast<float>(root)}), output);
    }
  }
}

// marin-community/marin#4867, with rows tagged 100 * source + 10 * destination + k.
TEST(AllToAllV, PutsBlocksUnderTheirSource) {
  const std::vector<IntTensor> inputs = {tensor<std::int32_t>({3, 1}, {0, 10, 11}),
                                         tensor<std::int32_t>({4, 1}, {120, 121, 122, 123}),
                                         tensor<std::int32_t>({4, 1}, {200, 201, 210, 220})};
  const Counts counts = {{1, 2, 0}, {0, 0, 4}, {2, 1, 1}};
  const auto outputs = results_of(all_to_all_v(inputs, counts), 3);
  EXPECT_TENSOR(tensor<std::int32_t>({3, 1}, {0, 200, 201}), outputs[0].value);
  EXPECT_TENSOR(tensor<std::int32_t>({3, 1}, {10, 11, 210}), outputs[1].value);
  EXPECT_TENSOR(tensor<std::int32_t>({5, 1}, {120, 121, 122, 123, 220}), outputs[2].value);
  EXPECT_EQ(outputs[0].receive_counts, (std::vector<std::int64_t>{1, 0, 2}));
  EXPECT_EQ(outputs[1].receive_counts, (std::vector<std::int64_t>{2, 0, 1}));
  EXPECT_EQ(outputs[2].receive_counts, (std::vector<std::int64_t>{0, 4, 1}));
}

TEST(AllToAllV, GivesARankThatReceivesNothingAnEmptyShapedTensor) {
  const std::vector<FloatTensor> inputs = {tensor<float>({3, 2}, {1, 2, 3, 4, 5, 6}),
                                           tensor<float>({2, 2}, {7, 8, 9, 10})};
  const auto outputs = results_of(all_to_all_v(inputs, Counts{{3, 0}, {2, 0}}), 2);
  EXPECT_TENSOR(tensor<float>({5, 2}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}), outputs[0].value);
  EXPECT_TENSOR(FloatTensor::zeros(DType::f32, {0, 2}), outputs[1].value);
  EXPECT_EQ(outputs[1].receive_counts, (std::vector<std::int64_t>{0, 0}));
}

TEST(WorldOfOne, MovesItsTensorBitForBit) {
  const std::uint32_t bits[] = {0x7f800001, 0x80000000, 0xff800000};  // signalling NaN, -0, -inf
  const std::vector<FloatTensor> x = {
      FloatTensor::from_bytes(DType::f32, {3}, std::as_bytes(std::span(bits)))};
  for (SumRule rule : {SumRule::exact, SumRule::rank_order}) {
    EXPECT_TENSOR(x[0], results_of(all_reduce_sum(x, rule), 1)[0]);
    EXPECT_TENSOR(x[0], results_of(reduce_scatter_sum(x, rule), 1)[0]);
  }
  EXPECT_TENSOR(x[0], results_of(all_gather(x), 1)[0]);
  EXPECT_TENSOR(x[0], results_of(broadcast(x, std::vector<std::int64_t>{0}), 1)[0]);
  const auto exchanged = results_of(all_to_all_v(x, Counts{{3}}), 1)[0];
  EXPECT_TENSOR(x[0], exchanged.value);
  EXPECT_EQ(exchanged.receive_counts, std::vector<std::int64_t>{3});
}

TEST(Oracle, GivesTheBreachInsteadOfResults) {
  const std::vector<FloatTensor> inputs = {tensor<float>({2}, {1, 2}), tensor<float>({3}, {1, 2, 3})};
  const Outcome<FloatTensor> outcome = all_gather(inputs);
  ASSERT_FALSE(outcome.has_results());
  EXPECT_EQ(outcome.breach().violation, Violation::shape);
  EXPECT_EQ(outcome.breach().operation, Operation::all_gather_float);
}

TEST(Oracle, LeavesItsInputsAlone) {
  const std::vector<FloatTensor> inputs = {tensor<float>({2}, {1, 2}), tensor<float>({2}, {3, 4})};
  std::vector<FloatTensor> outputs = results_of(all_reduce_sum(inputs), 2);
  outputs[0].mutable_values<float>()[0] = 99;
  std::vector<FloatTensor> copies =
      results_of(broadcast(inputs, std::vector<std::int64_t>{0, 0}), 2);
  copies[1].mutable_values<float>()[0] = 77;
  EXPECT_TENSOR(tensor<float>({2}, {1, 2}), inputs[0]);
  EXPECT_TENSOR(tensor<float>({2}, {3, 4}), inputs[1]);
  EXPECT_TENSOR(tensor<float>({2}, {4, 6}), outputs[1]);
}

}  // namespace
}  // namespace lockstep::reference
