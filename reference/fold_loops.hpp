// The loops of a fold, in plain C++ that the compiler vectorises. Included once for each
// instruction set: hence no include guard, and whatever it needs is included before. It is told
//
//   LOCKSTEP_FOLD_PATH   the namespace, and with `fold_` before it the name of the entry point
//   LOCKSTEP_FOLD_F16C   1 when the conversions of F16C may be used, else 0
//
// Elements are taken in blocks whose running sums stay in the first-level cache, a block's addends
// in groups whose sums stay in registers. A block is summed, rounded and stored before the next
// begins, so that each addend is read once and the result written once.

#ifdef __clang__
#define LOCKSTEP_INDEPENDENT_ITERATIONS _Pragma("clang loop vectorize(assume_safety)")
#else
#define LOCKSTEP_INDEPENDENT_ITERATIONS _Pragma("GCC ivdep")
#endif

namespace lockstep::LOCKSTEP_FOLD_PATH {

inline constexpr std::int64_t block_elements = 512;
inline constexpr std::size_t largest_group = 8;

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

// The running sums of a block, each member of a Sum in an array of its own.
template <class Sum>
struct BlockOf;

template <class T>
struct BlockOf<CertifiedSum<T>> {
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
struct BlockOf<CertifiedSum<f16>> {
  alignas(64) double sum[block_elements];

  CertifiedSum<f16> load(std::int64_t i) const { return {sum[i]}; }
  void store(std::int64_t i, const CertifiedSum<f16>& s) { sum[i] = s.sum; }
};
template <>
struct BlockOf<CertifiedSum<double>> {
  alignas(64) double sum[block_elements];
  alignas(64) double error[block_elements];
  alignas(64) double lost[block_elements];

  CertifiedSum<double> load(std::int64_t i) const { return {sum[i], error[i], lost[i]}; }
  void store(std::int64_t i, const CertifiedSum<double>& s) {
    sum[i] = s.sum;
    error[i] = s.error;
    lost[i] = s.lost;
  }
};
template <class T>
struct BlockOf<CompensatedSum<T>> {
  alignas(64) double sum[block_elements];
  alignas(64) double error[block_elements];
  alignas(64) double magnitudes[block_elements];

  CompensatedSum<T> load(std::int64_t i) const { return {sum[i], error[i], magnitudes[i]}; }
  void store(std::int64_t i, const CompensatedSum<T>& s) {
    sum[i] = s.sum;
    error[i] = s.error;
    magnitudes[i] = s.magnitudes;
  }
};
template <class T>
struct BlockOf<RankOrderSum<T>> {
  using Value = typename RankOrderSum<T>::Value;
  alignas(64) Value sum[block_elements];

