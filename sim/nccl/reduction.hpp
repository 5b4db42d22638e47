// NCCL's reductions on the host: for every datatype and operator, element by element.
//
// A partial result has the datatype itself: every step computes exactly or in a wider format and
// rounds once to the datatype, ties to even, as a GPU does when it passes partial results on.
//
// - float16 and bfloat16 sums and products go through float, which rounds them as one step would.
// - float8 goes through float64 and saturates: what lies beyond the largest finite value becomes
//   that value, also for float8e5m2, which has infinities.
// - Integers wrap around.
// - Maximum and minimum of floating values pass over a NaN, and order -0 below +0.
// - The average of integers divides the finished sum by the number of ranks, towards zero. The
//   average of floating values multiplies every addend with the reciprocal of the number of ranks,
//   rounded to the datatype, before it is added; so a premultiplied sum does with its scalar.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "nccl_header.hpp"

namespace lockstep::nccl {

enum class Operator : std::uint8_t { sum, prod, max, min, avg, premultiplied_sum };

std::string name_of(Operator op);

// The scalar of a premultiplied sum: an element of the datatype.
using Scalar = std::array<std::byte, 8>;

// What a rank does to its own addends before they travel, and to what arrived at the end.
// `values`: elements of `datatype`; as many bytes as a whole number of elements.
void multiply(std::span<std::byte> values, ncclDataType_t datatype, const Scalar& scalar);
// Divides by the number of ranks, towards zero. Integers only.
void divide(std::span<std::byte> values, ncclDataType_t datatype, int ranks);
// 1 / ranks, rounded to a floating datatype.
Scalar reciprocal(int ranks, ncclDataType_t datatype);

// partial = partial op addend, element by element; both of the same length.
void combine(std::span<std::byte> partial, std::span<const std::byte> addend,
             ncclDataType_t datatype, Operator op);

}  // namespace lockstep::nccl
