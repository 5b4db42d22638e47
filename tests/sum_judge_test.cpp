#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <lockstep/element_text.hpp>

#include "sum_judge.hpp"

namespace lockstep::kit {
namespace {

// Elements as a case file writes them.
std::vector<std::byte> elements(DType dtype, const std::vector<std::string>& texts) {
  std::vector<std::byte> bytes(texts.size() * static_cast<std::size_t>(size_of(dtype)));
  for (std::size_t i = 0; i < texts.size(); ++i) {
    EXPECT_TRUE(
        parse_element(dtype, texts[i], bytes.data() + i * static_cast<std::size_t>(size_of(dtype))))
        << texts[i];
  }
  return bytes;
}

// "accepted", or why the result cannot be the sum.
std::string verdict(DType dtype, const std::vector<std::string>& addends,
                    const std::string& result) {
  const std::vector<std::byte> bytes = elements(dtype, addends);
  std::vector<const std::byte*> pointers;
  for (std::size_t i = 0; i < addends.size(); ++i) {
    pointers.push_back(bytes.data() + i * static_cast<std::size_t>(size_of(dtype)));
  }
  return refute_sum(dtype, pointers, elements(dtype, {result}).data()).value_or("accepted");
}

constexpr const char* accepted = "accepted";
constexpr const char* overflows_nowhere =
    "no addend is infinite, and no partial sum in any order overflows";
constexpr const char* no_nan =
    "no addend is a NaN, and partial sums cannot be infinite with both signs";

TEST(UnspecifiedSum, MayRoundEveryPartialSum) {
  EXPECT_EQ(verdict(DType::bf16, {"256", "1", "1"}, "258"), accepted);
  EXPECT_EQ(verdict(DType::bf16, {"256", "1", "1"}, "256"), accepted);
  EXPECT_EQ(verdict(DType::bf16, {"256", "1", "1"}, "254"),
            "the exact sum is about 258, and this is off by 4, beyond what any order of summation "
            "explains");
}

TEST(UnspecifiedSum, OfTwoIsOneOfTheTwoNeighboursAtATieOnly) {
  // In units of u = 2^-24: 1 + 1 is a tie, 1 + 1.5 is not.
  EXPECT_EQ(verdict(DType::f32, {"1", "5.9604644775390625e-08"}, "1"), accepted);
  EXPECT_EQ(verdict(DType::f32, {"1", "5.9604644775390625e-08"}, "0x3f800001"), accepted);
  EXPECT_EQ(verdict(DType::f32, {"1", "8.94069671630859375e-08"}, "0x3f800001"), accepted);
  EXPECT_EQ(verdict(DType::f32, {"1", "8.94069671630859375e-08"}, "1"),
            "the exact sum is about 1, and this is off by 8.9407e-08, beyond what any order of "
            "summation explains");
}

TEST(UnspecifiedSum, MayBeOffByAnotherRoundingEightBitsFurtherDown) {
  // Off by (1 + 2^-8) u, and by one bit more.
  EXPECT_EQ(verdict(DType::f32, {"1", "0x33808000"}, "1"), accepted);
  EXPECT_EQ(verdict(DType::f32, {"1", "0x33808001"}, "1"),
            "the exact sum is about 1, and this is off by 5.98375e-08, beyond what any order of "
            "summation explains");
}

TEST(UnspecifiedSum, IsExactWhereEveryPartialSumIs) {
  EXPECT_EQ(verdict(DType::f32, {"1", "10", "100"}, "111"), accepted);
  EXPECT_EQ(verdict(DType::f32, {"1", "10", "100"}, "0x42de0001"),
            "the sum is exact in every order, 111, and this is off by 7.62939e-06");
  // 2^11 multiples of the last bit are the most that f16 keeps: 2048 is exact, 2049 need not be.
  EXPECT_EQ(verdict(DType::f16, {"1024", "1023", "1"}, "2046"),
            "the sum is exact in every order, 2048, and this is off by 2");
  EXPECT_EQ(verdict(DType::f16, {"1024", "1023", "2"}, "2048"), accepted);
}

TEST(UnspecifiedSum, OfNumbersNearTheTopIsExactWhereNothingOverflows) {
  EXPECT_EQ(verdict(DType::f16, {"32768", "32736"}, "65504"), accepted);
  EXPECT_EQ(verdict(DType::f16, {"32768", "32736"}, "65472"),
            "the sum is exact in every order, 65504, and this is off by 32");
  EXPECT_EQ(verdict(DType::f64, {"0x7fe0000000000000", "0x7fc0000000000000"}, "0x7fe4000000000001"),
            "the sum is exact in every order, 1.12356e+308, and this is off by 1.99584e+292");
}

TEST(UnspecifiedSum, NeverFlushesSubnormals) {
  EXPECT_EQ(verdict(DType::f32, {"0x00000001", "0x00000001"}, "0x00000002"), accepted);
  EXPECT_EQ(verdict(DType::f32, {"0x00000001", "0x00000001"}, "0"),
            "the sum is exact in every order, 2.8026e-45, and this is off by 2.8026e-45");
  // Two normal numbers whose difference is subnormal, and a subnormal beside a normal one.
  EXPECT_EQ(verdict(DType::f64, {"0x0018000000000000", "0x8010000000000000"}, "0"),
            "the sum is exact in every order, 1.11254e-308, and this is off by 1.11254e-308");
  EXPECT_EQ(verdict(DType::bf16, {"0x0080", "0x0001"}, "0x0080"),
            "the sum is exact in every order, 1.18468e-38, and this is off by 9.18355e-41");
}

TEST(UnspecifiedSum, IsInfiniteOnlyWhereAPartialSumOverflows) {
  EXPECT_EQ(verdict(DType::f16, {"20000", "20000", "20000", "20000"}, "inf"), accepted);
  EXPECT_EQ(verdict(DType::f16, {"20000", "20000", "20000"}, "inf"), overflows_nowhere);
  EXPECT_EQ(verdict(DType::f16, {"-65504", "-65504", "65504"}, "-inf"), accepted);
  EXPECT_EQ(verdict(DType::f16, {"-65504", "-65504", "65504"}, "-65504"), accepted);
  EXPECT_EQ(verdict(DType::f16, {"-65504", "-65504", "65504"}, "inf"), overflows_nowhere);
  EXPECT_EQ(verdict(DType::f16, {"20000", "20000", "20000", "20000"}, "65504"),
            "the exact sum is about 80000, and this is off by 14496, beyond what any order of "
            "summation explains");
}

TEST(UnspecifiedSum, OverflowsFromTheMiddleBetweenTheLargestNumberAndTheNext) {
  EXPECT_EQ(verdict(DType::f16, {"65504", "16"}, "inf"), accepted);
  EXPECT_EQ(verdict(DType::f16, {"65504", "15"}, "inf"), overflows_nowhere);
  EXPECT_EQ(verdict(DType::f64, {"0x7fefffffffffffff", "0x7c90000000000000"}, "inf"), accepted);
  EXPECT_EQ(verdict(DType::f64, {"0x7fefffffffffffff", "0x7c80000000000000"}, "inf"),
            overflows_nowhere);
  // A wider accumulator may round up to the middle, from no further than 2^-8 u below.
  EXPECT_EQ(verdict(DType::f16, {"65504", "15.9921875"}, "inf"), accepted);
  EXPECT_EQ(verdict(DType::f16, {"65504", "15.875"}, "inf"), overflows_nowhere);
  // The other way round it is not certain, though nothing but infinity can come out here.
  EXPECT_EQ(verdict(DType::f16, {"32768", "32768"}, "65504"), accepted);
  // Rounding on the way may carry a sum of three there, not of two and a negative one.
  EXPECT_EQ(verdict(DType::f16, {"65472", "15", "17"}, "inf"), accepted);
  EXPECT_EQ(verdict(DType::f16, {"65504", "15", "-17"}, "inf"), overflows_nowhere);
}

TEST(UnspecifiedSum, IsNaNOnlyWhereInfinitiesOfBothSignsCanMeet) {
  EXPECT_EQ(verdict(DType::f16, {"65504", "65504", "-65504", "-65504"}, "nan"), accepted);
  EXPECT_EQ(verdict(DType::f16, {"65504", "65504", "-65504", "-65504"}, "0"), accepted);
  EXPECT_EQ(verdict(DType::f16, {"65504", "65504", "-65504"}, "nan"), no_nan);
  EXPECT_EQ(verdict(DType::f16, {"inf", "-65504", "-65504"}, "nan"), accepted);
  EXPECT_EQ(verdict(DType::f16, {"inf", "-65504", "-65504"}, "inf"), accepted);
  EXPECT_EQ(verdict(DType::f16, {"inf", "-65504", "-65504"}, "-inf"),
            "an addend is infinite with the other sign");
  EXPECT_EQ(verdict(DType::f16, {"inf", "-65504", "1"}, "nan"), no_nan);
  EXPECT_EQ(verdict(DType::f16, {"1", "2"}, "nan"), no_nan);
}

TEST(UnspecifiedSum, WithANaNIsANaN) {
  EXPECT_EQ(verdict(DType::f32, {"1", "nan", "inf"}, "0xffc12345"), accepted);
  EXPECT_EQ(verdict(DType::f32, {"1", "nan", "inf"}, "inf"),
            "an addend is a NaN, so the sum is one");
}

TEST(UnspecifiedSum, WithAnInfinityIsThatInfinity) {
  EXPECT_EQ(verdict(DType::f32, {"1", "-inf", "-inf"}, "-inf"), accepted);
  EXPECT_EQ(verdict(DType::f32, {"1", "-inf"}, "-3.4028234663852886e38"),
            "an addend is infinite, so the sum is not finite");
  EXPECT_EQ(verdict(DType::f32, {"inf", "-inf"}, "nan"), accepted);
  EXPECT_EQ(verdict(DType::f32, {"inf", "-inf"}, "0"),
            "addends are infinite with both signs, so the sum is a NaN");
}

TEST(UnspecifiedSum, IsNegativeZeroOnlyWhereAllAddendsAre) {
  EXPECT_EQ(verdict(DType::f32, {"-0", "-0", "-0"}, "-0"), accepted);
  EXPECT_EQ(verdict(DType::f32, {"-0", "-0", "-0"}, "0"), "the sum of nothing but -0 is -0");
  EXPECT_EQ(verdict(DType::f32, {"-0", "0", "-0"}, "0"), accepted);
  EXPECT_EQ(verdict(DType::f32, {"-0", "0", "-0"}, "-0"),
            "a zero sum is -0 only where all addends are -0");
  EXPECT_EQ(verdict(DType::f32, {"-1", "1"}, "-0"),
            "a zero sum is -0 only where all addends are -0");
}

TEST(UnspecifiedSum, LosesASmallAddendBesideLargeOnesThatCancel) {
  EXPECT_EQ(verdict(DType::f64, {"1e300", "1", "-1e300"}, "0"), accepted);
  EXPECT_EQ(verdict(DType::f64, {"1e300", "1", "-1e300"}, "1"), accepted);
  EXPECT_EQ(verdict(DType::f64, {"1e300", "1", "-1e300"}, "1e290"),
            "the exact sum is about 1, and this is off by 1e+290, beyond what any order of "
            "summation explains");
}

}  // namespace
}  // namespace lockstep::kit
