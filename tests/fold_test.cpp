#include <gtest/gtest.h>

#include <algorithm>
#include <cfenv>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <lockstep/exact_sum.hpp>
#include <lockstep/fold.hpp>

#include "../reference/fold_paths.hpp"

namespace lockstep {
namespace {

template <class T>
std::vector<T> fold_with(FoldPath path, SumRule rule, const std::vector<std::vector<T>>& ranks) {
  std::vector<const std::byte*> addends;
  for (const std::vector<T>& rank : ranks) {
    addends.push_back(reinterpret_cast<const std::byte*>(rank.data()));
  }
  // One element more than asked for, which must stay as it is.
  std::vector<T> out(ranks[0].size() + 1, from_bits<T>(0x1234));
  path(rule, *dtype_of<T>, addends, static_cast<std::int64_t>(ranks[0].size()),
       reinterpret_cast<std::byte*>(out.data()));
  EXPECT_EQ(to_bits(out.back()), 0x1234u);
  out.pop_back();
  return out;
}

// The bits of the sum of one element per rank.
template <class T>
typename FormatOf<T>::Bits sum(SumRule rule, const std::vector<T>& addends) {
  std::vector<std::vector<T>> ranks;
  for (const T x : addends) ranks.push_back({x});
  return to_bits(fold_with<T>(fold, rule, ranks)[0]);
}

template <class T>
void expect_in_every_order(std::vector<T> addends, T expected) {
  const auto less = [](T a, T b) { return to_bits(a) < to_bits(b); };
  std::sort(addends.begin(), addends.end(), less);
  do {
    EXPECT_EQ(sum(SumRule::exact, addends), to_bits(expected));
  } while (std::next_permutation(addends.begin(), addends.end(), less));
}

f16 h(float x) {
  return to_f16(x);
}
bf16 b(float x) {
  return to_bf16(x);
}

constexpr double f64_max = std::numeric_limits<double>::max();
constexpr float f32_max = std::numeric_limits<float>::max();
constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

TEST(ExactFold, KeepsSmallAddendsThatEveryHopWouldRoundAway) {
  expect_in_every_order<bf16>({b(256), b(1), b(1)}, b(258));
  expect_in_every_order<f16>({h(2048), h(1), h(1)}, h(2050));
  expect_in_every_order<float>({0x1p24f, 1, 1}, 0x1p24f + 2);
  expect_in_every_order<double>({0x1p53, 1, 1}, 0x1p53 + 2);
}

TEST(ExactFold, OverflowsOnlyWhenTheSumDoes) {
  const bf16 bf16_max{0x7f7f};
  const bf16 minus_bf16_max{0xff7f};
  expect_in_every_order<bf16>({bf16_max, bf16_max, minus_bf16_max}, bf16_max);
  expect_in_every_order<f16>({h(65504), h(65504), h(-65504)}, h(65504));
  expect_in_every_order<float>({f32_max, f32_max, -f32_max}, f32_max);
  expect_in_every_order<double>({f64_max, f64_max, -f64_max}, f64_max);
  expect_in_every_order<double>({f64_max, f64_max, -f64_max, -f64_max, 3}, 3);
  EXPECT_EQ(sum<f16>(SumRule::exact, {h(20000), h(20000), h(20000), h(20000)}), 0x7c00);
  EXPECT_EQ(sum<double>(SumRule::exact, {-f64_max, -f64_max}), to_bits(-double{infinity}));
}

TEST(ExactFold, RoundsToInfinityFromHalfALastBitAboveTheLargest) {
  EXPECT_EQ(sum<f16>(SumRule::exact, {h(65504), h(16)}), 0x7c00);
  EXPECT_EQ(sum<f16>(SumRule::exact, {h(65504), h(16), h(-0x1p-24f)}), 0x7bff);
  EXPECT_EQ(sum<float>(SumRule::exact, {f32_max, 0x1p103f}), 0x7f800000u);
  EXPECT_EQ(sum<float>(SumRule::exact, {f32_max, 0x1p103f, -0x1p-149f}), 0x7f7fffffu);
  expect_in_every_order<double>({f64_max, 0x1p970}, double{infinity});
  expect_in_every_order<double>({f64_max, 0x1p970, -0x1p-1074}, f64_max);
}

TEST(ExactFold, RoundsTiesToEvenAndSeesTheSmallestAddendBreakThem) {
  EXPECT_EQ(sum<float>(SumRule::exact, {1, 0x1p-24f}), to_bits(1.0f));
  EXPECT_EQ(sum<float>(SumRule::exact, {1 + 0x1p-23f, 0x1p-24f}), to_bits(1 + 0x1p-22f));
  // In a double the last addend is lost, and what is left looks like a tie.
  expect_in_every_order<float>({1, 0x1p-24f, 0x1p-149f}, 1 + 0x1p-23f);
  expect_in_every_order<float>({1 + 0x1p-23f, 0x1p-24f, -0x1p-149f}, 1 + 0x1p-23f);
  expect_in_every_order<bf16>({b(1), b(0x1p-8f), b(0x1p-133f)}, b(1 + 0x1p-7f));
  // In a float this one would be.
  expect_in_every_order<bf16>({b(1), b(0x1p-8f), b(0x1p-30f)}, b(1 + 0x1p-7f));
  expect_in_every_order<f16>({h(2048), h(1), h(0x1p-24f)}, h(2050));
  expect_in_every_order<double>({1, 0x1p-53, 0x1p-1074}, 1 + 0x1p-52);
  expect_in_every_order<double>({1, -0x1p-54, -0x1p-1074}, 1 - 0x1p-53);
  expect_in_every_order<double>({1, -0x1p-54}, 1);
}

TEST(ExactFold, KeepsSubnormalSums) {
  expect_in_every_order<float>({0x1p-126f, -0x1p-149f}, 0x1p-126f - 0x1p-149f);
  expect_in_every_order<double>({0x1p-1022, -0x1p-1074}, 0x1p-1022 - 0x1p-1074);
  expect_in_every_order<double>({1, 0x1p-1074, -1}, 0x1p-1074);
  expect_in_every_order<float>({0x1p127f, 0x1p-149f, -0x1p127f}, 0x1p-149f);
  EXPECT_EQ(sum<f16>(SumRule::exact, {f16{1}, f16{2}, f16{0x8004}}), 0x8001);
  EXPECT_EQ(sum<bf16>(SumRule::exact, {bf16{1}, bf16{2}, bf16{0x8004}}), 0x8001);
}

TEST(ExactFold, KeepsSubnormalsWhenTheProgramFlushesThem) {
#ifdef __SSE2__
  const unsigned saved = __builtin_ia32_stmxcsr();
  __builtin_ia32_ldmxcsr(saved | 0x8040);  // flush to zero, denormals are zero
  const auto flushed = sum<float>(SumRule::exact, {0x1p-126f, -0x1p-149f});
  const unsigned during = __builtin_ia32_stmxcsr();
  __builtin_ia32_ldmxcsr(saved);
  EXPECT_EQ(flushed, 0x007fffffu);
  EXPECT_EQ(during & 0x8040, 0x8040u) << "the program's own mode is put back";
#endif
}

TEST(ExactFold, RoundsToNearestWhateverTheProgramsRoundingMode) {
  ASSERT_EQ(std::fesetround(FE_UPWARD), 0);
  const auto exact = sum<float>(SumRule::exact, {1, 0x1p-30f});
  const auto in_order = sum<float>(SumRule::rank_order, {1, 0x1p-30f});
  const int during = std::fegetround();
  std::fesetround(FE_TONEAREST);
  EXPECT_EQ(exact, to_bits(1.0f));
  EXPECT_EQ(in_order, to_bits(1.0f));
  EXPECT_EQ(during, FE_UPWARD);
}

template <class T>
void expect_rules_of_infinities_and_nans() {
  using Format = FormatOf<T>;
  const T inf = from_bits<T>(Format::infinity);
  const T minus_inf =
      from_bits<T>(static_cast<typename Format::Bits>(Format::infinity | Format::sign_bit));
  const T quiet = from_bits<T>(Format::quiet_nan);
  const T signalling = from_bits<T>(static_cast<typename Format::Bits>(Format::infinity | 1));
  const T largest = from_bits<T>(static_cast<typename Format::Bits>(Format::infinity - 1));
  const T zero = from_bits<T>(0);
  expect_in_every_order<T>({inf, largest, zero}, inf);
  expect_in_every_order<T>({inf, inf, largest}, inf);
  expect_in_every_order<T>({minus_inf, largest, largest}, minus_inf);
  expect_in_every_order<T>({inf, minus_inf, zero}, quiet);
  expect_in_every_order<T>({quiet, largest, zero}, quiet);
  expect_in_every_order<T>({signalling, largest, inf}, quiet);
  EXPECT_EQ(sum<T>(SumRule::rank_order, {inf, minus_inf, zero}), to_bits(quiet));
  EXPECT_EQ(sum<T>(SumRule::rank_order, {largest, signalling, inf}), to_bits(quiet));
  EXPECT_EQ(sum<T>(SumRule::rank_order, {largest, largest, minus_inf}), to_bits(quiet));
}

TEST(Fold, GivesNanForAnyNanAndForInfinitiesOfBothSigns) {
  expect_rules_of_infinities_and_nans<f16>();
  expect_rules_of_infinities_and_nans<bf16>();
  expect_rules_of_infinities_and_nans<float>();
  expect_rules_of_infinities_and_nans<double>();
}

template <class T>
void expect_rules_of_zeros(SumRule rule) {
  const T zero = from_bits<T>(0);
  const T minus_zero = from_bits<T>(FormatOf<T>::sign_bit);
  const T one = from_bits<T>(static_cast<typename FormatOf<T>::Bits>(
      typename FormatOf<T>::Bits{FormatOf<T>::bias} << FormatOf<T>::fraction_bits));
  const T minus_one =
      from_bits<T>(static_cast<typename FormatOf<T>::Bits>(to_bits(one) | FormatOf<T>::sign_bit));
  EXPECT_EQ(sum<T>(rule, {minus_zero}), to_bits(minus_zero));
  EXPECT_EQ(sum<T>(rule, {minus_zero, minus_zero}), to_bits(minus_zero));
  EXPECT_EQ(sum<T>(rule, {minus_zero, minus_zero, minus_zero}), to_bits(minus_zero));
  EXPECT_EQ(sum<T>(rule, {minus_zero, zero}), 0u);
  EXPECT_EQ(sum<T>(rule, {zero, minus_zero, minus_zero}), 0u);
  EXPECT_EQ(sum<T>(rule, {one, minus_one}), 0u);
  EXPECT_EQ(sum<T>(rule, {one, minus_one, minus_zero}), 0u);
}

TEST(Fold, IsMinusZeroOnlyWhenEveryAddendIs) {
  for (const SumRule rule : {SumRule::exact, SumRule::rank_order}) {
    expect_rules_of_zeros<f16>(rule);
    expect_rules_of_zeros<bf16>(rule);
    expect_rules_of_zeros<float>(rule);
    expect_rules_of_zeros<double>(rule);
  }
}

TEST(RankOrderFold, RoundsAtEveryStep) {
  EXPECT_EQ(sum<bf16>(SumRule::rank_order, {b(256), b(1), b(1)}), b(256).bits);
  EXPECT_EQ(sum<bf16>(SumRule::rank_order, {b(1), b(1), b(256)}), b(258).bits);
  EXPECT_EQ(sum<f16>(SumRule::rank_order, {h(2048), h(1), h(1)}), h(2048).bits);
  EXPECT_EQ(sum<f16>(SumRule::rank_order, {h(1), h(1), h(2048)}), h(2050).bits);
  EXPECT_EQ(sum<float>(SumRule::rank_order, {0x1p24f, 1, 1}), to_bits(0x1p24f));
  EXPECT_EQ(sum<double>(SumRule::rank_order, {0x1p53, 1, 1}), to_bits(0x1p53));
  EXPECT_EQ(sum<float>(SumRule::rank_order, {f32_max, f32_max, -f32_max}), 0x7f800000u);
  EXPECT_EQ(sum<bf16>(SumRule::rank_order, {bf16{0x7f7f}, bf16{0x7f7f}, bf16{0xff7f}}), 0x7f80);
  EXPECT_EQ(sum<f16>(SumRule::rank_order, {h(65504), h(65504), h(-65504)}), 0x7c00);
}

TEST(RankOrderFold, ServesTheUnspecifiedRule) {
  EXPECT_EQ(sum<float>(SumRule::unspecified, {0x1p24f, 1, 1}), to_bits(0x1p24f));
}

// Bits of all kinds, different in every element and on every rank.
template <class T>
std::vector<std::vector<T>> varied_ranks(std::size_t ranks, std::size_t elements) {
  using Format = FormatOf<T>;
  std::uint64_t state = 0x9e3779b97f4a7c15 * (ranks * 1000 + elements + 1);
  std::vector<std::vector<T>> result(ranks);
  for (auto& rank : result) {
    for (std::size_t i = 0; i < elements; ++i) {
      state ^= state << 13;
      state ^= state >> 7;
      state ^= state << 17;
      auto bits = static_cast<typename Format::Bits>(state >> 11);
      if (i % 5 != 0) {
        // Half the range of exponents for some elements, four exponents for the others.
        const auto field = static_cast<typename Format::Bits>(
            i % 3 == 0 ? (bits & Format::infinity) >> (Format::fraction_bits + 1)
                       : static_cast<typename Format::Bits>(Format::bias) + bits % 4);
        bits = static_cast<typename Format::Bits>(
            (bits & ~Format::infinity) |
            static_cast<typename Format::Bits>(field << Format::fraction_bits));
      }
      rank.push_back(from_bits<T>(bits));
    }
  }
  return result;
}

template <class T>
void expect_equal_paths() {
  for (const SumRule rule : {SumRule::exact, SumRule::rank_order}) {
    for (const std::size_t ranks : {2u, 3u, 7u, 8u, 9u, 21u}) {
      for (const std::size_t elements : {0u, 1u, 3u, 7u, 127u, 129u, 511u, 512u, 513u, 1537u}) {
        const auto addends = varied_ranks<T>(ranks, elements);
        const std::vector<T> portable = fold_with(fold_portable, rule, addends);
        // Element by element, by the definitions.
        for (std::size_t i = 0; i < elements; ++i) {
          T expected;
          if (rule == SumRule::exact) {
            DigitAccumulator<T> total;
            expected = long_sum<T>(
                static_cast<std::int64_t>(ranks),
                [&](std::int64_t r) { return addends[static_cast<std::size_t>(r)][i]; }, total);
          } else {
            expected = addends[0][i];
            for (std::size_t r = 1; r < ranks; ++r) {
              if constexpr (std::is_same_v<T, f16>) {
                expected = to_f16(to_float(expected) + to_float(addends[r][i]));
              } else if constexpr (std::is_same_v<T, bf16>) {
                expected = to_bf16(to_float(expected) + to_float(addends[r][i]));
              } else {
                expected = expected + addends[r][i];
              }
            }
            const auto magnitude = to_bits(expected) & ~FormatOf<T>::sign_bit;
            if (magnitude > FormatOf<T>::infinity) {
              expected = from_bits<T>(FormatOf<T>::quiet_nan);
            }
          }
          ASSERT_EQ(to_bits(portable[i]), to_bits(expected))
              << name(rule) << " of " << ranks << " ranks, element " << i << " of " << elements;
        }
#if LOCKSTEP_HAS_AVX2_PATH
        if (!avx2_path_runs_here()) continue;
        const std::vector<T> avx2 = fold_with(fold_avx2, rule, addends);
        for (std::size_t i = 0; i < elements; ++i) {
          ASSERT_EQ(to_bits(avx2[i]), to_bits(portable[i]))
              << name(rule) << " of " << ranks << " ranks, element " << i << " of " << elements;
        }
#endif
      }
    }
  }
}

TEST(Fold, GivesTheSameBitsOnEveryInstructionSetF16) {
  expect_equal_paths<f16>();
}
TEST(Fold, GivesTheSameBitsOnEveryInstructionSetBf16) {
  expect_equal_paths<bf16>();
}
TEST(Fold, GivesTheSameBitsOnEveryInstructionSetF32) {
  expect_equal_paths<float>();
}
TEST(Fold, GivesTheSameBitsOnEveryInstructionSetF64) {
  expect_equal_paths<double>();
}

TEST(Fold, DoesNotDependOnHowAnArrayIsSplit) {
  const auto ranks = varied_ranks<float>(5, 1000);
  const std::vector<float> whole = fold_with<float>(fold, SumRule::exact, ranks);
  for (std::size_t begin = 0, length = 1; begin < 1000; begin += length, length = length * 2 + 1) {
    std::vector<std::vector<float>> part;
    const std::size_t end = std::min<std::size_t>(1000, begin + length);
    for (const auto& rank : ranks) {
      part.emplace_back(rank.begin() + static_cast<std::ptrdiff_t>(begin),
                        rank.begin() + static_cast<std::ptrdiff_t>(end));
    }
    const std::vector<float> sums = fold_with<float>(fold, SumRule::exact, part);
    for (std::size_t i = begin; i < end; ++i)
      ASSERT_EQ(to_bits(sums[i - begin]), to_bits(whole[i]));
  }
}

TEST(Fold, OfOneAddendKeepsEveryBitAlsoInPlace) {
  std::vector<std::uint32_t> bits = {0x7fa00123, 0xffc00001, 0x80000000, 1, 0x7f800000};
  const std::vector<std::uint32_t> before = bits;
  std::vector<std::uint32_t> out(bits.size());
  const std::byte* addend = reinterpret_cast<const std::byte*>(bits.data());
  fold(SumRule::exact, DType::f32, {&addend, 1}, 5, reinterpret_cast<std::byte*>(out.data()));
  EXPECT_EQ(out, before);
  fold(SumRule::exact, DType::f32, {&addend, 1}, 5, reinterpret_cast<std::byte*>(bits.data()));
  EXPECT_EQ(bits, before);
}

TEST(Fold, OfNoElementsTouchesNothing) {
  const std::byte* addends[] = {nullptr, nullptr};
  fold(SumRule::exact, DType::f64, addends, 0, nullptr);
}

// A f16 is a whole number of 2^-24, so sums of a few fit a 64-bit integer.
std::int64_t units(f16 x) {
  const std::int64_t fraction = x.bits & 0x3ff;
  const int field = (x.bits >> 10) & 31;
  const std::int64_t magnitude = field == 0 ? fraction : (fraction | 0x400) << (field - 1);
  return x.bits >> 15 != 0 ? -magnitude : magnitude;
}

// The nearest f16 by trying: the closest of all, and of two equally close ones the even one.
f16 nearest_by_search(std::int64_t wanted) {
  const std::int64_t magnitude = std::abs(wanted);
  if (magnitude >= units(h(65504)) + (std::int64_t{16} << 24)) {
    return f16{static_cast<std::uint16_t>(wanted < 0 ? 0xfc00 : 0x7c00)};
  }
  std::uint16_t low = 0;  // the largest that is not above
  for (std::uint16_t step = 0x4000; step != 0; step = static_cast<std::uint16_t>(step / 2)) {
    const auto next = static_cast<std::uint16_t>(low + step);
    if (next < 0x7c00 && units(f16{next}) <= magnitude) low = next;
  }
  if (low < 0x7bff) {
    const std::int64_t down = magnitude - units(f16{low});
    const std::int64_t up = units(f16{static_cast<std::uint16_t>(low + 1)}) - magnitude;
    if (up < down || (up == down && low % 2 == 1)) ++low;
  }
  return f16{static_cast<std::uint16_t>(wanted < 0 ? low | 0x8000 : low)};
}

TEST(ExactFold, AgreesWithIntegersOnEveryF16) {
  std::vector<f16> all;
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    if ((bits & 0x7c00) != 0x7c00) all.push_back(f16{static_cast<std::uint16_t>(bits)});
  }
  const std::vector<std::vector<f16>> partners = {{h(1)},
                                                  {f16{1}},
                                                  {h(-65504), h(65504)},
                                                  {h(2048), h(1)},
                                                  {f16{0x83ff}, f16{0x0400}},
                                                  {h(0.5f), h(-0x1p-24f), h(-1024), h(0.1f)}};
  for (const std::vector<f16>& partner : partners) {
    std::vector<std::vector<f16>> ranks = {all};
    std::int64_t fixed = 0;
    for (const f16 x : partner) {
      ranks.emplace_back(all.size(), x);
      fixed += units(x);
    }
    const std::vector<f16> sums = fold_with<f16>(fold, SumRule::exact, ranks);
    for (std::size_t i = 0; i < all.size(); ++i) {
      ASSERT_EQ(sums[i].bits, nearest_by_search(units(all[i]) + fixed).bits) << all[i].bits;
    }
  }
}

TEST(ExactFold, SumsInADoubleOnlyWhatADoubleHolds) {
  // The first three add up to a tie just above 4, broken by the last bit of the fourth, which lies
  // half a last bit below the partial sum in double.
  expect_in_every_order<float>({1.5f, 1.5f, 1 + 0x1p-22f, 0x1p-28f + 0x1p-51f, -0x1p-28f},
                               4 + 0x1p-21f);
  expect_in_every_order<bf16>(
      {b(1.5f), b(1.5f), b(1 + 0x1p-6f), b(0x1p-44f + 0x1p-51f), b(-0x1p-44f)}, b(4 + 0x1p-5f));
}

// Rounding errors that decide, in blocks where they are so many that all elements are summed with
// more care before any is summed by the long accumulator.
template <class T>
void expect_of_many_columns(const std::vector<std::vector<T>>& columns,
                            const std::vector<T>& expected) {
  constexpr std::size_t repeats = 257;
  std::vector<std::vector<T>> ranks(columns[0].size());
  for (std::size_t i = 0; i < repeats * columns.size(); ++i) {
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      ranks[r].push_back(columns[i % columns.size()][r]);
    }
  }
  for (const FoldPath path : {FoldPath{fold}, FoldPath{fold_portable}}) {
    const std::vector<T> sums = fold_with(path, SumRule::exact, ranks);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      ASSERT_EQ(to_bits(sums[i]), to_bits(expected[i % columns.size()])) << "element " << i;
    }
  }
}

