// The arrays that a fold adds, seen as arrays of one element type.
#pragma once

#include <cstddef>
#include <span>

namespace lockstep {

// Refers to the caller's list of pointers, rather than to a typed copy of it: making one would be
// felt in small folds.
template <class T>
class Addends {
 public:
  explicit Addends(std::span<const std::byte* const> arrays) : arrays_(arrays) {}

  std::size_t size() const { return arrays_.size(); }
  const T* operator[](std::size_t r) const { return reinterpret_cast<const T*>(arrays_[r]); }

 private:
  std::span<const std::byte* const> arrays_;
};

}  // namespace lockstep
