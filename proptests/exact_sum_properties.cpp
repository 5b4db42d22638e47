// Every way to an exact sum against MPFR's correctly rounded one, bit for bit.
//
// RapidCheck draws a seed and a number of addends; a fast generator makes thousands of sums of
// them, aimed at what goes wrong: ties, and ties broken by a bit far below; cancellation;
// subnormals; the edge of overflow; wide spreads of exponents; zeros of both signs; infinities and
// NaNs.
#include <mpfr.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <rapidcheck.h>

#include <lockstep/dtype.hpp>
#include <lockstep/element_text.hpp>
#include <lockstep/exact_sum.hpp>
#include <lockstep/fold.hpp>

#include "../reference/fold_paths.hpp"

namespace lockstep {
namespace {

constexpr int most_addends = 40;
constexpr std::int64_t sums_per_case = 12'000;
constexpr std::int64_t sums_wanted = 1'000'000;

// xorshift64*: quality enough to choose bits, and far cheaper than the sums.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : state_(seed * 2 + 1) {
    for (int i = 0; i < 8; ++i) bits();
  }
  std::uint64_t bits() {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return state_ * 0x2545f4914f6cdd1d;
  }
  // 0 <= result < bound
  int below(int bound) {
    return static_cast<int>((bits() >> 32) * static_cast<std::uint64_t>(bound) >> 32);
  }
  bool coin() { return bits() >> 63 != 0; }

 private:
  std::uint64_t state_;
};

// The addends of one sum.
template <class T>
class Addends {
 public:
  using Format = FormatOf<T>;
  using Bits = typename Format::Bits;
  static constexpr int highest_field = Format::largest_exponent_field - 1;

  Addends(Dice& dice, int count) : dice_(dice), count_(count) {}

  std::vector<T> draw() {
    values_.clear();
    switch (dice_.below(10)) {
      case 0:
        fill_between(0, highest_field);
        break;
      case 1:
        fill_near(dice_.below(highest_field + 1), 3);
        break;
      case 2:
        fill_near(dice_.below(highest_field + 1), 40);
        break;
      case 3:
        tie(1 + dice_.below(highest_field));
        break;
      case 4:
        tie(1 + std::min(highest_field - 1, Format::fraction_bits + dice_.below(4)));
        break;
      case 5:
        tie_at_the_edge_of_overflow();
        break;
      case 6:
        fill_between(0, 2);
        break;
      case 7:
        fill_between(highest_field - 2, highest_field);
        break;
      case 8:
        zeros();
        break;
      default:
        specials();
        break;
    }
    for (std::size_t i = values_.size(); i > 1; --i) {
      std::swap(values_[i - 1],
                values_[static_cast<std::size_t>(dice_.below(static_cast<int>(i)))]);
    }
    return values_;
  }

 private:
  bool full() const { return values_.size() == static_cast<std::size_t>(count_); }
  void put(T value) {
    if (!full()) values_.push_back(value);
  }
  static T negated(T value) {
    return from_bits<T>(static_cast<Bits>(to_bits(value) ^ Format::sign_bit));
  }

  T number(int field) {
    // Fractions with few bits set make exact and nearly exact sums; full ones make roundings.
    std::uint64_t fraction = dice_.bits();
    const int shape = dice_.below(4);
    if (shape == 0) fraction = 0;
    if (shape == 1) fraction = std::uint64_t{1} << dice_.below(Format::fraction_bits);
    if (shape == 2 && dice_.coin()) fraction = Format::fraction_mask;
    const auto bits =
        static_cast<Bits>((static_cast<std::uint64_t>(field) << Format::fraction_bits) |
                          (fraction & Format::fraction_mask));
    return from_bits<T>(static_cast<Bits>(bits | (dice_.coin() ? Format::sign_bit : Bits{0})));
  }

  // 2^(lowest_bit + k)
  static T power(int k) {
    const int field = k - Format::fraction_bits + 1;
    return from_bits<T>(field < 1
                            ? static_cast<Bits>(Bits{1} << k)
                            : static_cast<Bits>(static_cast<Bits>(field) << Format::fraction_bits));
  }

