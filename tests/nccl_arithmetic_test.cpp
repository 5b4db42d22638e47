// The reductions of the simulated NCCL: every datatype and operator, and the order of sums.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "reduction.hpp"
#include "ring.hpp"

namespace lockstep::nccl {
namespace {

template <class T>
std::span<std::byte> bytes(std::vector<T>& values) {
  return std::as_writable_bytes(std::span(values));
}

template <class T>
std::vector<T> combined(std::vector<T> a, std::vector<T> b, ncclDataType_t datatype, Operator op) {
  combine(bytes(a), bytes(b), datatype, op);
  return a;
}

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

TEST(Combine, IntegersWrapAround) {
  using I8 = std::vector<std::int8_t>;
  EXPECT_EQ(combined(I8{127, -128, 16}, I8{1, -1, 16}, ncclInt8, Operator::sum),
            (I8{-128, 127, 32}));
  EXPECT_EQ(combined(I8{127, -128, 16}, I8{2, -1, 16}, ncclInt8, Operator::prod),
            (I8{-2, -128, 0}));
  EXPECT_EQ(combined(I8{1, -1}, I8{-2, 3}, ncclInt8, Operator::max), (I8{1, 3}));
  using U8 = std::vector<std::uint8_t>;
  EXPECT_EQ(combined(U8{255, 1}, U8{2, 200}, ncclUint8, Operator::sum), (U8{1, 201}));
  EXPECT_EQ(combined(U8{255, 1}, U8{2, 200}, ncclUint8, Operator::min), (U8{2, 1}));
  using I32 = std::vector<std::int32_t>;
  EXPECT_EQ(combined(I32{2147483647}, I32{1}, ncclInt32, Operator::sum), (I32{-2147483647 - 1}));
  EXPECT_EQ(combined(I32{65536}, I32{65536}, ncclInt32, Operator::prod), (I32{0}));
  using U64 = std::vector<std::uint64_t>;
  EXPECT_EQ(combined(U64{0x8000000000000001u}, U64{0x8000000000000001u}, ncclUint64, Operator::sum),
            (U64{2}));
}

TEST(Combine, HalvesRoundOnceAtEveryStep) {
  using Bits = std::vector<std::uint16_t>;
  // float16: 2048 + 1 is halfway and stays even, 2048 + 3 is halfway and goes up to 2052.
  EXPECT_EQ(combined(Bits{0x6800, 0x6800, 0x7bff}, Bits{0x3c00, 0x4200, 0x7bff}, ncclFloat16,
                     Operator::sum),
            (Bits{0x6800, 0x6802, 0x7c00}));
  // bfloat16: 256 + 1 is halfway and stays even; the largest twice is infinity.
  EXPECT_EQ(combined(Bits{0x4380, 0x7f7f}, Bits{0x3f80, 0x7f7f}, ncclBfloat16, Operator::sum),
            (Bits{0x4380, 0x7f80}));
  EXPECT_EQ(combined(Bits{0x3c01}, Bits{0x3c01}, ncclFloat16, Operator::prod), (Bits{0x3c02}));
}

TEST(Combine, Float8SaturatesAndKeepsNans) {
  using Bits = std::vector<std::uint8_t>;
  // e4m3: 448 is the largest; 0x7f is the NaN. 16 + 1 is halfway and stays even.
  EXPECT_EQ(combined(Bits{0x7e, 0x7f, 0x58}, Bits{0x7e, 0x38, 0x38}, ncclFloat8e4m3, Operator::sum),
            (Bits{0x7e, 0x7f, 0x58}));
  // e5m2: 57344 is the largest, and infinity saturates to it as well.
  EXPECT_EQ(combined(Bits{0x7b, 0x7c}, Bits{0x7b, 0x3c}, ncclFloat8e5m2, Operator::sum),
            (Bits{0x7b, 0x7b}));
  EXPECT_EQ(combined(Bits{0x40}, Bits{0x40}, ncclFloat8e5m2, Operator::prod), (Bits{0x44}));
}

TEST(Combine, ExtremesPassOverNansAndOrderZeros) {
  using F = std::vector<float>;
  EXPECT_EQ(combined(F{nan, 1, -infinity}, F{2, nan, 5}, ncclFloat32, Operator::max), (F{2, 1, 5}));
  EXPECT_EQ(combined(F{nan, 1, -infinity}, F{2, nan, 5}, ncclFloat32, Operator::min),
            (F{2, 1, -infinity}));
  const F highest = combined(F{-0.0f, 0.0f}, F{0.0f, -0.0f}, ncclFloat32, Operator::max);
  EXPECT_FALSE(std::signbit(highest[0]));
  EXPECT_FALSE(std::signbit(highest[1]));
  const F lowest = combined(F{-0.0f, 0.0f}, F{0.0f, -0.0f}, ncclFloat32, Operator::min);
  EXPECT_TRUE(std::signbit(lowest[0]));
  EXPECT_TRUE(std::signbit(lowest[1]));
}

TEST(Divide, GoesTowardsZero) {
  std::vector<std::int8_t> values = {7, -7, -128, 100};
  divide(bytes(values), ncclInt8, 2);
  EXPECT_EQ(values, (std::vector<std::int8_t>{3, -3, -64, 50}));
  divide(bytes(values), ncclInt8, 200);  // more ranks than an int8 can say
  EXPECT_EQ(values, (std::vector<std::int8_t>{0, 0, 0, 0}));
  std::vector<std::uint64_t> large = {0xffffffffffffffffu};
  divide(bytes(large), ncclUint64, 3);
  EXPECT_EQ(large[0], 0x5555555555555555u);
}

TEST(Multiply, RoundsToTheDatatype) {
  std::vector<std::uint16_t> halves = {0x4200, 0x7bff};  // 3 and 65504
  multiply(bytes(halves), ncclFloat16, reciprocal(3, ncclFloat16));
  EXPECT_EQ(halves, (std::vector<std::uint16_t>{0x3c00, 0x7554}));  // 0x3555, a third, times each
}

// All ranks' values, reduced by the ring without a seed: rank order, four elements to a chunk.
template <class T>
std::vector<T> reduced(std::vector<std::vector<T>> ranks, ncclDataType_t datatype, Operator op,
                       int first, int turn) {
  const Ring ring(static_cast<int>(ranks.size()), 0);
  std::vector<Addends> addends;
  for (auto& values : ranks) addends.push_back({std::as_bytes(std::span(values)), op, {}});
  std::vector<T> result(ranks[0].size());
  reduce_around(ring, addends, datatype, first, turn, bytes(result));
  return result;
}

TEST(Ring, AddsUpFromAnotherRankInEveryChunk) {
  // 1e8 + 1 is 1e8 in float32. The chunks start at ranks 1, 2 and 0.
  const std::vector<float> large(12, 1e8f);
  const std::vector<float> small(12, 1.0f);
  const std::vector<float> minus(12, -1e8f);
  EXPECT_EQ(reduced<float>({large, small, minus}, ncclFloat32, Operator::sum, 1, 1),
            (std::vector<float>{0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0}));
  // For a root on the last position all chunks start at rank 0.
  EXPECT_EQ(reduced<float>({large, minus, small}, ncclFloat32, Operator::sum, 3, 0),
            (std::vector<float>(12, 1)));
}

TEST(Ring, AveragesIntegersAtTheEndAndFloatsAtTheBeginning) {
  using I = std::vector<std::int32_t>;
  EXPECT_EQ(reduced<std::int32_t>({{1, -1}, {1, -1}, {1, -3}}, ncclInt32, Operator::avg, 1, 1),
            (I{1, -1}));
  // A third, rounded to float16 (0x3555), of every addend.
  using H = std::vector<std::uint16_t>;
  EXPECT_EQ(
      reduced<std::uint16_t>({{0x3c00}, {0x3c00}, {0x3c00}}, ncclFloat16, Operator::avg, 1, 1),
      (H{0x3c00}));
  EXPECT_EQ(
      reduced<std::uint16_t>({{0x6800}, {0x0000}, {0x0000}}, ncclFloat16, Operator::avg, 1, 1),
      (H{0x6155}));
}

TEST(Ring, OfOneRankMovesEveryBit) {
  std::vector<std::uint32_t> signalling = {0x7f800001, 0xffc01234, 0x80000000};
  EXPECT_EQ(reduced<std::uint32_t>({signalling}, ncclFloat32, Operator::sum, 1, 1), signalling);
}

TEST(Ring, DiffersBetweenSeeds) {
  EXPECT_EQ(Ring(5, 0).order(), (std::vector<int>{0, 1, 2, 3, 4}));
  EXPECT_EQ(Ring(5, 7).order(), Ring(5, 7).order());
  bool orders_differ = false;
  bool chunks_differ = false;
  for (std::uint64_t seed = 1; seed < 9; ++seed) {
    const Ring ring(5, seed);
    std::vector<bool> seen(5);
    for (const int rank : ring.order()) seen[static_cast<std::size_t>(rank)] = true;
    EXPECT_EQ(seen, std::vector<bool>(5, true));
    orders_differ = orders_differ || ring.order() != Ring(5, 0).order();
    chunks_differ = chunks_differ || ring.chunk_elements() != Ring(5, 0).chunk_elements();
  }
  EXPECT_TRUE(orders_differ);
  EXPECT_TRUE(chunks_differ);
}

}  // namespace
}  // namespace lockstep::nccl
