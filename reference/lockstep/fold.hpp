// Elementwise sums of N equally long arrays, under each sum rule.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <lockstep/dtype.hpp>
#include <lockstep/sum_rule.hpp>

namespace lockstep {

// out[i] = the sum over r of addends[r][i] for i in [0, elements), by `rule` (`unspecified` is served
// as `rank_order`). Every pointer is aligned to its element; `out` overlaps no addend, except that a
// single addend may be `out` itself. One addend is copied bit for bit, NaN payloads included; the
// result of no addend at all is not defined. `dtype` is a floating one.
//
// Runs in the calling thread; callers split large arrays. The bits do not depend on the split nor on
// the instruction set, which is chosen at run time.
void fold(SumRule rule, DType dtype, std::span<const std::byte* const> addends,
          std::int64_t elements, std::byte* out);

}  // namespace lockstep
