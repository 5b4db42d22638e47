// What faults are made of: calls that are right but for their answer, and tensors taken apart, put
// together and rewritten.
#pragma once

#include <cstring>
#include <functional>
#include <span>
#include <vector>

#include <lockstep/half.hpp>

#include "mutant.hpp"

namespace lockstep::zoo {

// --- Faults

using Concerns = bool (*)(Operation);
using Spoil = std::function<void(Rank&, const Call&, Answer&)>;

// Operations that only move elements.
inline bool moves(Operation operation) {
  return !is_sum(operation);
}
inline bool any(Operation) {
  return true;
}
template <Operation wanted>
bool only(Operation operation) {
  return operation == wanted;
}

// The call is made as it should be, then its answer is spoiled.
Fault spoiling(Concerns concerns, Spoil spoil);
// The call is made with something else in place of what the caller passed.
Fault passing(Concerns concerns, std::function<void(Rank&, Call&)> change);
// Elements of sums are what `add` makes of the addends in rank order, rounded to the dtype. The
// numbers are doubles, which hold every element of every floating dtype.
Fault adding(std::function<double(DType, std::span<const double>)> add);

// --- Tensors

// Rows one after the other, in one tensor. There is at least one part.
Tensor joined(std::span<const Tensor> parts);
// The opposite: as many rows as each entry says.
std::vector<Tensor> divided(const Tensor& x, std::span<const std::int64_t> rows);
// In `count` equal parts.
std::vector<Tensor> divided(const Tensor& x, int count);

Tensor copied(const Tensor& x);
Tensor zeros_like(const Tensor& x);
// Writes into the memory of a tensor that somebody else holds: the fault itself, where it is one.
// As many bytes as both have.
void overwrite(const Tensor& held, const Tensor& with);
// Bytes `begin` to the end of `x` become those of `with`, which is as large.
void replace_from(Tensor& x, std::int64_t begin, const Tensor& with);

// --- Elements

// Element i of a floating tensor as a number, and back, rounded to nearest.
double number(const Tensor& x, std::int64_t i);
void set_number(Tensor& x, std::int64_t i, double value);
// The nearest number of the dtype.
double rounded(DType dtype, double value);

// Every element of a floating tensor through `change(format, bits)`, which returns the new bits.
template <class Change>
void change_floats(Tensor& x, Change change) {
  dispatch(x.dtype(), [&]<class T>(TypeTag<T>) {
    if constexpr (is_floating(*dtype_of<T>)) {
      using Bits = typename FormatOf<T>::Bits;
      if (x.elements() == 0) return;
      std::byte* at = x.mutable_bytes().data();
      for (std::int64_t i = 0; i < x.elements(); ++i, at += sizeof(Bits)) {
        Bits bits;
        std::memcpy(&bits, at, sizeof bits);
        bits = static_cast<Bits>(change(FormatOf<T>(), bits));
        std::memcpy(at, &bits, sizeof bits);
      }
    }
  });
}

// Every element of an integer tensor through `change(value)`.
template <class Change>
void change_integers(Tensor& x, Change change) {
  dispatch(x.dtype(), [&]<class T>(TypeTag<T>) {
    if constexpr (!is_floating(*dtype_of<T>)) {
      for (T& value : x.mutable_values<T>()) value = static_cast<T>(change(value));
    }
  });
}

}  // namespace lockstep::zoo