  void fill_between(int low, int high) {
    while (!full()) {
      const T x = number(low + dice_.below(high - low + 1));
      put(x);
      if (dice_.below(3) == 0) put(negated(x));
    }
  }
  void fill_near(int field, int width) {
    fill_between(std::max(0, field - width), std::min(highest_field, field + width));
  }

  // A number, half of its last bit, and perhaps something small that breaks the tie; the rest of
  // the addends cancel.
  void tie_of(T x, int field) {
    put(x);
    const int half = field - 2;  // as an exponent above lowest_bit
    if (half >= 0) {
      const T h = dice_.coin() ? power(half) : negated(power(half));
      if (half >= 1 && dice_.coin()) {
        const T quarter = from_bits<T>(
            static_cast<Bits>(to_bits(power(half - 1)) | (to_bits(h) & Format::sign_bit)));
        put(quarter);
        put(quarter);
      } else {
        put(h);
      }
      if (half >= 1 && dice_.coin()) {
        const T sticky = power(dice_.coin() ? dice_.below(half) : 0);
        put(dice_.coin() ? sticky : negated(sticky));
      }
    }
    while (!full()) {
      if (values_.size() + 1 == static_cast<std::size_t>(count_)) {
        put(from_bits<T>(0));
      } else {
        const T y = number(dice_.below(highest_field + 1));
        put(y);
        put(negated(y));
      }
    }
  }
  void tie(int field) { tie_of(number(field), field); }
  void tie_at_the_edge_of_overflow() {
    const auto largest = static_cast<Bits>(Format::infinity - 1);
    const auto below = static_cast<Bits>(dice_.below(2));
    T x = from_bits<T>(static_cast<Bits>(largest - below));
    tie_of(dice_.coin() ? x : negated(x), highest_field);
  }

  void zeros() {
    const int negative_in = dice_.coin() ? 1 : 1 + dice_.below(4);
    while (!full()) put(from_bits<T>(dice_.below(negative_in) == 0 ? Format::sign_bit : Bits{0}));
  }
  void specials() {
    const T infinity = from_bits<T>(Format::infinity);
    const T one_of[] = {infinity, negated(infinity), from_bits<T>(Format::quiet_nan),
                        from_bits<T>(static_cast<Bits>(Format::infinity | 1))};
    const int kinds = 1 + dice_.below(4);
    put(one_of[dice_.below(4)]);
    while (!full()) {
      put(dice_.below(4) == 0 ? one_of[dice_.below(kinds)]
                              : number(dice_.below(highest_field + 1)));
    }
  }

  Dice& dice_;
  int count_;
  std::vector<T> values_;
};

template <class T>
double as_double(T value) {
  if constexpr (sizeof(T) == 2) {
    return to_double(value);
  } else {
    return static_cast<double>(value);
  }
}

// MPFR numbers whose range and precision are T's. mpfr_sum rounds correctly and tells in which
// direction, which is what mpfr_subnormalize needs to round a subnormal only once.
template <class T>
class Judge {
 public:
  Judge() {
    mpfr_set_emin(FormatOf<T>::lowest_bit + 1);
    mpfr_set_emax(FormatOf<T>::highest_bit + 1);
    for (std::size_t i = 0; i < most_addends; ++i) {
      mpfr_init2(terms_[i], FormatOf<T>::precision);
      pointers_[i] = terms_[i];
    }
    mpfr_init2(sum_, FormatOf<T>::precision);
  }
  Judge(const Judge&) = delete;
  Judge& operator=(const Judge&) = delete;
  ~Judge() {
    for (auto& term : terms_) mpfr_clear(term);
    mpfr_clear(sum_);
  }

