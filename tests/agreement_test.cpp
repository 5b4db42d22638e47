#include <lockstep/agreement.hpp>

#include <gtest/gtest.h>

#include <vector>

namespace lockstep {
namespace {

using Counts = std::vector<std::int64_t>;

Signature call(Operation operation, DType dtype, Shape shape) {
  return {operation, dtype, std::move(shape), 0, {}};
}
Signature broadcast(std::int64_t root, Shape shape = {1}) {
  return {Operation::broadcast_float, DType::f32, std::move(shape), root, {}};
}
Signature exchange(Shape shape, const Counts& counts, DType dtype = DType::f32) {
  return {Operation::all_to_all_v_float, dtype, std::move(shape), 0, counts};
}

#define EXPECT_BREACH(signatures, expected_violation, expected_explanation) \
  do {                                                                      \
    const std::optional<Breach> breach = find_breach(signatures);           \
    ASSERT_TRUE(breach.has_value());                                        \
    EXPECT_EQ(breach->violation, expected_violation) << breach->explanation; \
    EXPECT_EQ(breach->explanation, expected_explanation);                   \
  } while (false)

constexpr std::int64_t huge = std::int64_t{1} << 62;

TEST(Agreement, OfEqualCallsIsNoBreach) {
  for (Operation operation : {Operation::all_gather_float, Operation::reduce_scatter_sum,
                              Operation::all_reduce_sum, Operation::broadcast_float}) {
    const std::vector<Signature> calls(2, call(operation, DType::f32, {4, 3}));
    EXPECT_EQ(find_breach(calls), std::nullopt) << operation;
  }
}

TEST(Agreement, OnDifferentOperationsNamesThemAll) {
  const std::vector<Signature> calls = {call(Operation::all_reduce_sum, DType::f32, {2}),
                                        call(Operation::all_gather_float, DType::f64, {3}),
                                        call(Operation::all_reduce_sum, DType::f32, {2})};
  EXPECT_BREACH(calls, Violation::operation,
                "every rank must call the same operation; ranks 0, 2 passed all_reduce_sum of f32 "
                "[2]; rank 1 passed all_gather_float of f64 [3]");
}

TEST(Agreement, ReportsTheEarliestViolationOfSeveral) {
  // dtype, axes, shape and leading axis are all wrong here.
  const std::vector<Signature> calls = {call(Operation::reduce_scatter_sum, DType::f32, {}),
                                        call(Operation::reduce_scatter_sum, DType::f16, {3})};
  EXPECT_BREACH(calls, Violation::dtype,
                "every rank must pass the same dtype; rank 0 passed f32 []; rank 1 passed f16 [3]");
}

TEST(Agreement, OnDifferentNumbersOfAxes) {
  const std::vector<Signature> calls = {call(Operation::all_reduce_sum, DType::f32, {2}),
                                        call(Operation::all_reduce_sum, DType::f32, {2, 1})};
  EXPECT_BREACH(calls, Violation::axes,
                "every rank must pass the same number of axes; rank 0 passed f32 [2]; rank 1 "
                "passed f32 [2, 1]");
}

TEST(Agreement, OnDifferentRows) {
  const std::vector<Signature> calls = {call(Operation::all_gather_float, DType::f32, {0, 3}),
                                        call(Operation::all_gather_float, DType::f32, {3, 3})};
  EXPECT_BREACH(calls, Violation::shape,
                "every rank must pass the same shape; rank 0 passed f32 [0, 3]; rank 1 passed f32 "
                "[3, 3]");
}

TEST(Agreement, OfAnExchangeIsOnTrailingAxesOnly) {
  const Counts two = {1, 1}, three = {0, 3};
  EXPECT_EQ(find_breach(std::vector{exchange({2, 5}, two), exchange({3, 5}, three)}), std::nullopt);
  EXPECT_BREACH((std::vector{exchange({2, 5}, two), exchange({3, 4}, three)}), Violation::shape,
                "every rank must pass the same trailing axes; rank 0 passed f32 [2, 5]; rank 1 "
                "passed f32 [3, 4]");
}

TEST(Agreement, OnATensorWithoutAxesWhereRowsAreNeeded) {
  EXPECT_BREACH((std::vector(2, call(Operation::all_gather_float, DType::f32, {}))),
                Violation::leading_axis,
                "a tensor without axes has no rows to gather; ranks 0-1 passed f32 []");
  EXPECT_BREACH((std::vector(2, call(Operation::reduce_scatter_sum, DType::f32, {}))),
                Violation::leading_axis,
                "a tensor without axes has no rows to divide; ranks 0-1 passed f32 []");
  EXPECT_EQ(find_breach(std::vector(2, call(Operation::all_reduce_sum, DType::f32, {}))),
            std::nullopt);
  EXPECT_EQ(find_breach(std::vector(2, broadcast(1, {}))), std::nullopt);
}

TEST(Agreement, OnRowsThatDoNotDivide) {
  EXPECT_BREACH((std::vector(3, call(Operation::reduce_scatter_sum, DType::f32, {4, 2}))),
                Violation::indivisible_rows,
                "4 rows do not divide among 3 ranks; ranks 0-2 passed f32 [4, 2]");
  EXPECT_EQ(find_breach(std::vector(3, call(Operation::reduce_scatter_sum, DType::f32, {0, 2}))),
            std::nullopt);
}

TEST(Agreement, OnARootOutsideTheWorldComesBeforeDifferentRoots) {
  EXPECT_BREACH((std::vector{broadcast(0), broadcast(3), broadcast(-1)}),
                Violation::root_out_of_range,
                "the root must be one of ranks 0 to 2; rank 1 passed root 3; rank 2 passed root -1");
  EXPECT_BREACH((std::vector{broadcast(0), broadcast(0), broadcast(1)}), Violation::roots_differ,
                "every rank must name the same root; ranks 0-1 passed root 0; rank 2 passed root 1");
}

TEST(Agreement, OnCountsOfTheWrongLength) {
  const Counts one = {3}, two = {1, 1};
  EXPECT_BREACH((std::vector{exchange({3, 2}, one), exchange({2, 2}, two)}),
                Violation::counts_length,
                "send_counts must have one entry for each of the 2 ranks; rank 0 passed 1 counts");
}

TEST(Agreement, OnCountsThatDoNotAddUp) {
  const Counts two = {1, 1}, negative = {3, -1}, enormous = {largest_size, 2};
  EXPECT_BREACH((std::vector{exchange({3, 2}, two), exchange({2, 2}, two)}), Violation::counts_sum,
                "send_counts must be zero or more and add up to the rows; rank 0 passed counts that "
                "add up to 2 for a tensor of 3 rows");
  EXPECT_BREACH((std::vector{exchange({2, 2}, two), exchange({2, 2}, negative)}),
                Violation::counts_sum,
                "send_counts must be zero or more and add up to the rows; rank 1 passed a negative "
                "count, -1 rows for rank 1");
  EXPECT_BREACH((std::vector{exchange({2, 2}, two), exchange({2, 2}, enormous)}),
                Violation::counts_sum,
                "send_counts must be zero or more and add up to the rows; rank 1 passed counts that "
                "add up to more than 2^63-1 for a tensor of 2 rows");
}

TEST(Agreement, OnAZeroTrailingAxisOfAnExchange) {
  const Counts counts = {1, 0};
  EXPECT_BREACH((std::vector(2, exchange({1, 0, 2}, counts))), Violation::zero_trailing_axis,
                "the trailing axes of an exchange must not be zero; ranks 0-1 passed f32 [1, 0, 2]");
  // Everywhere else zero axes are ordinary.
  EXPECT_EQ(find_breach(std::vector(2, call(Operation::all_gather_float, DType::f32, {1, 0, 2}))),
            std::nullopt);
}

TEST(Agreement, OnAResultTooLargeToExist) {
  // Every shard can exist, being empty, but the axis of the result cannot.
  EXPECT_BREACH((std::vector(2, call(Operation::all_gather_float, DType::f32, {huge, 0}))),
                Violation::size_overflow,
                "2 shards of f32 [4611686018427387904, 0] make a tensor beyond 2^63-1 rows, "
                "elements or bytes");
  EXPECT_BREACH((std::vector(3, call(Operation::all_gather_int, DType::u8, {huge / 2, 2}))),
                Violation::size_overflow,
                "3 shards of u8 [2305843009213693952, 2] make a tensor beyond 2^63-1 rows, elements "
                "or bytes");
  const Counts all_to_one = {0, huge};
  EXPECT_BREACH((std::vector(2, exchange({huge}, all_to_one, DType::f32))),
                Violation::size_overflow,
                "rank 1 would receive a tensor beyond 2^63-1 rows, elements or bytes");
}

// open-mpi/ompi#9616: offsets beyond 2^31 and 2^32 must not wrap.
TEST(Agreement, OnLargeResultsThatCanExistIsNoBreach) {
  const std::int64_t rows = 2147483664;
  const Counts second = {0, rows}, none = {0, 0};
  const std::vector<Signature> calls = {exchange({rows, 8}, second), exchange({0, 8}, none)};
  EXPECT_EQ(find_breach(calls), std::nullopt);
  EXPECT_EQ(result_shape(calls, 0), (Shape{0, 8}));
  EXPECT_EQ(result_shape(calls, 1), (Shape{rows, 8}));
}

TEST(Agreement, NamesAtMostEightDifferentValues) {
  std::vector<Signature> calls;
  for (int rank = 0; rank < 1000; ++rank) calls.push_back(broadcast(rank));
  const std::optional<Breach> breach = find_breach(calls);
  ASSERT_TRUE(breach);
  EXPECT_EQ(breach->violation, Violation::roots_differ);
  EXPECT_LT(breach->explanation.size(), 400u);
  EXPECT_NE(breach->explanation.find("and 992 other values"), std::string::npos);
}

TEST(Agreement, IsCheckedInAWorldOfOne) {
  EXPECT_BREACH((std::vector{broadcast(1)}), Violation::root_out_of_range,
                "the root must be one of ranks 0 to 0; rank 0 passed root 1");
}

}  // namespace
}  // namespace lockstep