  RankOrderSum<T> load(std::int64_t i) const { return {sum[i]}; }
  void store(std::int64_t i, const RankOrderSum<T>& s) { sum[i] = s.sum; }
};

template <std::size_t Group, class Sum, class Lane>
void add_group(const Lane* const* addends, std::int64_t n, BlockOf<Sum>& block) {
  const Lane* x[Group];
  for (std::size_t g = 0; g < Group; ++g) x[g] = addends[g];
  LOCKSTEP_INDEPENDENT_ITERATIONS
  for (std::int64_t i = 0; i < n; ++i) {
    Sum s = block.load(i);
    for (std::size_t g = 0; g < Group; ++g) s.add(x[g][i]);
    block.store(i, s);
  }
}

// Adds elements [begin, begin + n) of every addend to `block`.
template <class Sum, class T>
void add_block(Addends<T> addends, std::int64_t begin, std::int64_t n, BlockOf<Sum>& block) {
  using Lane = std::conditional_t<std::is_same_v<T, f16>, float, T>;
  [[maybe_unused]] alignas(
      64) float widened[std::is_same_v<T, f16> ? largest_group : 1][block_elements];
  for (std::size_t r = 0; r < addends.size();) {
    std::size_t group = largest_group;
    while (group > addends.size() - r) group /= 2;
    const Lane* x[largest_group];
    for (std::size_t g = 0; g < group; ++g) {
      if constexpr (std::is_same_v<T, f16>) {
        widen(addends[r + g] + begin, n, widened[g]);
        x[g] = widened[g];
      } else {
        x[g] = addends[r + g] + begin;
      }
    }
    switch (group) {
      case 8:
        add_group<8>(x, n, block);
        break;
      case 4:
        add_group<4>(x, n, block);
        break;
      case 2:
        add_group<2>(x, n, block);
        break;
      default:
        add_group<1>(x, n, block);
        break;
    }
    r += group;
  }
}

template <class Sum>
void clear(std::int64_t n, BlockOf<Sum>& block) {
  for (std::int64_t i = 0; i < n; ++i) block.store(i, Sum{});
}

// Rounds the block's sums into `out` and tells in `doubtful` which ones are not certified; returns
// whether any is not.
template <class T>
bool round_block(const BlockOf<CertifiedSum<T>>& block, std::int64_t n, int spread, T* out,
                 Flag<T>* doubtful) {
  Flag<T> any = 0;
  LOCKSTEP_INDEPENDENT_ITERATIONS
  for (std::int64_t i = 0; i < n; ++i) {
    const CertifiedSum<T> s = block.load(i);
    out[i] = s.rounded();
    doubtful[i] = s.certified(spread) ? 0 : 1;
    any |= doubtful[i];
  }
  return any != 0;
}
inline bool round_block(const BlockOf<CertifiedSum<f16>>& block, std::int64_t n, int spread,
                        f16* out, Flag<f16>* doubtful) {
  alignas(64) float odd[block_elements];
  for (std::int64_t i = 0; i < n; ++i) odd[i] = block.load(i).rounded_to_odd();
  narrow(odd, n, out);
  std::fill_n(doubtful, n, Flag<f16>{spread < 0});
  return spread < 0;
}

// Sums a block again, with more care, and clears `doubtful` where that certifies the result. Costs
// as much as long sums of a few elements, so it is left out for few.
template <class T>
void reconsider(Addends<T> addends, std::int64_t begin, std::int64_t n, T* out, Flag<T>* doubtful) {
  if (std::accumulate(doubtful, doubtful + n, Flag<T>{0}) <= static_cast<Flag<T>>(n / 16)) return;
  const auto count = static_cast<std::int64_t>(addends.size());
  BlockOf<CompensatedSum<T>> block;
  clear(n, block);
  add_block(addends, begin, n, block);
  LOCKSTEP_INDEPENDENT_ITERATIONS
  for (std::int64_t i = 0; i < n; ++i) {
    const CompensatedSum<T> s = block.load(i);
    const auto rounded = to_bits(s.rounded());
    const auto kept = to_bits(out[i]);
    const Flag<T> settled = doubtful[i] & (s.certified(count) ? 1 : 0);
    out[i] = from_bits<T>(settled != 0 ? rounded : kept);
    doubtful[i] -= settled;
  }
}

template <class T>
void fold_exact(Addends<T> addends, std::int64_t elements, T* out) {
  const int spread = CertifiedSum<T>::widest_spread(static_cast<std::int64_t>(addends.size()));
  BlockOf<CertifiedSum<T>> block;
  alignas(64) Flag<T> doubtful[block_elements];
  for (std::int64_t begin = 0; begin < elements; begin += block_elements) {
    const std::int64_t n = std::min(block_elements, elements - begin);
    clear(n, block);
    add_block(addends, begin, n, block);
    if (!round_block(block, n, spread, out + begin, doubtful)) continue;
    if constexpr (std::is_same_v<T, float> || std::is_same_v<T, bf16>) {
      reconsider(addends, begin, n, out + begin, doubtful);
    }
    sum_doubtful(addends, begin, std::span<const Flag<T>>(doubtful, static_cast<std::size_t>(n)),
                 out);
  }
}

template <class T>
void fold_rank_order(Addends<T> addends, std::int64_t elements, T* out) {
  BlockOf<RankOrderSum<T>> block;
  for (std::int64_t begin = 0; begin < elements; begin += block_elements) {
    const std::int64_t n = std::min(block_elements, elements - begin);
    clear(n, block);
    add_block(addends, begin, n, block);
    LOCKSTEP_INDEPENDENT_ITERATIONS
    for (std::int64_t i = 0; i < n; ++i) out[begin + i] = block.load(i).rounded();
  }
}

// RankOrderSum<f16>, step by step for a whole block, so that hardware rounds to f16.
template <>
inline void fold_rank_order(Addends<f16> addends, std::int64_t elements, f16* out) {
  alignas(64) float sum[block_elements];
  alignas(64) float x[block_elements];
  alignas(64) f16 rounded[block_elements];
  for (std::int64_t begin = 0; begin < elements; begin += block_elements) {
    const std::int64_t n = std::min(block_elements, elements - begin);
    widen(addends[0] + begin, n, sum);
    for (std::size_t r = 1; r < addends.size(); ++r) {
      widen(addends[r] + begin, n, x);
      for (std::int64_t i = 0; i < n; ++i) sum[i] += x[i];
      narrow(sum, n, rounded);
      widen(rounded, n, sum);
    }
    for (std::int64_t i = 0; i < n; ++i) {
      const bool nan = (rounded[i].bits & 0x7fff) > FormatOf<f16>::infinity;
      out[begin + i] = nan ? f16{FormatOf<f16>::quiet_nan} : rounded[i];
    }
  }
}

template <class T>
void fold_elements(SumRule rule, std::span<const std::byte* const> addends, std::int64_t elements,
                   std::byte* out) {
  const Addends<T> values(addends);
  if (rule == SumRule::exact) {
    fold_exact<T>(values, elements, reinterpret_cast<T*>(out));
  } else {
    fold_rank_order<T>(values, elements, reinterpret_cast<T*>(out));
  }
}

inline void fold(SumRule rule, DType dtype, std::span<const std::byte* const> addends,
                 std::int64_t elements, std::byte* out) {
  switch (dtype) {
    case DType::f16:
      return fold_elements<f16>(rule, addends, elements, out);
    case DType::bf16:
      return fold_elements<bf16>(rule, addends, elements, out);
    case DType::f32:
      return fold_elements<float>(rule, addends, elements, out);
    default:
      return fold_elements<double>(rule, addends, elements, out);
  }
}

}  // namespace lockstep::LOCKSTEP_FOLD_PATH

#undef LOCKSTEP_INDEPENDENT_ITERATIONS
