#include <algorithm>
#include <ostream>
#include <utility>

#include <lockstep/shape.hpp>

namespace lockstep {

Shape::Shape(std::initializer_list<std::int64_t> axes)
    : Shape(std::span<const std::int64_t>(axes.begin(), axes.size())) {}

Shape::Shape(std::span<const std::int64_t> axes) : size_(axes.size()) {
  if (size_ > inline_axes) outside_ = std::make_unique<std::int64_t[]>(size_);
  std::copy(axes.begin(), axes.end(), outside_ ? outside_.get() : inside_.data());
}

void Shape::copy_outside(const Shape& other) {
  outside_ = std::make_unique<std::int64_t[]>(other.size_);
  std::copy_n(other.outside_.get(), other.size_, outside_.get());
}

Shape Shape::with_rows(std::int64_t rows) const {
  Shape result = *this;
  (result.outside_ ? result.outside_.get() : result.inside_.data())[0] = rows;
  return result;
}

std::optional<std::int64_t> Shape::product(std::span<const std::int64_t> axes) {
  // A zero axis makes the product zero whatever the others are, so it must be looked for first:
  // [2^62, 2^62, 0] is an ordinary empty shape.
  if (std::find(axes.begin(), axes.end(), 0) != axes.end()) return 0;
  std::optional<std::int64_t> product = 1;
  for (std::int64_t axis : axes) {
    product = checked_multiply(*product, axis);
    if (!product) break;
  }
  return product;
}

bool operator==(const Shape& a, const Shape& b) {
  return std::ranges::equal(a.axes(), b.axes());
}

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    if (axis > 0) text += ", ";
    text += std::to_string(shape[axis]);
  }
  return text += "]";
}

std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  return out << to_string(shape);
}

}  // namespace lockstep
