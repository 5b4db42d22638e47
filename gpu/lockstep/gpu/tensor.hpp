// Tensors on a device: a dtype, a shape, and dense row-major elements in shared device memory.
//
// A tensor is a value, as in lockstep/tensor.hpp: copying copies a handle, and writing to one that
// shares its memory copies the elements first. Its elements belong to a stream: they are what they
// are after the work that was enqueued there before the tensor was made, which may not have run
// yet. Work of the caller's own that uses data() belongs on the same stream; on another one, it
// goes between Borrow's beginning and end. Letting go of a tensor is always safe: its memory is
// freed in the order of the stream.
//
// Making a tensor that cannot be throws InvalidArgument, as on the host; a device without enough
// memory throws DeviceError.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <memory>

#include <lockstep/dtype.hpp>
#include <lockstep/gpu/error.hpp>
#include <lockstep/gpu/stream.hpp>
#include <lockstep/shape.hpp>
#include <lockstep/tensor.hpp>

namespace lockstep::gpu {

class Memory;

// A tensor of either family; programs use FloatTensor and IntTensor.
class Tensor {
 public:
  static Tensor uninitialized(DType dtype, const Shape& shape, const Stream& stream);
  static Tensor zeros(DType dtype, const Shape& shape, const Stream& stream);
  // Enqueues a copy of a host tensor, whose storage is kept until the copy has run.
  static Tensor upload(const lockstep::Tensor& host, const Stream& stream);
  // Waits for the stream and copies the elements to the host. Throws TransportError when the call
  // that was to fill them failed.
  lockstep::Tensor download() const;

  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  std::int64_t rows() const { return shape_[0]; }
  std::int64_t elements() const { return elements_; }
  std::int64_t size_bytes() const { return elements_ * size_of(dtype_); }
  std::int64_t row_bytes() const { return elements_ == 0 ? 0 : size_bytes() / rows(); }

  const Stream& stream() const;
  int device() const { return stream().device(); }

  // The elements on the device; a null pointer when there are none.
  const std::byte* data() const;
  // For writing by work on stream(); enqueues a copy of the elements first when anybody else holds
  // them.
  std::byte* mutable_data();

  // As on the host, sharing this tensor's memory.
  Tensor slice_rows(std::int64_t begin, std::int64_t end) const;
  Tensor reshape(const Shape& shape) const;

  // For the other parts of gpu/: a tensor on memory that holds its elements from `offset` bytes on.
  Tensor(DType dtype, const Shape& shape, std::shared_ptr<Memory> memory, std::int64_t offset);
  const std::shared_ptr<Memory>& memory() const { return memory_; }

 private:
  DType dtype_;
  Shape shape_;
  std::int64_t elements_;
  std::shared_ptr<Memory> memory_;
  std::int64_t offset_;
};

// "f32 [2, 3] on device 1"
std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

// For the life of the object, work on `stream` may use the tensor: it runs after what the tensor's
// own stream was given before, and the memory is kept until it has run.
class Borrow {
 public:
  Borrow(const Tensor& tensor, const Stream& stream);
  ~Borrow();
  Borrow(const Borrow&) = delete;
  Borrow& operator=(const Borrow&) = delete;

 private:
  std::shared_ptr<Memory> memory_;
  Stream stream_;
};

// The two families are different types, so that no integer can travel through a floating operation
// by accident.
template <class HostTensor>
class TensorOf : public Tensor {
 public:
  using host_tensor = HostTensor;

  // Takes a tensor of this family (else InvalidArgument).
  explicit TensorOf(Tensor tensor);

  static TensorOf uninitialized(DType dtype, const Shape& shape, const Stream& stream) {
    return TensorOf(Tensor::uninitialized(dtype, shape, stream));
  }
  static TensorOf zeros(DType dtype, const Shape& shape, const Stream& stream) {
    return TensorOf(Tensor::zeros(dtype, shape, stream));
  }
  static TensorOf upload(const HostTensor& host, const Stream& stream) {
    return TensorOf(Tensor::upload(host, stream));
  }
  HostTensor download() const { return HostTensor(Tensor::download()); }

  TensorOf slice_rows(std::int64_t begin, std::int64_t end) const {
    return TensorOf(Tensor::slice_rows(begin, end));
  }
  TensorOf reshape(const Shape& shape) const { return TensorOf(Tensor::reshape(shape)); }
};

using FloatTensor = TensorOf<lockstep::FloatTensor>;
using IntTensor = TensorOf<lockstep::IntTensor>;

extern template class TensorOf<lockstep::FloatTensor>;
extern template class TensorOf<lockstep::IntTensor>;

}  // namespace lockstep::gpu