TEST(ExactFold, DecidesTiesWhereAllExponentsAreFarApart) {
  expect_of_many_columns<float>(
      {{1, 0x1p-24f, 0x1p-149f},
       {1, 0x1p-24f, -0x1p-149f},
       {0x1p127f, 0x1p-149f, -0x1p127f},
       {-0x1p-149f, 1, -1},
       {f32_max, 0x1p103f, 0x1p-149f},
       {f32_max, 0x1p103f, -0x1p-149f},
       {1, 0x1p-80f, 0x1p-140f},
       {0x1p100f, 0x1p-100f, -0x1p100f}},
      {1 + 0x1p-23f, 1, 0x1p-149f, -0x1p-149f, infinity, f32_max, 1, 0x1p-100f});
  expect_of_many_columns<bf16>({{b(1), b(0x1p-8f), b(0x1p-133f)},
                                {b(1), b(0x1p-8f), b(-0x1p-133f)},
                                {b(0x1p-133f), b(0x1p100f), b(-0x1p100f)},
                                {b(3), b(0x1p-70f), b(-0x1p-130f)}},
                               {b(1 + 0x1p-7f), b(1), b(0x1p-133f), b(3)});
  expect_of_many_columns<double>({{1, 0x1p-53, 0x1p-1074},
                                  {1, 0x1p-53, -0x1p-1074},
                                  {1, 0x1p-53, 0},
                                  {1 + 0x1p-52, 0x1p-53, -0x1p-1074},
                                  {1, 0x1p-600, 0x1p-1074},
                                  {0x1p1000, 0x1p-1074, -0x1p1000},
                                  {f64_max, 0x1p970, -0x1p-1074},
                                  {f64_max, f64_max, -f64_max}},
                                 {1 + 0x1p-52, 1, 1, 1 + 0x1p-52, 1, 0x1p-1074, f64_max, f64_max});
}

