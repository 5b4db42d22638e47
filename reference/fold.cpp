#include <cfenv>
#include <cstring>

#include <lockstep/fold.hpp>

#include "fold_paths.hpp"

#ifdef __SSE2__
#include <immintrin.h>
#endif

namespace lockstep {
namespace {

// Round to nearest, subnormals kept, for the life of the object. Programs change these per thread,
// often without knowing: linking anything built with -ffast-math turns on flush-to-zero.
class DefaultFloatingPointMode {
 public:
  DefaultFloatingPointMode(const DefaultFloatingPointMode&) = delete;
  DefaultFloatingPointMode& operator=(const DefaultFloatingPointMode&) = delete;
#ifdef __SSE2__
  DefaultFloatingPointMode() : saved_(_mm_getcsr()) {
    _mm_setcsr(0x1f80);
  }
  ~DefaultFloatingPointMode() {
    _mm_setcsr(saved_);
  }

 private:
  unsigned saved_;
#else
  DefaultFloatingPointMode() {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultFloatingPointMode() {
    std::fesetenv(&saved_);
  }

 private:
  std::fenv_t saved_;
#endif
};

FoldPath best_path() {
#if LOCKSTEP_HAS_AVX2_PATH
  if (avx2_path_runs_here()) return fold_avx2;
#endif
  return fold_portable;
}

}  // namespace

void fold(SumRule rule, DType dtype, std::span<const std::byte* const> addends,
          std::int64_t elements, std::byte* out) {
  if (elements == 0 || addends.empty()) return;
  if (addends.size() == 1) {
    if (addends[0] != out) {
      std::memcpy(out, addends[0], static_cast<std::size_t>(elements * size_of(dtype)));
    }
    return;
  }
  static const FoldPath path = best_path();
  const DefaultFloatingPointMode mode;
  path(rule, dtype, addends, elements, out);
}

}  // namespace lockstep