  T sum(const std::vector<T>& addends) {
    if (addends.size() == 1) return addends[0];
    for (std::size_t i = 0; i < addends.size(); ++i) {
      mpfr_set_d(terms_[i], as_double(addends[i]), MPFR_RNDN);
    }
    const int direction = mpfr_sum(sum_, pointers_.data(), addends.size(), MPFR_RNDN);
    mpfr_subnormalize(sum_, direction, MPFR_RNDN);
    if (mpfr_nan_p(sum_)) return from_bits<T>(FormatOf<T>::quiet_nan);
    const double result = mpfr_get_d(sum_, MPFR_RNDN);  // exact
    if constexpr (sizeof(T) == 2) {
      return T{narrow_bits<T, double>(to_bits(result))};
    } else {
      return static_cast<T>(result);
    }
  }

 private:
  std::array<mpfr_t, most_addends> terms_;
  std::array<mpfr_ptr, most_addends> pointers_;
  mpfr_t sum_;
};

template <class T>
std::string text(T value) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&value);
  return element_bits(*dtype_of<T>, bytes) + " (" + element_text(*dtype_of<T>, bytes) + ")";
}

template <class T>
void expect_sum(const char* way, const std::vector<T>& addends, T expected, T actual) {
  if (to_bits(expected) == to_bits(actual)) return;
  std::string message =
      std::string(way) + " gives " + text(actual) + ", MPFR " + text(expected) + " for";
  for (const T x : addends) message += "\n  " + text(x);
  RC_FAIL(message);
}

template <class T>
void check_batch(std::uint64_t seed, int count) {
  Dice dice(seed);
  Addends<T> generator(dice, count);
  Judge<T> judge;
  std::vector<std::vector<T>> sums;
  std::vector<T> expected;
  std::vector<std::vector<T>> ranks(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < sums_per_case; ++i) {
    sums.push_back(generator.draw());
    expected.push_back(judge.sum(sums.back()));
    for (std::size_t r = 0; r < ranks.size(); ++r) ranks[r].push_back(sums.back()[r]);
  }
  std::vector<const std::byte*> addends;
  for (const std::vector<T>& rank : ranks) {
    addends.push_back(reinterpret_cast<const std::byte*>(rank.data()));
  }

  std::vector<T> out(sums.size());
  const auto check_fold = [&](const char* way, FoldPath path) {
    std::fill(out.begin(), out.end(), from_bits<T>(0x5a5a));
    path(SumRule::exact, *dtype_of<T>, addends, sums_per_case,
         reinterpret_cast<std::byte*>(out.data()));
    for (std::size_t i = 0; i < sums.size(); ++i) expect_sum(way, sums[i], expected[i], out[i]);
  };
  check_fold("fold", fold);
  if (count >= 2) {
    check_fold("fold_portable", fold_portable);
#if LOCKSTEP_HAS_AVX2_PATH
    if (avx2_path_runs_here()) check_fold("fold_avx2", fold_avx2);
#endif
  }
  DigitAccumulator<T> digits;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const auto addend = [&](std::int64_t r) { return sums[i][static_cast<std::size_t>(r)]; };
    expect_sum("exact_sum", sums[i], expected[i], exact_sum<T>(count, addend));
    if (count == 1) continue;
    expect_sum("long_sum", sums[i], expected[i], long_sum<T>(count, addend, digits));

    // The accumulator for arithmetic knows neither infinities nor negative zero.
    const auto is_finite = [](T x) {
      return (to_bits(x) & FormatOf<T>::infinity) != FormatOf<T>::infinity;
    };
    if (!std::all_of(sums[i].begin(), sums[i].end(), is_finite)) continue;
    LongAccumulator total;
    for (const T x : sums[i]) total.add(x);
    const T rounded = total.template round_to<T>();
    if (total.sign() == 0) {
      RC_ASSERT(to_bits(rounded) == 0);
    } else {
      expect_sum("LongAccumulator", sums[i], expected[i], rounded);
    }
  }
}

template <class T>
bool check_sums() {
  std::int64_t checked = 0;
  const bool held =
      rc::check("exact sums of " + std::string(name(*dtype_of<T>)) + " are MPFR's", [&checked] {
        const auto seed = *rc::gen::noShrink(rc::gen::arbitrary<std::uint64_t>());
        const int count = *rc::gen::noShrink(rc::gen::inRange(1, most_addends + 1));
        check_batch<T>(seed, count);
        checked += sums_per_case;
      });
  std::printf("%lld sums\n", static_cast<long long>(checked));
  return held && checked >= sums_wanted;
}

