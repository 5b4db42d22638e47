#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include <lockstep/element_text.hpp>

namespace lockstep {
namespace {

template <class T>
std::string text(T element) {
  return element_text(*dtype_of<T>, reinterpret_cast<const std::byte*>(&element));
}
template <class T>
std::string bits_text(T element) {
  return element_bits(*dtype_of<T>, reinterpret_cast<const std::byte*>(&element));
}

// What is read, as bits; "refused" when nothing is, in which case the element must be untouched.
template <class T>
std::string read(std::string_view text) {
  T element;
  std::memset(static_cast<void*>(&element), 0x5a, sizeof element);
  const T before = element;
  if (parse_element(*dtype_of<T>, text, reinterpret_cast<std::byte*>(&element))) {
    return bits_text(element);
  }
  EXPECT_EQ(std::memcmp(&element, &before, sizeof element), 0);
  return "refused";
}

TEST(ElementText, IsTheShortestNumber) {
  EXPECT_EQ(text(0.1f), "0.1");
  EXPECT_EQ(text(1.0), "1");
  EXPECT_EQ(text(-2.5), "-2.5");
  EXPECT_EQ(text(1e20), "1e+20");
  EXPECT_EQ(text(5e-324), "5e-324");
  EXPECT_EQ(text(f16{0x2e66}), "0.1");
  EXPECT_EQ(text(f16{0x7bff}), "65504");
  EXPECT_EQ(text(f16{1}), "6e-08");
  EXPECT_EQ(text(bf16{0x3dcd}), "0.1");
  EXPECT_EQ(text(bf16{0x7f7f}), "3.39e+38");
  EXPECT_EQ(text(bf16{0x4381}), "258");
}

TEST(ElementText, OfAPowerOfTwoIsShortEvenWhereTheClosestShortNumberRoundsBelowIt) {
  EXPECT_EQ(text(f16{0x2400}), "0.01563");    // 0.015625; 0.01562 is as close
  EXPECT_EQ(text(bf16{0x0400}), "1.51e-36");  // 1.5046e-36; 1.50e-36 is closer
  EXPECT_EQ(text(bf16{0x5f80}), "1.85e+19");  // 1.8447e+19; 1.84e+19 is closer
}

TEST(ElementText, OfZerosInfinitiesAndNans) {
  EXPECT_EQ(text(0.0f), "0");
  EXPECT_EQ(text(-0.0f), "-0");
  EXPECT_EQ(text(f16{0x8000}), "-0");
  EXPECT_EQ(text(from_bits<double>(0xfff0000000000000)), "-inf");
  EXPECT_EQ(text(bf16{0x7f80}), "inf");
  EXPECT_EQ(text(from_bits<float>(0x7fc00123)), "0x7fc00123");
  EXPECT_EQ(text(from_bits<double>(0x7ff0000000000001)), "0x7ff0000000000001");
  EXPECT_EQ(text(f16{0xfe00}), "0xfe00");
}

TEST(ElementText, OfIntegersIsDecimal) {
  EXPECT_EQ(text(std::uint8_t{255}), "255");
  EXPECT_EQ(text(std::uint32_t{4294967295}), "4294967295");
  EXPECT_EQ(text(std::int32_t{-2147483648}), "-2147483648");
  EXPECT_EQ(text(std::int64_t{9007199254740993}), "9007199254740993");
  EXPECT_EQ(text(std::numeric_limits<std::int64_t>::min()), "-9223372036854775808");
}

TEST(ElementText, OfBitsHasTwoDigitsAByte) {
  EXPECT_EQ(bits_text(std::uint8_t{10}), "0x0a");
  EXPECT_EQ(bits_text(std::int64_t{-2}), "0xfffffffffffffffe");
  EXPECT_EQ(bits_text(f16{0x3c00}), "0x3c00");
  EXPECT_EQ(bits_text(1.0f), "0x3f800000");
}

template <class Half>
void check_every_pattern() {
  for (unsigned pattern = 0; pattern < 0x10000; ++pattern) {
    const Half half{static_cast<std::uint16_t>(pattern)};
    ASSERT_EQ(read<Half>(text(half)), bits_text(half)) << text(half);
  }
}

TEST(ElementText, ReadsBackToTheSameBitsForEvery16BitPattern) {
  check_every_pattern<f16>();
  check_every_pattern<bf16>();
}

TEST(ElementText, OfA16BitFloatHasNoShorterRival) {
  // Every number of fewer significant digits reads back as something else: 2048 numbers from 1
  // to 4.
  for (std::uint16_t pattern = 0x3c00; pattern < 0x4400; ++pattern) {
    const std::string shortest = text(f16{pattern});
    const std::size_t decimals = shortest.find('.') == std::string::npos ? 0 : shortest.size() - 2;
    if (decimals == 0) continue;
    std::string scale = "1" + std::string(decimals - 1, '0');
    const long steps = std::stol(scale);
    for (long n = steps; n <= 4 * steps; ++n) {
      std::string rival = std::to_string(n / steps);
      if (steps > 1) rival += "." + std::to_string(n % steps + steps).substr(1);
      ASSERT_NE(read<f16>(rival), bits_text(f16{pattern})) << rival << " for " << shortest;
    }
  }
}

TEST(ParseElement, RoundsADecimalOnceToTheDtype) {
  // Half a last bit above 1: the even neighbour, and the next one for whatever lies beyond.
  EXPECT_EQ(read<f16>("1.00048828125"), "0x3c00");
  EXPECT_EQ(read<f16>("1.000488281250000000000000000000000000001"), "0x3c01");
  EXPECT_EQ(read<f16>("1.000488281249999999999999999999999999999"), "0x3c00");
  EXPECT_EQ(read<f16>("1.00146484375"), "0x3c02");
  EXPECT_EQ(read<f16>("1.001464843749999999999999999999999999999"), "0x3c01");
  EXPECT_EQ(read<bf16>("1.00390625"), "0x3f80");
  EXPECT_EQ(read<bf16>("-1.00390625000000000000000000000000000000000001"), "0xbf81");
  EXPECT_EQ(read<float>("1.000000059604644775390625"), "0x3f800000");
  EXPECT_EQ(read<float>("1.00000005960464477539062500000000000000000000000001"), "0x3f800001");
  EXPECT_EQ(read<double>("9007199254740993"), "0x4340000000000000");
  EXPECT_EQ(read<double>("9007199254740993.000000000000000000000000000000000001"),
            "0x4340000000000001");
}

TEST(ParseElement, BecomesInfinityOrZeroBeyondTheRange) {
  EXPECT_EQ(read<f16>("65519.9999999999999999999999999999999999"), "0x7bff");
  EXPECT_EQ(read<f16>("65520"), "0x7c00");
  EXPECT_EQ(read<f16>("-1e999"), "0xfc00");
  EXPECT_EQ(read<f16>("2.98023223876953125e-8"), "0x0000");
  EXPECT_EQ(read<f16>("2.98023223876953126e-8"), "0x0001");
  EXPECT_EQ(read<bf16>("1e39"), "0x7f80");
  EXPECT_EQ(read<bf16>("1e-300"), "0x0000");
  EXPECT_EQ(read<float>("3.5e38"), "0x7f800000");
  EXPECT_EQ(read<float>("-1e-60"), "0x80000000");
  EXPECT_EQ(read<float>("1.4e-45"), "0x00000001");
  EXPECT_EQ(read<double>("1e999999999999999999999999999"), "0x7ff0000000000000");
  EXPECT_EQ(read<double>("-1e-999999999999999999999999999"), "0x8000000000000000");
  EXPECT_EQ(read<double>("0e999999999999999999999999999"), "0x0000000000000000");
  EXPECT_EQ(read<double>("2.4703282292062327e-324"), "0x0000000000000000");
  EXPECT_EQ(read<double>("2.4703282292062328e-324"), "0x0000000000000001");
}

TEST(ParseElement, TakesNumbersOfAnyLength) {
  const std::string zeros(100'000, '0');
  EXPECT_EQ(read<float>("1" + zeros + "e-100000"), "0x3f800000");
  EXPECT_EQ(read<float>("0." + zeros + "1e100001"), "0x3f800000");
  EXPECT_EQ(read<f16>("1.00048828125" + zeros + "1"), "0x3c01");
  EXPECT_EQ(read<double>("9007199254740993." + zeros + "1"), "0x4340000000000001");
  EXPECT_EQ(read<double>("9007199254740993." + zeros), "0x4340000000000000");
}

TEST(ParseElement, TakesBitsOfExactlyTheRightWidth) {
  EXPECT_EQ(read<float>("0x7fc00123"), "0x7fc00123");
  EXPECT_EQ(read<float>("0x7FA00001"), "0x7fa00001");
  EXPECT_EQ(read<std::int32_t>("0x80000000"), "0x80000000");
  for (const char* bad : {"0x7fc0012", "0x7fc001234", "0x", "0x7fc0012g", "0X7fc00123",
                          "0x-fc00123", "-0x7fc00123", "0x+fc00123", "0x 7fc0012"}) {
    EXPECT_EQ(read<float>(bad), "refused") << bad;
  }
}

TEST(ParseElement, TakesNamesOfWhatJsonCannotSay) {
  EXPECT_EQ(read<f16>("nan"), "0x7e00");
  EXPECT_EQ(read<bf16>("nan"), "0x7fc0");
  EXPECT_EQ(read<float>("nan"), "0x7fc00000");
  EXPECT_EQ(read<double>("nan"), "0x7ff8000000000000");
  EXPECT_EQ(read<float>("inf"), "0x7f800000");
  EXPECT_EQ(read<float>("-inf"), "0xff800000");
  EXPECT_EQ(read<float>("-0"), "0x80000000");
  EXPECT_EQ(read<double>("-0.0"), "0x8000000000000000");
  EXPECT_EQ(read<f16>("-0e5"), "0x8000");
}

TEST(ParseElement, RefusesWhatIsNoJsonNumber) {
  for (const char* bad :
       {"",   "-",  "+1",   "01",  "-01",      "1.",   ".5",  "1e",  "1e+", "1.e5", " 1",
        "1 ", "1f", "-nan", "NaN", "infinity", "+inf", "--1", "1,5", "0b1", "true"}) {
    EXPECT_EQ(read<float>(bad), "refused") << bad;
    EXPECT_EQ(read<bf16>(bad), "refused") << bad;
  }
}

TEST(ParseElement, RefusesIntegersThatDoNotFit) {
  EXPECT_EQ(read<std::uint8_t>("255"), "0xff");
  EXPECT_EQ(read<std::uint8_t>("256"), "refused");
  EXPECT_EQ(read<std::uint8_t>("-1"), "refused");
  EXPECT_EQ(read<std::uint32_t>("4294967295"), "0xffffffff");
  EXPECT_EQ(read<std::uint32_t>("4294967296"), "refused");
  EXPECT_EQ(read<std::int32_t>("-2147483648"), "0x80000000");
  EXPECT_EQ(read<std::int32_t>("2147483648"), "refused");
  EXPECT_EQ(read<std::int64_t>("9223372036854775807"), "0x7fffffffffffffff");
  EXPECT_EQ(read<std::int64_t>("-9223372036854775808"), "0x8000000000000000");
  EXPECT_EQ(read<std::int64_t>("9223372036854775808"), "refused");
  EXPECT_EQ(read<std::int64_t>("9007199254740993"), "0x0020000000000001");
}

TEST(ParseElement, RefusesIntegersThatAreNotPlainDigits) {
  for (const char* bad : {"", "1e3", "1.0", "+1", "007", "-", " 1", "1 ", "inf", "nan", "-00"}) {
    EXPECT_EQ(read<std::int64_t>(bad), "refused") << bad;
    EXPECT_EQ(read<std::uint8_t>(bad), "refused") << bad;
  }
  EXPECT_EQ(read<std::int64_t>("-0"), "0x0000000000000000");
}

}  // namespace
}  // namespace lockstep
