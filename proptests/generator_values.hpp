// Elements for generated tensors.
#pragma once

#include <cstdint>
#include <vector>

#include <lockstep/dtype.hpp>
#include <lockstep/shape.hpp>
#include <lockstep/tensor.hpp>

#include "dice.hpp"

namespace lockstep::kit {

// Tensors of these shapes, one per rank, for an operation that only moves elements: bit patterns
// that differ on every rank and in every element as far as the dtype has as many, or now and then
// the patterns that careless copies change (NaN payloads, signed zeros, subnormals, extremes).
std::vector<Tensor> elements_to_move(Dice& dice, DType dtype, const std::vector<Shape>& shapes);

// One tensor of this shape per rank, to be added up: sums where order, rounding, overflow and signs
// show (ties, cancellation, mixed magnitudes, subnormals, infinities), and plain distinct integers.
// `dtype` is a floating one.
std::vector<Tensor> elements_to_add(Dice& dice, DType dtype, const Shape& shape, int ranks);

}  // namespace lockstep::kit
