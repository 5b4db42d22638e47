// The rule `unspecified`: could some order of summation have given this result?
//
// Some order, and some intermediate precision no worse than the dtype, is all that NCCL, MPI and
// their like promise. A result is refused only where exact arithmetic proves that no evaluation of
// that kind gives it. For N addends x_i of a dtype with unit roundoff u = 2^-p:
//
// * Error. |result - sum x_i| <= (N-1) u (1 + 2^-8) sum |x_i|. Without the factor this is the bound
//   of Jeannerod and Rump (Improved error bounds for inner products in floating-point arithmetic,
//   SIAM J. Matrix Anal. Appl. 34, 2013), for every order and every N; the factor covers one more
//   rounding, from an accumulator that is at least eight bits wider.
// * No error. Where all x_i are multiples of 2^k and sum |x_i| <= 2^(k+p), every partial sum of
//   every order is a number of the dtype, so the result is the exact sum. This is what finds
//   subnormals flushed to zero.
// * Infinity. A partial sum becomes infinite where, before its own rounding, it reaches half a unit
//   in the last place beyond the largest finite number. Rounding is monotone, so a partial sum is
//   at most what it would be with zeros in place of the negative addends; and of P positive ones
//   that is at most their sum times 1 + ((P-2) + (P-1) 2^-8) u before the last rounding.
// * NaN. Only from a NaN, or from infinities of both signs, whether passed or out of partial sums.
// * Zeros are -0.0 where all addends are, and +0.0 otherwise: sums of numbers of the dtype are
//   multiples of its last subnormal bit, so none underflows to zero.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include <lockstep/dtype.hpp>

namespace lockstep::kit {

// Nothing when `result` can be the sum of these elements (two or more, all of the floating
// `dtype`); otherwise why it cannot, in one line for a person. Fewer than 2^23 addends.
std::optional<std::string> refute_sum(DType dtype, std::span<const std::byte* const> addends,
                                      const std::byte* result);

}  // namespace lockstep::kit
