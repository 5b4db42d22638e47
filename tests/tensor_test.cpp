#include <lockstep/tensor.hpp>

#include <cstring>
#include <numeric>

#include <lockstep/error.hpp>

#include "expect.hpp"

namespace lockstep {
namespace {

using testing::tensor;

std::vector<float> counting(int count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), 0.0f);
  return values;
}

TEST(Tensor, KnowsItsRowsElementsAndBytes) {
  const FloatTensor x = tensor<double>({3, 2}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(x.dtype(), DType::f64);
  EXPECT_EQ(x.rows(), 3);
  EXPECT_EQ(x.elements(), 6);
  EXPECT_EQ(x.size_bytes(), 48);
  EXPECT_EQ(x.row_bytes(), 16);
}

TEST(Tensor, WithoutAxesHasOneElement) {
  const FloatTensor x = tensor<float>({}, {7});
  EXPECT_EQ(x.elements(), 1);
  EXPECT_EQ(x.values<float>()[0], 7);
}

TEST(Tensor, WithoutElementsHasNoStorage) {
  const FloatTensor x = FloatTensor::zeros(DType::f32, {0, 5});
  EXPECT_EQ(x.data(), nullptr);
  EXPECT_EQ(x.bytes().size(), 0u);
  EXPECT_EQ(x.row_bytes(), 0);
  EXPECT_TENSOR(x, x.slice_rows(0, 0));
}

TEST(Tensor, OfAnUnlistedDtypeIsRefused) {
  EXPECT_ERROR(FloatTensor::zeros(DType::i32, {1}), InvalidArgument,
               "dtype i32 is not one of f16 bf16 f32 f64");
  EXPECT_ERROR(IntTensor::zeros(DType::bf16, {1}), InvalidArgument,
               "dtype bf16 is not one of u8 u32 i32 i64");
  EXPECT_ERROR(Tensor::zeros(static_cast<DType>(8), {1}), InvalidArgument, "dtype number 8");
  EXPECT_ERROR(FloatTensor::zeros(static_cast<DType>(200), {1}), InvalidArgument,
               "dtype number 200");
}

TEST(Tensor, OfAnImpossibleShapeIsRefused) {
  EXPECT_ERROR(FloatTensor::zeros(DType::f32, {2, -1}), InvalidArgument, "axis 1 is negative");
  const std::int64_t huge = std::int64_t{1} << 61;
  EXPECT_ERROR(Tensor::uninitialized(DType::f32, {huge}), InvalidArgument, "overflows");
  EXPECT_ERROR(Tensor::uninitialized(DType::u8, {huge, 8}), InvalidArgument, "overflows");
  EXPECT_EQ(Tensor::uninitialized(DType::u8, {huge, 8, 0}).elements(), 0);
}

TEST(Tensor, WhoseDataDoNotFillTheShapeIsRefused) {
  EXPECT_ERROR(tensor<float>({3}, {1, 2}), InvalidArgument, "has 12 bytes, not the 8 given");
  EXPECT_ERROR(tensor<float>({1}, {1, 2}), InvalidArgument, "has 4 bytes, not the 8 given");
}

TEST(Tensor, ReadAsAnotherTypeIsRefused) {
  const FloatTensor x = tensor<float>({1}, {1});
  EXPECT_ERROR((void)x.values<double>(), InvalidArgument, "f32 was read as f64");
}

TEST(Tensor, WrittenThroughOneHandleIsUnchangedThroughOthers) {
  FloatTensor x = tensor<float>({2}, {1, 2});
  const FloatTensor other = x;
  x.mutable_values<float>()[0] = 9;
  EXPECT_TENSOR(tensor<float>({2}, {9, 2}), x);
  EXPECT_TENSOR(tensor<float>({2}, {1, 2}), other);
}

TEST(Tensor, WithASingleHandleIsWrittenInPlace) {
  FloatTensor x = tensor<float>({2}, {1, 2});
  const std::byte* before = x.data();
  x.mutable_values<float>()[1] = 5;
  EXPECT_EQ(x.data(), before);
}

TEST(Tensor, SlicedSharesRowsUntilWritten) {
  const FloatTensor x = tensor<float>({3, 2}, {0, 1, 2, 3, 4, 5});
  FloatTensor middle = x.slice_rows(1, 2);
  EXPECT_TENSOR(tensor<float>({1, 2}, {2, 3}), middle);
  EXPECT_EQ(middle.data(), x.data() + 8);
  middle.mutable_values<float>()[0] = 9;
  EXPECT_TENSOR(tensor<float>({1, 2}, {9, 3}), middle);
  EXPECT_TENSOR(tensor<float>({3, 2}, {0, 1, 2, 3, 4, 5}), x);
  EXPECT_ERROR(x.slice_rows(2, 4), InvalidArgument, "rows 2 to 4");
  EXPECT_ERROR(x.slice_rows(-1, 1), InvalidArgument, "rows -1 to 1");
  EXPECT_ERROR((tensor<float>({}, {1}).slice_rows(0, 0)), InvalidArgument, "shape []");
}

TEST(Tensor, ReshapedKeepsItsElements) {
  const FloatTensor x = tensor<float>({3, 2}, {0, 1, 2, 3, 4, 5});
  EXPECT_TENSOR(tensor<float>({6}, {0, 1, 2, 3, 4, 5}), x.reshape({6}));
  EXPECT_ERROR(x.reshape({5}), InvalidArgument, "[3, 2] cannot become [5]");
}

// pytorch/pytorch#130251: a transposed tensor was taken in storage order.
TEST(StridedImport, OfATransposedArrayIsInLogicalOrder) {
  const std::vector<float> storage = counting(24);  // [4, 3, 2], axes 1 and 2 swapped
  const std::int64_t strides[] = {6, 1, 2};
  const FloatTensor x = FloatTensor::from_strided(DType::f32, {4, 2, 3}, strides, storage.data());
  EXPECT_TENSOR(tensor<float>({1, 2, 3}, {0, 2, 4, 1, 3, 5}), x.slice_rows(0, 1));
  EXPECT_TENSOR(tensor<float>({1, 2, 3}, {18, 20, 22, 19, 21, 23}), x.slice_rows(3, 4));
}

TEST(StridedImport, OfAColumnSkipsTheOtherColumns) {
  const float storage[] = {0, 10, 1, 11};
  const std::int64_t strides[] = {2};
  EXPECT_TENSOR(tensor<float>({2}, {0, 1}),
                FloatTensor::from_strided(DType::f32, {2}, strides, storage));
}

TEST(StridedImport, TakesZeroAndNegativeStrides) {
  const std::uint8_t storage[] = {1, 2, 3};
  const std::int64_t backwards[] = {-1};
  EXPECT_TENSOR(tensor<std::uint8_t>({3}, {3, 2, 1}),
                IntTensor::from_strided(DType::u8, {3}, backwards, storage + 2));
  const std::int64_t repeated[] = {0, 1};
  EXPECT_TENSOR(tensor<std::uint8_t>({2, 3}, {1, 2, 3, 1, 2, 3}),
                IntTensor::from_strided(DType::u8, {2, 3}, repeated, storage));
}

TEST(StridedImport, OfAnEmptyArrayNeverLooksAtIt) {
  const std::int64_t strides[] = {7, 1};
  EXPECT_EQ(FloatTensor::from_strided(DType::f32, {0, 2}, strides, nullptr).elements(), 0);
  EXPECT_ERROR(FloatTensor::from_strided(DType::f32, {2}, strides, nullptr), InvalidArgument,
               "needs 1 strides, not 2");
}

TEST(Tensor, ComparesBitsNotValues) {
  EXPECT_TRUE(same_bits(tensor<float>({1}, {__builtin_nanf("1")}),
                        tensor<float>({1}, {__builtin_nanf("1")})));
  EXPECT_FALSE(same_bits(tensor<float>({1}, {__builtin_nanf("1")}),
                         tensor<float>({1}, {__builtin_nanf("2")})));
  EXPECT_FALSE(same_bits(tensor<float>({1}, {0.0f}), tensor<float>({1}, {-0.0f})));
  EXPECT_FALSE(same_bits(tensor<float>({2}, {0, 0}), tensor<float>({2, 1}, {0, 0})));
  EXPECT_FALSE(same_bits(Tensor::zeros(DType::f32, {0}), Tensor::zeros(DType::f64, {0})));
}

TEST(Tensor, PrintsItsFirstElements) {
  EXPECT_EQ(to_string(tensor<float>({2, 2}, {1, -0.0f, 0.5f, 3})), "f32 [2, 2] {1, -0, 0.5, 3}");
  EXPECT_EQ(to_string(tensor<std::int64_t>({3}, {1, 2, 3}), 2), "i64 [3] {1, 2, ... 1 more}");
}

TEST(Storage, RecyclesLargeBlocks) {
  const std::int64_t bytes = 1 << 20;
  Storage first = Storage::allocate(bytes);
  const std::byte* block = first.data();
  first = Storage();
  EXPECT_EQ(Storage::allocate(bytes - 1000).data(), block);
  release_pooled_storage();
}

TEST(Storage, IsAlignedToACacheLineAndWholeToTheLastByte) {
  for (std::int64_t bytes = 1; bytes < (std::int64_t{1} << 22); bytes = bytes * 5 / 3 + 1) {
    const Storage storage = Storage::allocate(bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(storage.data()) % 64, 0u) << bytes;
    std::memset(storage.data(), 1, static_cast<std::size_t>(bytes));  // for the sanitizers
  }
}

}  // namespace
}  // namespace lockstep
