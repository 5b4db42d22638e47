// Tensors: a dtype, a shape, and dense row-major elements in shared storage.
//
// A tensor is a value. Copying one copies a handle; writing to one that shares its storage copies
// the elements first, so no holder ever sees another's writes. Two tensors may share one block, and
// `slice_rows` makes a tensor that shares a part of one.
//
// Making a tensor that cannot be (an unlisted dtype, a negative axis, more than 2^63-1 bytes, data
// that do not fill the shape) throws InvalidArgument.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <span>
#include <string>
#include <vector>

#include <lockstep/dtype.hpp>
#include <lockstep/shape.hpp>
#include <lockstep/storage.hpp>

namespace lockstep {

// A tensor of either family. Programs use FloatTensor and IntTensor; this is what code that moves
// bytes without asking what they mean works on.
class Tensor {
 public:
  // An empty tensor: [0] of f32, or of another dtype.
  Tensor() : shape_{0} {}
  explicit Tensor(DType dtype);

  // Elements are indeterminate until written through mutable_bytes().
  static Tensor uninitialized(DType dtype, const Shape& shape);
  static Tensor zeros(DType dtype, const Shape& shape);
  // `bytes` are the elements in native byte order, row-major; exactly as many as the shape holds.
  static Tensor from_bytes(DType dtype, const Shape& shape, std::span<const std::byte> bytes);
  // Copies a strided array into dense order. `strides` has one entry per axis, counted in elements
  // from `origin` (the element of index 0,0,...); entries may be zero or negative.
  static Tensor from_strided(DType dtype, const Shape& shape, std::span<const std::int64_t> strides,
                             const void* origin);

  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  // The length of the leading axis. The tensor must have one.
  std::int64_t rows() const { return shape_[0]; }
  std::int64_t elements() const { return elements_; }
  std::int64_t size_bytes() const { return elements_ * size_of(dtype_); }
  // Bytes from one row to the next; 0 when the tensor has no elements.
  std::int64_t row_bytes() const { return elements_ == 0 ? 0 : size_bytes() / rows(); }

  // The elements' bytes; a null pointer when there are none.
  const std::byte* data() const { return elements_ == 0 ? nullptr : storage_.data() + offset_; }
  std::span<const std::byte> bytes() const {
    return {data(), static_cast<std::size_t>(size_bytes())};
  }
  // The elements as T, which must be the dtype's C++ type (else InvalidArgument).
  template <Element T>
  std::span<const T> values() const {
    require_type(*dtype_of<T>);
    return {reinterpret_cast<const T*>(data()), static_cast<std::size_t>(elements_)};
  }

  // Writable views; the storage is copied first when anybody else holds it.
  std::span<std::byte> mutable_bytes();
  template <Element T>
  std::span<T> mutable_values() {
    require_type(*dtype_of<T>);
    return {reinterpret_cast<T*>(mutable_bytes().data()), static_cast<std::size_t>(elements_)};
  }

  // Rows `begin` to `end` (exclusive) of the leading axis, sharing this tensor's storage.
  Tensor slice_rows(std::int64_t begin, std::int64_t end) const;
  // The same elements under another shape of as many elements, sharing this tensor's storage.
  Tensor reshape(const Shape& shape) const;

  // Equal dtype, shape and bits: a NaN equals itself, 0 differs from -0.
  friend bool same_bits(const Tensor& a, const Tensor& b);

 private:
  // Of as many elements as the shape says, which is known to be possible.
  Tensor(DType dtype, const Shape& shape, std::int64_t elements, Storage storage,
         std::int64_t offset)
      : dtype_(dtype),
        shape_(shape),
        elements_(elements),
        storage_(std::move(storage)),
        offset_(offset) {}
  void require_type(DType wanted) const;

  DType dtype_ = DType::f32;
  Shape shape_;
  std::int64_t elements_ = 0;
  Storage storage_;
  std::int64_t offset_ = 0;  // bytes from the start of the storage
};

bool same_bits(const Tensor& a, const Tensor& b);

// "f32 [2, 3] {1, 2, 3, 4, 5, 6}", with at most `limit` elements written out.
std::string to_string(const Tensor& tensor, std::int64_t limit = 16);
std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

// The two families are different types, so that no integer can travel through a floating operation
// by accident. `admits` is the family's dtype list.
template <bool (*admits)(DType)>
class TensorOf : public Tensor {
 public:
  TensorOf() : Tensor(admits(DType::f32) ? DType::f32 : DType::i64) {}
  // Takes a tensor of this family (else InvalidArgument).
  explicit TensorOf(Tensor tensor) : Tensor(std::move(tensor)) { require_family(dtype()); }

  // `TensorOf::of<float>({2, 2}, {1, 2, 3, 4})`.
  template <Element T>
    requires(admits(*dtype_of<T>))
  static TensorOf of(const Shape& shape, std::span<const T> values) {
    return from_bytes(*dtype_of<T>, shape, std::as_bytes(values));
  }
  template <Element T>
    requires(admits(*dtype_of<T>))
  static TensorOf of(const Shape& shape, std::initializer_list<T> values) {
    return of<T>(shape, std::span<const T>(values.begin(), values.size()));
  }

  // As in Tensor, for dtypes of this family.
  static TensorOf uninitialized(DType dtype, const Shape& shape) {
    require_family(dtype);
    return TensorOf(Tensor::uninitialized(dtype, shape));
  }
  static TensorOf zeros(DType dtype, const Shape& shape) {
    require_family(dtype);
    return TensorOf(Tensor::zeros(dtype, shape));
  }
  static TensorOf from_bytes(DType dtype, const Shape& shape, std::span<const std::byte> bytes) {
    require_family(dtype);
    return TensorOf(Tensor::from_bytes(dtype, shape, bytes));
  }
  static TensorOf from_strided(DType dtype, const Shape& shape,
                               std::span<const std::int64_t> strides, const void* origin) {
    require_family(dtype);
    return TensorOf(Tensor::from_strided(dtype, shape, strides, origin));
  }

  TensorOf slice_rows(std::int64_t begin, std::int64_t end) const {
    return TensorOf(Tensor::slice_rows(begin, end));
  }
  TensorOf reshape(const Shape& shape) const { return TensorOf(Tensor::reshape(shape)); }

 private:
  static void require_family(DType dtype);
};

using FloatTensor = TensorOf<is_floating>;
using IntTensor = TensorOf<is_integer>;

extern template class TensorOf<is_floating>;
extern template class TensorOf<is_integer>;

}  // namespace lockstep
