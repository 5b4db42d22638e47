// Tensors on simulated devices.
#include <lockstep/gpu/tensor.hpp>

#include <cuda_runtime_api.h>

#include <sstream>

#include "filled.hpp"

namespace lockstep::gpu {
namespace {

using testing::counting;
using testing::tensor;

const Stream& stream() {
  static const Stream one(0);
  return one;
}

lockstep::Tensor there_and_back(const lockstep::Tensor& host) {
  return Tensor::upload(host, stream()).download();
}

TEST(GpuTensor, KeepsEveryBitOfEveryDtypeThereAndBack) {
  for (DType dtype : all_dtypes) {
    auto host = lockstep::Tensor::uninitialized(dtype, {3, 5});
    unsigned char value = 0x71;  // signalling NaNs among others
    for (std::byte& byte : host.mutable_bytes()) byte = std::byte{value += 0x2d};
    EXPECT_TENSOR(host, there_and_back(host));
  }
  EXPECT_TENSOR(tensor<float>({}, {-0.0f}), there_and_back(tensor<float>({}, {-0.0f})));
}

TEST(GpuTensor, WithoutElementsHasNoAddress) {
  const auto empty = FloatTensor::zeros(DType::bf16, {0, 3}, stream());
  EXPECT_EQ(empty.data(), nullptr);
  EXPECT_EQ(empty.row_bytes(), 0);
  EXPECT_TENSOR(lockstep::FloatTensor::zeros(DType::bf16, {0, 3}), empty.download());
}

TEST(GpuTensor, OfZerosHoldsZeros) {
  EXPECT_TENSOR(tensor<double>({2, 2}, {0, 0, 0, 0}),
                FloatTensor::zeros(DType::f64, {2, 2}, stream()).download());
}

TEST(GpuTensor, KeepsWhatTheHostTensorHeldWhenItWasUploaded) {
  auto host = counting<float>({1000});
  const auto uploaded = FloatTensor::upload(host, stream());
  for (float& element : host.mutable_values<float>()) element = -1;  // the copy has not run yet
  EXPECT_TENSOR(counting<float>({1000}), uploaded.download());
}

TEST(GpuTensor, IsCutAndReshapedOverTheSameMemory) {
  const auto whole = IntTensor::upload(counting<std::int32_t>({4, 3}), stream());
  const IntTensor middle = whole.slice_rows(1, 3);
  EXPECT_EQ(middle.data(), whole.data() + 12);
  EXPECT_TENSOR(tensor<std::int32_t>({2, 3}, {3, 4, 5, 6, 7, 8}), middle.download());
  EXPECT_TENSOR(tensor<std::int32_t>({6}, {3, 4, 5, 6, 7, 8}), middle.reshape({6}).download());
  EXPECT_ERROR(whole.slice_rows(3, 5), InvalidArgument, "rows 3 to 5 are not rows of a tensor of");
  EXPECT_ERROR(whole.reshape({5}), InvalidArgument, "cannot become [5]");
}

TEST(GpuTensor, IsCopiedBeforeItIsWrittenWhileSomebodyElseHoldsIt) {
  auto mine = FloatTensor::upload(tensor<float>({2}, {1, 2}), stream());
  const FloatTensor theirs = mine;
  const FloatTensor part = mine.slice_rows(1, 2);
  ASSERT_EQ(cudaMemsetAsync(mine.mutable_data(), 0, 8, stream().get()), cudaSuccess);
  EXPECT_TENSOR(tensor<float>({2}, {0, 0}), mine.download());
  EXPECT_TENSOR(tensor<float>({2}, {1, 2}), theirs.download());
  EXPECT_TENSOR(tensor<float>({1}, {2}), part.download());
}

TEST(GpuTensor, ThatIsReadOnAnotherStreamMayBeWrittenAndFreedAtOnce) {
  const Stream other(0);
  for (int i = 0; i < 20; ++i) {
    auto x = FloatTensor::upload(counting<float>({100}, i), stream());
    auto copy = FloatTensor::uninitialized(DType::f32, {100}, other);
    {
      const Borrow borrowed(x, other);
      ASSERT_EQ(cudaMemcpyAsync(copy.mutable_data(), x.data(), 400, cudaMemcpyDeviceToDevice,
                                other.get()),
                cudaSuccess);
    }
    ASSERT_EQ(cudaMemsetAsync(x.mutable_data(), 0, 400, stream().get()), cudaSuccess);
    x = FloatTensor::upload(counting<float>({100}, -1000), stream());
    EXPECT_TENSOR(counting<float>({100}, i), copy.download());
  }
}

TEST(GpuTensor, ThatCannotBeIsRefusedInTheWordsOfTheHost) {
  EXPECT_ERROR(Tensor::zeros(static_cast<DType>(99), {1}, stream()), InvalidArgument, "number 99");
  EXPECT_ERROR(Tensor::zeros(DType::f32, {2, -1}, stream()), InvalidArgument, "axis 1 is negative");
  EXPECT_ERROR(FloatTensor::zeros(DType::i32, {1}, stream()), InvalidArgument, "dtype i32");
  EXPECT_ERROR(IntTensor::zeros(DType::f16, {1}, stream()), InvalidArgument, "dtype f16");
  EXPECT_ERROR(Tensor::uninitialized(DType::u8, {std::int64_t{1} << 40}, stream()), DeviceError,
               "1099511627776 bytes on device 0");
}

TEST(GpuTensor, PrintsItsTypeAndPlace) {
  std::ostringstream text;
  text << FloatTensor::zeros(DType::f16, {2, 3}, Stream(1));
  EXPECT_EQ(text.str(), "f16 [2, 3] on device 1");
}

TEST(GpuStream, OfADeviceThatIsNotThereIsRefused) {
  EXPECT_ERROR(Stream(1000), DeviceError, "cudaSetDevice");
}

}  // namespace
}  // namespace lockstep::gpu
