// The axes of a tensor.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace lockstep {

// 2^63 - 1: no axis, no number of elements and no number of bytes is larger.
inline constexpr std::int64_t largest_size = INT64_MAX;

// a + b and a * b of non-negative sizes, or nothing beyond `largest_size`.
inline std::optional<std::int64_t> checked_add(std::int64_t a, std::int64_t b) {
  std::int64_t sum;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}
inline std::optional<std::int64_t> checked_multiply(std::int64_t a, std::int64_t b) {
  std::int64_t product;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

// The lengths of a tensor's axes, leading axis first; possibly none. Short shapes (all that occur
// in practice) live inside the object, so that passing a tensor around never allocates.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<std::int64_t> axes);
  explicit Shape(std::span<const std::int64_t> axes);
  // In the header, since every hand-over of a tensor is one of these.
  Shape(const Shape& other) : size_(other.size_), inside_(other.inside_) {
    if (other.outside_) copy_outside(other);
  }
  // A moved-from shape has no axes, rather than a length whose axes have gone elsewhere.
  Shape(Shape&& other) noexcept
      : size_(std::exchange(other.size_, 0)),
        inside_(other.inside_),
        outside_(std::move(other.outside_)) {}
  Shape& operator=(const Shape& other) {
    if (outside_ || other.outside_) return *this = Shape(other);
    size_ = other.size_;
    inside_ = other.inside_;
    return *this;
  }
  Shape& operator=(Shape&& other) noexcept {
    inside_ = other.inside_;
    outside_ = std::move(other.outside_);
    size_ = this == &other ? size_ : std::exchange(other.size_, 0);
    return *this;
  }
  ~Shape() = default;

  std::span<const std::int64_t> axes() const { return {data(), size_}; }
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  std::int64_t operator[](std::size_t axis) const { return data()[axis]; }

  // Every axis but the leading one. The shape must have a leading axis.
  std::span<const std::int64_t> trailing() const { return axes().subspan(1); }
  // The same trailing axes under another leading axis. The shape must have a leading axis.
  Shape with_rows(std::int64_t rows) const;

  // The product of all axes, 1 for none, 0 when any axis is zero; nothing when it exceeds 2^63-1.
  std::optional<std::int64_t> elements() const { return product(axes()); }
  static std::optional<std::int64_t> product(std::span<const std::int64_t> axes);

  friend bool operator==(const Shape& a, const Shape& b);

 private:
  static constexpr std::size_t inline_axes = 6;
  void copy_outside(const Shape& other);
  const std::int64_t* data() const { return outside_ ? outside_.get() : inside_.data(); }

  std::size_t size_ = 0;
  std::array<std::int64_t, inline_axes> inside_{};
  std::unique_ptr<std::int64_t[]> outside_;
};

// "[2, 3]"; "[]" for no axes.
std::string to_string(const Shape& shape);
std::ostream& operator<<(std::ostream& out, const Shape& shape);

}  // namespace lockstep
