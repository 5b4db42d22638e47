// The fold for any processor.
#include <algorithm>
#include <numeric>
#include <type_traits>

#include <lockstep/exact_sum.hpp>
#include <lockstep/rank_order_sum.hpp>

#include "fold_doubtful.hpp"
#include "fold_paths.hpp"

#define LOCKSTEP_FOLD_PATH portable
#define LOCKSTEP_FOLD_F16C 0
#include "fold_loops.hpp"

namespace lockstep {

static_assert(arithmetic_is_ieee, "sums of floating numbers need IEEE arithmetic: no -ffast-math");

void fold_portable(SumRule rule, DType dtype, std::span<const std::byte* const> addends,
                   std::int64_t elements, std::byte* out) {
  portable::fold(rule, dtype, addends, elements, out);
}

}  // namespace lockstep
