#include <algorithm>
#include <cstring>
#include <ostream>

#include <lockstep/element_text.hpp>
#include <lockstep/error.hpp>
#include <lockstep/tensor.hpp>

namespace lockstep {
namespace {

std::string dtype_list(bool (*admits)(DType)) {
  std::string list;
  for (DType dtype : all_dtypes) {
    if (!admits(dtype)) continue;
    if (!list.empty()) list += ' ';
    list += name(dtype);
  }
  return list;
}

std::string unlisted(DType dtype, bool (*admits)(DType)) {
  const std::string what = is_listed(dtype) ? std::string(name(dtype))
                                            : "number " + std::to_string(static_cast<int>(dtype));
  return "dtype " + what + " is not one of " + dtype_list(admits);
}

// The number of elements of a shape that a tensor may have.
std::int64_t checked_elements(DType dtype, const Shape& shape) {
  if (!is_listed(dtype)) throw InvalidArgument(unlisted(dtype, is_listed));
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    if (shape[axis] < 0) {
      throw InvalidArgument("shape " + to_string(shape) + ": axis " + std::to_string(axis) +
                            " is negative; an axis has zero or more entries");
    }
  }
  const std::optional<std::int64_t> elements = shape.elements();
  if (!elements || !checked_multiply(*elements, size_of(dtype))) {
    throw InvalidArgument("shape " + to_string(shape) + " of " + std::string(name(dtype)) +
                          " overflows: its elements and bytes may be 2^63-1 at most");
  }
  return *elements;
}

// Copies the sub-array of `source` under the axes from `axis` on, and returns the end of what was
// written.
std::byte* copy_strided(std::byte* destination, const std::byte* source, const Shape& shape,
                        std::span<const std::int64_t> strides, std::size_t axis,
                        std::int64_t element) {
  if (axis == shape.size()) {
    std::memcpy(destination, source, static_cast<std::size_t>(element));
    return destination + element;
  }
  for (std::int64_t i = 0; i < shape[axis]; ++i) {
    destination = copy_strided(destination, source + i * strides[axis] * element, shape, strides,
                               axis + 1, element);
  }
  return destination;
}

}  // namespace

Tensor::Tensor(DType dtype) : Tensor() {
  checked_elements(dtype, shape_);
  dtype_ = dtype;
}

Tensor Tensor::uninitialized(DType dtype, const Shape& shape) {
  Tensor tensor(dtype, shape, checked_elements(dtype, shape), Storage(), 0);
  tensor.storage_ = Storage::allocate(tensor.size_bytes());
  return tensor;
}

Tensor Tensor::zeros(DType dtype, const Shape& shape) {
  Tensor tensor = uninitialized(dtype, shape);
  std::ranges::fill(tensor.mutable_bytes(), std::byte{0});
  return tensor;
}

Tensor Tensor::from_bytes(DType dtype, const Shape& shape, std::span<const std::byte> bytes) {
  const std::int64_t needed = checked_elements(dtype, shape) * size_of(dtype);
  if (static_cast<std::int64_t>(bytes.size()) != needed) {
    throw InvalidArgument("a tensor " + std::string(name(dtype)) + " " + to_string(shape) +
                          " has " + std::to_string(needed) + " bytes, not the " +
                          std::to_string(bytes.size()) + " given");
  }
  Tensor tensor = uninitialized(dtype, shape);
  std::ranges::copy(bytes, tensor.mutable_bytes().begin());
  return tensor;
}

Tensor Tensor::from_strided(DType dtype, const Shape& shape, std::span<const std::int64_t> strides,
                            const void* origin) {
  if (strides.size() != shape.size()) {
    throw InvalidArgument("shape " + to_string(shape) + " needs " + std::to_string(shape.size()) +
                          " strides, not " + std::to_string(strides.size()));
  }
  Tensor tensor = uninitialized(dtype, shape);
  if (tensor.elements() > 0) {
    copy_strided(tensor.mutable_bytes().data(), static_cast<const std::byte*>(origin), shape,
                 strides, 0, size_of(dtype));
  }
  return tensor;
}

std::span<std::byte> Tensor::mutable_bytes() {
  if (!storage_.unique()) *this = from_bytes(dtype_, Shape(shape_), bytes());
  return {const_cast<std::byte*>(data()), static_cast<std::size_t>(size_bytes())};
}

Tensor Tensor::slice_rows(std::int64_t begin, std::int64_t end) const {
  if (shape_.empty() || begin < 0 || end < begin || end > rows()) {
    throw InvalidArgument("rows " + std::to_string(begin) + " to " + std::to_string(end) +
                          " are not rows of a tensor of shape " + to_string(shape_));
  }
  // A part of a tensor that exists is one that can exist: nothing to check.
  const std::int64_t row_elements = elements_ == 0 ? 0 : elements_ / rows();
  return Tensor(dtype_, shape_.with_rows(end - begin), (end - begin) * row_elements, storage_,
                offset_ + begin * row_bytes());
}

Tensor Tensor::reshape(const Shape& shape) const {
  if (checked_elements(dtype_, shape) != elements_) {
    throw InvalidArgument("shape " + to_string(shape_) + " cannot become " + to_string(shape) +
                          ": the numbers of elements differ");
  }
  return Tensor(dtype_, shape, elements_, storage_, offset_);
}

void Tensor::require_type(DType wanted) const {
  if (dtype_ != wanted) {
    throw InvalidArgument("a tensor of " + std::string(name(dtype_)) + " was read as " +
                          std::string(name(wanted)));
  }
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         (a.elements() == 0 ||
          std::memcmp(a.data(), b.data(), static_cast<std::size_t>(a.size_bytes())) == 0);
}

std::string to_string(const Tensor& tensor, std::int64_t limit) {
  std::string text = std::string(name(tensor.dtype())) + " " + to_string(tensor.shape()) + " {";
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    if (i > 0) text += ", ";
    if (i == limit) return text + "... " + std::to_string(tensor.elements() - limit) + " more}";
    text += element_text(tensor.dtype(), tensor.data() + i * size_of(tensor.dtype()));
  }
  return text + "}";
}

std::ostream& operator<<(std::ostream& out, const Tensor& tensor) {
  return out << to_string(tensor);
}

template <bool (*admits)(DType)>
void TensorOf<admits>::require_family(DType dtype) {
  if (!admits(dtype)) throw InvalidArgument(unlisted(dtype, admits));
}

template class TensorOf<is_floating>;
template class TensorOf<is_integer>;

}  // namespace lockstep
