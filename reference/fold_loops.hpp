// The loops of a fold, in plain C++ that the compiler vectorises. Included once for each instruction
// set, with LOCKSTEP_FOLD_PATH naming the namespace and LOCKSTEP_FOLD_F16C saying whether the F16C
// conversions may be used; so no include guard, and everything it needs is included before.
//
// Elements are taken in blocks small enough that a block's running sums stay in the first-level
// cache, and a block's addends in groups whose sums stay in registers. A block is finished, rounded
// and stored, before the next one begins: each addend is read once, the result written once.

namespace lockstep::LOCKSTEP_FOLD_PATH {

inline constexpr std::int64_t block_elements = 512;

// What a vector loop adds up: the 16-bit formats as floats.
template <class T>
struct LaneOf {
  using type = T;
};
template <>
struct LaneOf<f16> {
  using type = float;
};

inline void widen(const f16* from, std::int64_t n, float* to) {
  std::int64_t i = 0;
#if LOCKSTEP_FOLD_F16C
  for (; i + 8 <= n; i += 8) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(halves));
  }
#endif
  for (; i < n; ++i) to[i] = to_float(from[i]);
}

inline void narrow(const float* from, std::int64_t n, f16* to) {
  std::int64_t i = 0;
#if LOCKSTEP_FOLD_F16C
  for (; i + 8 <= n; i += 8) {
    const __m128i halves = _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), halves);
  }
#endif
  for (; i < n; ++i) to[i] = to_f16(from[i]);
}

// The running sums of one block, each member of CertifiedSum in an array of its own.
template <class T>
struct BlockSum {
  alignas(64) double sum[block_elements];
  alignas(64) std::uint32_t smallest[block_elements];
  alignas(64) std::int32_t largest[block_elements];

  CertifiedSum<T> load(std::int64_t i) const { return {sum[i], smallest[i], largest[i]}; }
  void store(std::int64_t i, const CertifiedSum<T>& s) {
    sum[i] = s.sum;
    smallest[i] = s.smallest;
    largest[i] = s.largest;
  }
};
template <>
struct BlockSum<f16> {
  alignas(64) double sum[block_elements];

  CertifiedSum<f16> load(std::int64_t i) const { return {sum[i]}; }
  void store(std::int64_t i, const CertifiedSum<f16>& s) { sum[i] = s.sum; }
};
template <>
struct BlockSum<double> {
  alignas(64) double sum[block_elements];
  alignas(64) double error[block_elements];
  alignas(64) std::uint64_t lost[block_elements];

  CertifiedSum<double> load(std::int64_t i) const { return {sum[i], error[i], lost[i]}; }
  void store(std::int64_t i, const CertifiedSum<double>& s) {
    sum[i] = s.sum;
    error[i] = s.error;
    lost[i] = s.lost;
  }
};

template <class T, int Group>
void add_group(const typename LaneOf<T>::type* const* addends, std::int64_t n, bool first, BlockSum<T>& block) {
  const typename LaneOf<T>::type* x[Group];
  for (int g = 0; g < Group; ++g) x[g] = addends[g];
  if (first) {
  LOCKSTEP_INDEPENDENT_ITERATIONS
  for (std::int64_t i = 0; i < n; ++i) {
    CertifiedSum<T> s;
    for (int g = 0; g < Group; ++g) s.add(x[g][i]);
    block.store(i, s);
  }
  } else {
  LOCKSTEP_INDEPENDENT_ITERATIONS
  for (std::int64_t i = 0; i < n; ++i) {
    CertifiedSum<T> s = block.load(i);
    for (int g = 0; g < Group; ++g) s.add(x[g][i]);
    block.store(i, s);
  }
  }
}

template <class T>
void exact_test(std::span<const T* const> addends, std::int64_t elements, T* out) {
  using Lane = typename LaneOf<T>::type;
  BlockSum<T> block;
  const int spread = CertifiedSum<T>::widest_spread((std::int64_t)addends.size());
  alignas(64) std::uint32_t bad[block_elements];
  alignas(64) float widened[8][block_elements];
  for (std::int64_t b = 0; b < elements; b += block_elements) {
    const std::int64_t n = std::min(block_elements, elements - b);
    const Lane* x[8];
    for (std::size_t r = 0; r < addends.size();) {
      std::size_t left = addends.size() - r;
      int g = left >= 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
      for (int k = 0; k < g; ++k) {
        if constexpr (std::is_same_v<T, f16>) { widen(addends[r + k] + b, n, widened[k]); x[k] = widened[k]; }
        else x[k] = addends[r + k] + b;
      }
      switch (g) {
        case 8: add_group<T, 8>(x, n, r == 0, block); break;
        case 4: add_group<T, 4>(x, n, r == 0, block); break;
        case 2: add_group<T, 2>(x, n, r == 0, block); break;
        default: add_group<T, 1>(x, n, r == 0, block); break;
      }
      r += g;
    }
    std::uint32_t any = 0;
    T* o = out + b;
    if constexpr (std::is_same_v<T, f16>) {
      for (std::int64_t i = 0; i < n; ++i) widened[0][i] = block.load(i).rounded_to_odd();
      narrow(widened[0], n, o);
      any = 0;
    } else {
  LOCKSTEP_INDEPENDENT_ITERATIONS
    for (std::int64_t i = 0; i < n; ++i) {
      CertifiedSum<T> s = block.load(i);
      o[i] = s.rounded();
      bad[i] = !s.certified(spread);
      any |= bad[i];
    }
    }
    if (any) for (std::int64_t i = 0; i < n; ++i) if (bad[i]) o[i] = long_sum<T>((std::int64_t)addends.size(), [&](std::int64_t r) { return addends[r][b + i]; });
  }
}
}
