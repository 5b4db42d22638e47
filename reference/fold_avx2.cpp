// The fold for x86 processors with AVX2 and F16C.
#include "fold_paths.hpp"

#if LOCKSTEP_HAS_AVX2_PATH

#include <cpuid.h>
#include <immintrin.h>

#include <algorithm>
#include <numeric>
#include <type_traits>

#include <lockstep/exact_sum.hpp>
#include <lockstep/rank_order_sum.hpp>

#include "fold_doubtful.hpp"

// The instruction set is raised for these loops only, not for the whole file: an inline function of
// the headers above, compiled for AVX2, might be the copy that the linker keeps for everybody.
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,f16c")
#endif

#define LOCKSTEP_FOLD_PATH avx2
#define LOCKSTEP_FOLD_F16C 1
#include "fold_loops.hpp"

#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace lockstep {

void fold_avx2(SumRule rule, DType dtype, std::span<const std::byte* const> addends,
               std::int64_t elements, std::byte* out) {
  avx2::fold(rule, dtype, addends, elements, out);
}

bool avx2_path_runs_here() {
  // The builtin also asks whether the operating system saves the wide registers, but does not know
  // F16C in every compiler.
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  const bool f16c = __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
  return f16c && __builtin_cpu_supports("avx2") != 0;
}

}  // namespace lockstep

#endif
