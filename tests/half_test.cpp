#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include <lockstep/half.hpp>

namespace lockstep {
namespace {

// The value of a pattern from the definition of the format, in a double, which holds it exactly.
template <class Half>
double by_definition(unsigned bits) {
  using Format = FormatOf<Half>;
  const unsigned field = (bits & Format::infinity) >> Format::fraction_bits;
  const double fraction = bits & Format::fraction_mask;
  const double ulps = field == 0 ? fraction : fraction + (1 << Format::fraction_bits);
  const double magnitude = std::ldexp(
      ulps, static_cast<int>(field == 0 ? 1 : field) - Format::bias - Format::fraction_bits);
  return (bits & Format::sign_bit) != 0 ? -magnitude : magnitude;
}

template <class Half>
Half half_of(double x) {
  return Half{narrow_bits<Half, double>(to_bits(x))};
}
template <class Half>
Half half_of(float x) {
  return Half{narrow_bits<Half, float>(to_bits(x))};
}

template <class Half>
void check_every_pattern() {
  using Format = FormatOf<Half>;
  for (unsigned pattern = 0; pattern < 0x10000; ++pattern) {
    const Half half{static_cast<std::uint16_t>(pattern)};
    const unsigned magnitude = pattern & 0x7fff;
    if (magnitude > Format::infinity) {
      // A NaN widens with its payload, quiet or signalling, and narrows quiet.
      const std::uint32_t wide = 0x7f800000 |
                                 (pattern & Format::fraction_mask) << (23 - Format::fraction_bits) |
                                 (pattern >> 15) << 31;
      ASSERT_EQ((widen_bits<float, Half>(half.bits)), wide);
      ASSERT_EQ((narrow_bits<Half, float>(wide)), pattern | Format::quiet_bit);
      ASSERT_EQ((narrow_bits<Half, double>(widen_bits<double, Half>(half.bits))),
                pattern | Format::quiet_bit);
      continue;
    }
    const double value = magnitude == Format::infinity
                             ? std::copysign(std::numeric_limits<double>::infinity(),
                                             pattern >> 15 != 0 ? -1.0 : 1.0)
                             : by_definition<Half>(pattern);
    ASSERT_EQ(to_bits(to_double(half)), to_bits(value)) << pattern;
    ASSERT_EQ(to_bits(to_float(half)), to_bits(static_cast<float>(value))) << pattern;
    ASSERT_EQ(half_of<Half>(value), half) << pattern;
    ASSERT_EQ(half_of<Half>(static_cast<float>(value)), half) << pattern;
  }
}

TEST(Half, ConvertsEveryPatternToItsValueAndBack) {
  check_every_pattern<f16>();
  check_every_pattern<bf16>();
}

// Between each two neighbours: the midpoint goes to the even one, anything off it to the nearer.
template <class Half>
void check_every_midpoint() {
  using Format = FormatOf<Half>;
  for (unsigned low = 0; low < Format::infinity; ++low) {
    const Half below{static_cast<std::uint16_t>(low)};
    const Half above{static_cast<std::uint16_t>(low + 1)};
    const Half even = low % 2 == 0 ? below : above;
    // Above the largest finite value the next one would be the power of two that infinity stands
    // for.
    const double next = low + 1 == Format::infinity ? std::ldexp(1.0, Format::bias + 1)
                                                    : by_definition<Half>(low + 1);
    const double middle = (by_definition<Half>(low) + next) / 2;
    ASSERT_EQ(half_of<Half>(middle), even) << low;
    ASSERT_EQ(half_of<Half>(std::nextafter(middle, 0.0)), below) << low;
    ASSERT_EQ(half_of<Half>(std::nextafter(middle, 2 * next)), above) << low;
    const float narrow_middle = static_cast<float>(middle);  // exact
    ASSERT_EQ(half_of<Half>(narrow_middle), even) << low;
    ASSERT_EQ(half_of<Half>(std::nextafter(narrow_middle, 0.0f)), below) << low;
    ASSERT_EQ(half_of<Half>(std::nextafter(narrow_middle, std::numeric_limits<float>::infinity())),
              above)
        << low;
    ASSERT_EQ(half_of<Half>(-middle).bits, even.bits | 0x8000) << low;
  }
}

TEST(Half, RoundsToTheNearestAndTiesToEvenBetweenAllNeighbours) {
  check_every_midpoint<f16>();
  check_every_midpoint<bf16>();
}

TEST(Half, BecomesInfinityOrZeroFarOutOfRange) {
  EXPECT_EQ(to_f16(1e300).bits, 0x7c00);
  EXPECT_EQ(to_f16(-3e38f).bits, 0xfc00);
  EXPECT_EQ(to_f16(65519.996f).bits, 0x7bff);
  EXPECT_EQ(to_f16(65520.0f).bits, 0x7c00);
  EXPECT_EQ(to_bf16(1e300).bits, 0x7f80);
  EXPECT_EQ(to_bf16(std::numeric_limits<float>::max()).bits, 0x7f80);
  EXPECT_EQ(to_f16(5e-324).bits, 0);
  EXPECT_EQ(to_f16(-5e-324).bits, 0x8000);
  EXPECT_EQ(to_f16(0x1p-25).bits, 0);
  EXPECT_EQ(to_f16(0x1.0000000000001p-25).bits, 1);
  EXPECT_EQ(to_bf16(0x1p-134).bits, 0);
  EXPECT_EQ(to_bf16(-0x1.8p-133).bits, 0x8002);
}

TEST(Half, QuietsANanWhosePayloadDoesNotFit) {
  EXPECT_EQ((narrow_bits<f16, float>(0x7f800001)), 0x7e00);
  EXPECT_EQ((narrow_bits<bf16, double>(0xfff0000000000001)), 0xffc0);
  EXPECT_EQ((narrow_bits<f16, float>(0xffabcdef)), 0xff5e);
}

static_assert(to_f16(1.0f).bits == 0x3c00 && to_bf16(1.0).bits == 0x3f80 &&
              to_float(f16{0xc000}) == -2);

}  // namespace
}  // namespace lockstep
