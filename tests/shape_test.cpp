#include <gtest/gtest.h>

#include <lockstep/shape.hpp>

namespace lockstep {
namespace {

TEST(Shape, PrintsItsAxes) {
  EXPECT_EQ(to_string(Shape{}), "[]");
  EXPECT_EQ(to_string(Shape{3}), "[3]");
  EXPECT_EQ(to_string(Shape{2, 0, 5}), "[2, 0, 5]");
}

TEST(Shape, CountsElements) {
  EXPECT_EQ(Shape{}.elements(), 1);
  EXPECT_EQ((Shape{2, 3, 4}.elements()), 24);
  EXPECT_EQ((Shape{2, 0, 4}.elements()), 0);
}

TEST(Shape, WithAZeroAxisIsEmptyHoweverLongTheOthersAre) {
  const std::int64_t huge = std::int64_t{1} << 62;
  EXPECT_EQ((Shape{huge, huge, 0}.elements()), 0);
  EXPECT_EQ((Shape{0, huge, huge}.elements()), 0);
  EXPECT_EQ((Shape{huge, 2}.elements()), std::nullopt);
  EXPECT_EQ((Shape{huge, 1}.elements()), huge);
}

TEST(Shape, HoldsMoreAxesThanFitInside) {
  const Shape shape{1, 2, 3, 4, 5, 6, 7, 8, 9};
  Shape copy = shape;
  EXPECT_EQ(copy, shape);
  EXPECT_EQ(copy.with_rows(10), (Shape{10, 2, 3, 4, 5, 6, 7, 8, 9}));
  const Shape moved = std::move(copy);
  EXPECT_EQ(moved, shape);
  EXPECT_TRUE(copy.empty());  // NOLINT: a moved-from shape has no axes
  copy = moved;
  EXPECT_EQ(copy, shape);
  copy = Shape{1};
  EXPECT_EQ(copy, Shape{1});
}

TEST(Shape, DiffersInNumberAndLengthOfAxes) {
  EXPECT_NE((Shape{2, 3}), (Shape{3, 2}));
  EXPECT_NE((Shape{2, 3}), (Shape{2, 3, 1}));
  EXPECT_NE(Shape{}, Shape{1});
}

TEST(CheckedArithmetic, RefusesWhatExceedsTheLargestSize) {
  EXPECT_EQ(checked_add(largest_size - 1, 1), largest_size);
  EXPECT_EQ(checked_add(largest_size, 1), std::nullopt);
  EXPECT_EQ(checked_multiply(std::int64_t{1} << 31, std::int64_t{1} << 31), std::int64_t{1} << 62);
  EXPECT_EQ(checked_multiply(std::int64_t{1} << 32, std::int64_t{1} << 31), std::nullopt);
}

}  // namespace
}  // namespace lockstep