// An integer of up to 2304 bits is exact in this precision.
class BigNumber {
 public:
  BigNumber() {
    mpfr_set_emin(mpfr_get_emin_min());
    mpfr_set_emax(mpfr_get_emax_max());
    mpfr_init2(value, 4000);
    mpfr_set_zero(value, 1);
  }
  BigNumber(const BigNumber&) = delete;
  BigNumber& operator=(const BigNumber&) = delete;
  ~BigNumber() { mpfr_clear(value); }
  mpfr_t value;
};

// The accumulator's arithmetic, on sums of doubles of all sizes: a * factor * 2^shift - |b|.
bool check_arithmetic() {
  return rc::check("LongAccumulator computes as MPFR does", [] {
    Dice dice(*rc::gen::noShrink(rc::gen::arbitrary<std::uint64_t>()));
    for (int round = 0; round < 200; ++round) {
      LongAccumulator a, b;
      BigNumber exact_a, exact_b;
      const int width = dice.coin() ? 2046 : 60;
      for (int i = dice.below(6); i >= 0; --i) {
        const auto draw = [&] {
          const std::uint64_t field = static_cast<std::uint64_t>(dice.below(width));
          return from_bits<double>((dice.bits() & ~FormatOf<double>::infinity) | field << 52);
        };
        const double x = draw(), y = draw();
        a.add(x);
        mpfr_add_d(exact_a.value, exact_a.value, x, MPFR_RNDN);
        b.subtract(y);
        mpfr_sub_d(exact_b.value, exact_b.value, y, MPFR_RNDN);
      }
      const auto factor = static_cast<std::uint32_t>(dice.bits() >> dice.below(32) >> 32);
      const int shift = dice.below(70);
      const int scale = dice.below(2);  // whether to scale at all, so that a and b often are close
      if (scale == 1) {
        a.multiply(factor);
        mpfr_mul_ui(exact_a.value, exact_a.value, factor, MPFR_RNDN);
        a.multiply_by_power_of_two(shift);
        mpfr_mul_2si(exact_a.value, exact_a.value, shift, MPFR_RNDN);
      }
      b.make_absolute();
      mpfr_abs(exact_b.value, exact_b.value, MPFR_RNDN);
      const auto sign = [](int x) { return (x > 0) - (x < 0); };
      RC_ASSERT(compare(a, b) == sign(mpfr_cmp(exact_a.value, exact_b.value)));
      RC_ASSERT(compare(a, a) == 0);
      a.subtract(b);
      mpfr_sub(exact_a.value, exact_a.value, exact_b.value, MPFR_RNDN);
      RC_ASSERT(a.sign() == sign(mpfr_sgn(exact_a.value)));
      const double expected = mpfr_get_d(exact_a.value, MPFR_RNDN);
      RC_ASSERT(to_bits(a.round_to<double>()) == to_bits(expected + 0.0));
      a.negate();
      RC_ASSERT(to_bits(a.round_to<double>()) == to_bits(0.0 - expected));
      a.add(b);
      a.negate();
      mpfr_sub(exact_a.value, exact_a.value, exact_b.value, MPFR_RNDN);
      RC_ASSERT(to_bits(a.round_to<double>()) ==
                to_bits(mpfr_get_d(exact_a.value, MPFR_RNDN) + 0.0));
    }
  });
}

}  // namespace
}  // namespace lockstep

int main() {
  const bool held[] = {lockstep::check_sums<lockstep::f16>(),
                       lockstep::check_sums<lockstep::bf16>(), lockstep::check_sums<float>(),
                       lockstep::check_sums<double>(), lockstep::check_arithmetic()};
  return std::all_of(std::begin(held), std::end(held), [](bool x) { return x; }) ? 0 : 1;
}
