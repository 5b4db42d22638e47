#include <lockstep/gpu/tensor.hpp>

#include <optional>
#include <ostream>
#include <string>
#include <type_traits>
#include <utility>

#include "check.hpp"
#include "delivery.hpp"
#include "memory.hpp"

namespace lockstep::gpu {
namespace {

std::size_t size(std::int64_t bytes) {
  return static_cast<std::size_t>(bytes);
}

// The number of elements of a tensor that can be; throws as one on the host does, in the same
// words.
std::int64_t checked_elements(DType dtype, const Shape& shape) {
  const std::optional<std::int64_t> elements = shape.elements();
  bool possible = is_listed(dtype) && elements && checked_multiply(*elements, size_of(dtype));
  for (std::int64_t axis : shape.axes()) possible = possible && axis >= 0;
  if (!possible) return lockstep::Tensor::uninitialized(dtype, shape).elements();
  return *elements;
}

}  // namespace

Tensor::Tensor(DType dtype, const Shape& shape, std::shared_ptr<Memory> memory, std::int64_t offset)
    : dtype_(dtype),
      shape_(shape),
      elements_(checked_elements(dtype, shape)),
      memory_(std::move(memory)),
      offset_(offset) {}

Tensor Tensor::uninitialized(DType dtype, const Shape& shape, const Stream& stream) {
  const std::int64_t elements = checked_elements(dtype, shape);
  return Tensor(dtype, shape, Memory::allocate(elements * size_of(dtype), stream), 0);
}

Tensor Tensor::zeros(DType dtype, const Shape& shape, const Stream& stream) {
  Tensor tensor = uninitialized(dtype, shape, stream);
  if (tensor.elements() == 0) return tensor;
  const OnDevice here(stream.device());
  check(cudaMemsetAsync(tensor.memory_->data(), 0, size(tensor.size_bytes()), stream.get()),
        "cudaMemsetAsync");
  return tensor;
}

Tensor Tensor::upload(const lockstep::Tensor& host, const Stream& stream) {
  Tensor tensor = uninitialized(host.dtype(), host.shape(), stream);
  if (tensor.elements() == 0) return tensor;
  const OnDevice here(stream.device());
  check(cudaMemcpyAsync(tensor.memory_->data(), host.data(), size(tensor.size_bytes()),
                        cudaMemcpyHostToDevice, stream.get()),
        "cudaMemcpyAsync to the device");
  // A handle that goes when the copy has run: until then, a caller who writes to the host tensor
  // writes to a copy.
  auto kept = std::make_unique<lockstep::Tensor>(host);
  check(cudaLaunchHostFunc(
            stream.get(), [](void* data) { delete static_cast<lockstep::Tensor*>(data); },
            kept.get()),
        "cudaLaunchHostFunc");
  static_cast<void>(kept.release());
  return tensor;
}

lockstep::Tensor Tensor::download() const {
  lockstep::Tensor host = lockstep::Tensor::uninitialized(dtype_, shape_);
  // The wait comes before the copy, since a copy to ordinary memory holds its caller and could not
  // notice that what it waits for will never come.
  stream().synchronize();
  if (memory_->delivery) memory_->delivery->require();
  if (elements_ == 0) return host;
  const OnDevice here(device());
  check(cudaMemcpyAsync(host.mutable_bytes().data(), data(), size(size_bytes()),
                        cudaMemcpyDeviceToHost, stream().get()),
        "cudaMemcpyAsync to the host");
  check(cudaStreamSynchronize(stream().get()), "cudaStreamSynchronize");
  return host;
}

const Stream& Tensor::stream() const {
  return memory_->stream();
}

const std::byte* Tensor::data() const {
  return elements_ == 0 ? nullptr : memory_->data() + offset_;
}

std::byte* Tensor::mutable_data() {
  if (elements_ == 0) return nullptr;
  if (memory_.use_count() > 1) {
    const OnDevice here(device());
    const std::shared_ptr<Memory> copy = Memory::allocate(size_bytes(), stream());
    copy->delivery = memory_->delivery;
    check(cudaMemcpyAsync(copy->data(), data(), size(size_bytes()), cudaMemcpyDeviceToDevice,
                          stream().get()),
          "cudaMemcpyAsync on the device");
    memory_ = copy;
    offset_ = 0;
  }
  memory_->await_borrowers();
  return memory_->data() + offset_;
}

Tensor Tensor::slice_rows(std::int64_t begin, std::int64_t end) const {
  if (shape_.empty() || begin < 0 || end < begin || end > rows()) {
    throw InvalidArgument("rows " + std::to_string(begin) + " to " + std::to_string(end) +
                          " are not rows of a tensor of shape " + to_string(shape_));
  }
  return Tensor(dtype_, shape_.with_rows(end - begin), memory_, offset_ + begin * row_bytes());
}

Tensor Tensor::reshape(const Shape& shape) const {
  if (checked_elements(dtype_, shape) != elements_) {
    throw InvalidArgument("shape " + to_string(shape_) + " cannot become " + to_string(shape) +
                          ": the numbers of elements differ");
  }
  return Tensor(dtype_, shape, memory_, offset_);
}

std::ostream& operator<<(std::ostream& out, const Tensor& tensor) {
  return out << name(tensor.dtype()) << ' ' << tensor.shape() << " on device " << tensor.device();
}

Borrow::Borrow(const Tensor& tensor, const Stream& stream)
    : memory_(tensor.memory()), stream_(stream) {
  memory_->lend(stream_);
}

Borrow::~Borrow() {
  try {
    memory_->give_back(stream_);
  } catch (const std::exception&) {
    // The device is gone.
  }
}

template <class HostTensor>
TensorOf<HostTensor>::TensorOf(Tensor tensor) : Tensor(std::move(tensor)) {
  constexpr bool floating = std::is_same_v<HostTensor, lockstep::FloatTensor>;
  // The host's family says what it admits.
  if (is_floating(dtype()) != floating) HostTensor::uninitialized(dtype(), Shape{0});
}

template class TensorOf<lockstep::FloatTensor>;
template class TensorOf<lockstep::IntTensor>;

}  // namespace lockstep::gpu
