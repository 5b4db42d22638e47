// The instruction sets that lockstep::fold chooses from. All give the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <lockstep/dtype.hpp>
#include <lockstep/sum_rule.hpp>

#if defined(__x86_64__) && defined(__GNUC__)
#define LOCKSTEP_HAS_AVX2_PATH 1
#else
#define LOCKSTEP_HAS_AVX2_PATH 0
#endif

namespace lockstep {

// As lockstep::fold, but for two or more addends.
using FoldPath = void (*)(SumRule rule, DType dtype, std::span<const std::byte* const> addends,
                          std::int64_t elements, std::byte* out);

void fold_portable(SumRule rule, DType dtype, std::span<const std::byte* const> addends,
                   std::int64_t elements, std::byte* out);

#if LOCKSTEP_HAS_AVX2_PATH
// For processors with AVX2 and F16C.
void fold_avx2(SumRule rule, DType dtype, std::span<const std::byte* const> addends,
               std::int64_t elements, std::byte* out);
bool avx2_path_runs_here();
#endif

}  // namespace lockstep