TEST(ExactFold, OfMoreRanksThanADoubleHoldsForF16) {
  std::vector<f16> addends = {f16{1}};  // 2^-24, and then 8200 * 65504 > 2^29
  addends.insert(addends.end(), 8200, h(65504));
  addends.insert(addends.end(), 8200, h(-65504));
  EXPECT_EQ(sum(SumRule::exact, addends), 1);
  addends.push_back(h(31));
  EXPECT_EQ(sum(SumRule::exact, addends), h(31).bits);
}

TEST(ExactFold, OfAThousandRanks) {
  std::vector<double> f64(1000, 0.1);
  f64[500] = 1e16;
  // 999 * (0.1 + 2^-54 * 0.4) + 1e16 = 1e16 + 99.9..., where doubles are two apart.
  EXPECT_EQ(sum(SumRule::exact, f64), to_bits(1e16 + 100));
  std::vector<float> f32(1000, 1);
  f32[7] = 0x1p100f;
  f32[8] = -0x1p100f;
  EXPECT_EQ(sum(SumRule::exact, f32), to_bits(998.0f));
}

TEST(LongAccumulator, HoldsTheScaledSumsOfTheErrorBound) {
  LongAccumulator bound;
  bound.add(f64_max);
  bound.add(f64_max);
  bound.multiply(0xffffffff);
  bound.multiply(257);
  bound.multiply_by_power_of_two(61);
  LongAccumulator twice = bound;
  twice.add(bound);
  EXPECT_EQ(compare(bound, twice), -1);
  twice.subtract(bound);
  EXPECT_EQ(compare(bound, twice), 0);
  twice.subtract(0x1p-1074);
  EXPECT_EQ(compare(bound, twice), 1);
  twice.negate();
  EXPECT_EQ(twice.sign(), -1);
  twice.add(bound);
  EXPECT_EQ(twice.round_to<double>(), 0x1p-1074);
  EXPECT_EQ(bound.round_to<double>(), double{infinity});
}

TEST(LongAccumulator, RoundsToEveryDtype) {
  LongAccumulator x;
  x.add(1.0);
  x.add(h(0x1p-11f));
  EXPECT_EQ(x.round_to<f16>(), h(1));
  x.add(0x1p-1074);
  EXPECT_EQ(x.round_to<f16>(), h(1 + 0x1p-10f));
  EXPECT_EQ(x.round_to<bf16>(), b(1));
  EXPECT_EQ(x.round_to<float>(), 1 + 0x1p-11f);
  x.subtract(1.0f);
  x.subtract(b(0x1p-11f));
  EXPECT_EQ(x.round_to<float>(), 0);
  EXPECT_EQ(x.round_to<double>(), 0x1p-1074);
  x.subtract(0x1p-1074);
  EXPECT_EQ(x.sign(), 0);
  EXPECT_EQ(to_bits(x.round_to<double>()), 0u);
}

static_assert(
    [] {
      LongAccumulator x;
      x.add(0.1);
      x.subtract(0.1f);
      return x.sign();
    }() < 0,
    "the arithmetic is that of constant expressions");

TEST(Fold, PropagatesANanFromAnyRank) {
  for (int rank = 0; rank < 3; ++rank) {
    std::vector<float> addends = {1, 2, 3};
    addends[static_cast<std::size_t>(rank)] = nan;
    EXPECT_EQ(sum(SumRule::exact, addends), 0x7fc00000u);
    EXPECT_EQ(sum(SumRule::rank_order, addends), 0x7fc00000u);
  }
}

}  // namespace
}  // namespace lockstep
