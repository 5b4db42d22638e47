// Values between processes: every operation, every rule, every size. See mpi_processes.hpp.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "limits.hpp"
#include "mpi_processes.hpp"

namespace lockstep {
namespace {

using namespace testing;

std::string hex(const Tensor& x) {
  std::string text;
  for (std::byte byte : x.bytes()) text += std::to_string(static_cast<int>(byte)) + " ";
  return text;
}

// Sets a limit of how data move for one test.
class WithLimits {
 public:
  WithLimits(std::int64_t message_bytes, std::int64_t one_step_bytes) : before_(mpi::limits()) {
    mpi::limits() = {message_bytes, one_step_bytes};
  }
  ~WithLimits() { mpi::limits() = before_; }

 private:
  mpi::Limits before_;
};

float float_of(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

FloatTensor f32_bits(const Shape& shape, const std::vector<std::uint32_t>& bits) {
  return FloatTensor::from_bytes(DType::f32, shape, std::as_bytes(std::span(bits)));
}

FloatTensor f16_bits(const Shape& shape, const std::vector<std::uint16_t>& bits) {
  return FloatTensor::from_bytes(DType::f16, shape, std::as_bytes(std::span(bits)));
}

FloatTensor bf16_bits(const Shape& shape, const std::vector<std::uint16_t>& bits) {
  return FloatTensor::from_bytes(DType::bf16, shape, std::as_bytes(std::span(bits)));
}

const SumRule all_rules[] = {SumRule::exact, SumRule::rank_order, SumRule::unspecified};

// ---- values

TEST(MpiMoves, GathersShardsInRankOrder) {
  const Communicator c = world();
  const float r = static_cast<float>(c.rank());
  const FloatTensor x = tensor<float>({2, 2}, {10 * r, 10 * r + 1, 10 * r + 2, 10 * r + 3});
  EXPECT_TENSOR(tensor<float>({8, 2}, {0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23, 30, 31, 32, 33}),
                c.all_gather_float(x));
  EXPECT_TENSOR(tensor<float>({2, 2}, {10 * r, 10 * r + 1, 10 * r + 2, 10 * r + 3}), x);
}

TEST(MpiMoves, IntegersBeyondWhatFloatsHoldKeepEveryBit) {
  const Communicator c = world();
  const std::int64_t mine[] = {(std::int64_t{1} << 53) + 1, INT64_MIN, INT64_MAX, -1};
  EXPECT_TENSOR(tensor<std::int64_t>({4}, {9007199254740993, INT64_MIN, INT64_MAX, -1}),
                c.all_gather_int(tensor<std::int64_t>({1}, {mine[c.rank()]})));
  const std::uint32_t word[] = {4294967295u, 0, 16777217, 2147483648u};
  EXPECT_TENSOR(tensor<std::uint32_t>({4, 1}, {4294967295u, 0, 16777217, 2147483648u}),
                c.all_gather_int(tensor<std::uint32_t>({1, 1}, {word[c.rank()]})));
}

TEST(MpiMoves, NaNPayloadsAndSignedZerosArriveAsTheyWere) {
  const Communicator c = world();
  const std::uint32_t mine[] = {0x7fa00123, 0x80000000, 0xffc00456, 0x00000001};
  EXPECT_TENSOR(f32_bits({4}, {0x7fa00123, 0x80000000, 0xffc00456, 0x00000001}),
                c.all_gather_float(f32_bits({1}, {mine[c.rank()]})));
  EXPECT_TENSOR(f16_bits({4}, {0x7d01, 0x7d02, 0x7d03, 0x7d04}),
                c.all_gather_float(f16_bits({1}, {static_cast<std::uint16_t>(0x7d01 + c.rank())})));
  EXPECT_TENSOR(
      bf16_bits({1}, {0x7fa3}),
      c.broadcast_float(bf16_bits({1}, {static_cast<std::uint16_t>(0x7fa0 + c.rank())}), 3));
}

TEST(MpiMoves, EveryRankCanBeTheRootAndWhatOthersHoldNeverMatters) {
  const Communicator c = world();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (int root = 0; root < ranks; ++root) {
    const float value = static_cast<float>(10 * root + 1);
    const FloatTensor mine = c.rank() == root ? tensor<float>({3}, {value, -0.0f, 5})
                                              : tensor<float>({3}, {nan, nan, 99});
    EXPECT_TENSOR(tensor<float>({3}, {value, -0.0f, 5}), c.broadcast_float(mine, root));
    EXPECT_EQ(mine.values<float>()[2], c.rank() == root ? 5.0f : 99.0f);
  }
  EXPECT_TENSOR(tensor<double>({}, {2.5}),
                c.broadcast_float(tensor<double>({}, {c.rank() + 0.5}), 2));
}

TEST(MpiExchange, AnAsymmetricCountsMatrixBringsBlocksInSourceOrder) {
  const Communicator c = world();
  // Rows are tagged 100 * source + 10 * destination + index.
  const std::vector<Counts> counts = {{1, 2, 0, 3}, {0, 0, 4, 0}, {2, 1, 1, 0}, {0, 0, 0, 0}};
  const std::vector<std::vector<std::int32_t>> sent = {
      {0, 10, 11, 30, 31, 32}, {120, 121, 122, 123}, {200, 201, 210, 220}, {}};
  const std::vector<Counts> received = {{1, 0, 2, 0}, {2, 0, 1, 0}, {0, 4, 1, 0}, {3, 0, 0, 0}};
  const std::vector<std::vector<std::int32_t>> values = {
      {0, 200, 201}, {10, 11, 210}, {120, 121, 122, 123, 220}, {30, 31, 32}};
  const auto r = static_cast<std::size_t>(c.rank());
  const auto rows = [](const auto& list) { return static_cast<std::int64_t>(list.size()); };
  const auto result =
      c.all_to_all_v_int(tensor<std::int32_t>({rows(sent[r]), 1}, sent[r]), counts[r]);
  EXPECT_EQ(result.receive_counts, received[r]);
  EXPECT_TENSOR(tensor<std::int32_t>({rows(values[r]), 1}, values[r]), result.value);

  std::vector<float> halves(sent[r].begin(), sent[r].end());
  for (float& half : halves) half += 0.5f;
  std::vector<float> expected(values[r].begin(), values[r].end());
  for (float& half : expected) half += 0.5f;
  const auto floats = c.all_to_all_v_float(tensor<float>({rows(halves), 1}, halves), counts[r]);
  EXPECT_EQ(floats.receive_counts, received[r]);
  EXPECT_TENSOR(tensor<float>({rows(expected), 1}, expected), floats.value);
}

TEST(MpiExchange, EachRankInTurnIsTheOnlyOneThatSends) {
  const Communicator c = world();
  for (int sender = 0; sender < ranks; ++sender) {
    const bool sends = c.rank() == sender;
    const auto result =
        c.all_to_all_v_int(sends ? tensor<std::uint8_t>({8}, {1, 2, 3, 4, 5, 6, 7, 8})
                                 : IntTensor::zeros(DType::u8, {0}),
                           sends ? Counts{2, 2, 2, 2} : Counts{0, 0, 0, 0});
    Counts expected(ranks, 0);
    expected[static_cast<std::size_t>(sender)] = 2;
    EXPECT_EQ(result.receive_counts, expected);
    const auto first = static_cast<std::uint8_t>(2 * c.rank() + 1);
    EXPECT_TENSOR(tensor<std::uint8_t>({2}, {first, static_cast<std::uint8_t>(first + 1)}),
                  result.value);
  }
}

TEST(MpiExchange, NobodyHasRows) {
  const Communicator c = world();
  const auto result =
      c.all_to_all_v_float(FloatTensor::zeros(DType::bf16, {0, 5}), Counts{0, 0, 0, 0});
  EXPECT_EQ(result.receive_counts, (Counts{0, 0, 0, 0}));
  EXPECT_TENSOR(FloatTensor::zeros(DType::bf16, {0, 5}), result.value);
}

TEST(MpiEmpty, EveryOperationOnTensorsWithoutElements) {
  for (SumRule rule : all_rules) {
    const Communicator c = world({.sum_rule = rule});
    const FloatTensor none = FloatTensor::zeros(DType::f64, {0, 3});
    EXPECT_TENSOR(none, c.all_gather_float(none));
    EXPECT_TENSOR(none, c.reduce_scatter_sum(none));
    EXPECT_TENSOR(none, c.all_reduce_sum(none));
    EXPECT_TENSOR(none, c.broadcast_float(none, 1));
    EXPECT_TENSOR(FloatTensor::zeros(DType::f32, {4, 0, 2}),
                  c.all_gather_float(FloatTensor::zeros(DType::f32, {1, 0, 2})));
    EXPECT_TENSOR(FloatTensor::zeros(DType::f32, {1, 0}),
                  c.reduce_scatter_sum(FloatTensor::zeros(DType::f32, {4, 0})));
    EXPECT_TENSOR(tensor<float>({1}, {10}),
                  c.all_reduce_sum(tensor<float>({1}, {static_cast<float>(c.rank() + 1)})));
  }
}

// ---- sums

TEST(MpiSums, SmallIntegersAddUpUnderEveryRuleAndInEveryWay) {
  for (std::int64_t one_step : {0, 1 << 20}) {
    const WithLimits limits(1 << 30, one_step);
    for (SumRule rule : all_rules) {
      const Communicator c = world({.sum_rule = rule});
      const float r = static_cast<float>(c.rank());
      // Ranks pass 1, 10, 100, 1000 times 1..5: five elements do not divide among four ranks.
      const float unit = std::pow(10.0f, r);
      const FloatTensor x = tensor<float>({5}, {unit, 2 * unit, 3 * unit, 4 * unit, 5 * unit});
      EXPECT_TENSOR(tensor<float>({5}, {1111, 2222, 3333, 4444, 5555}), c.all_reduce_sum(x))
          << rule << " " << one_step;
      EXPECT_TENSOR(tensor<float>({5}, {unit, 2 * unit, 3 * unit, 4 * unit, 5 * unit}), x);
      EXPECT_TENSOR(tensor<double>({}, {6}),
                    c.all_reduce_sum(tensor<double>({}, {c.rank() + 0.0})));
      EXPECT_TENSOR(
          tensor<double>({1, 2}, {c.rank() * 8 + 6.0, c.rank() * 8 + 10.0}),
          c.reduce_scatter_sum(tensor<double>(
              {4, 2}, {0.0 + r, 1.0 + r, 2.0 + r, 3.0 + r, 4.0 + r, 5.0 + r, 6.0 + r, 7.0 + r})));
    }
  }
}

TEST(MpiSums, SixteenBitDtypesAreRoundedByTheRule) {
  for (std::int64_t one_step : {0, 1 << 20}) {
    const WithLimits limits(1 << 30, one_step);
    // f16 2048, 1, 1, 0 and bf16 256, 1, 1, 0.
    const std::uint16_t half[] = {0x6800, 0x3c00, 0x3c00, 0x0000};
    const std::uint16_t brain[] = {0x4380, 0x3f80, 0x3f80, 0x0000};
    const Communicator exact = world({.sum_rule = SumRule::exact});
    const Communicator ordered = world({.sum_rule = SumRule::rank_order});
    const auto r = static_cast<std::size_t>(exact.rank());
    EXPECT_TENSOR(f16_bits({1}, {0x6801}), exact.all_reduce_sum(f16_bits({1}, {half[r]})));
    EXPECT_TENSOR(f16_bits({1}, {0x6800}), ordered.all_reduce_sum(f16_bits({1}, {half[r]})));
    EXPECT_TENSOR(bf16_bits({1}, {0x4381}), exact.all_reduce_sum(bf16_bits({1}, {brain[r]})));
    EXPECT_TENSOR(bf16_bits({1}, {0x4380}), ordered.all_reduce_sum(bf16_bits({1}, {brain[r]})));
    const Communicator any = world({.sum_rule = SumRule::unspecified});
    EXPECT_TENSOR(f16_bits({1}, {0x4900}),  // 1 + 2 + 3 + 4 = 10
                  any.all_reduce_sum(f16_bits(
                      {1}, {std::vector<std::uint16_t>{0x3c00, 0x4000, 0x4200, 0x4400}[r]})));
    EXPECT_TENSOR(
        bf16_bits({1, 1}, {0x4120}),
        any.reduce_scatter_sum(bf16_bits(
            {4, 1}, std::vector<std::uint16_t>(
                        4, std::vector<std::uint16_t>{0x3f80, 0x4000, 0x4040, 0x4080}[r]))));
  }
}

TEST(MpiSums, ExactAndRankOrderDifferWhereOrderMatters) {
  for (std::int64_t one_step : {0, 1 << 20}) {
    const WithLimits limits(1 << 30, one_step);
    // 1e8 + 1 + 1 - 1e8: exactly 2; in rank order each 1 is lost.
    const float mine[] = {1e8f, 1, 1, -1e8f};
    const Communicator exact = world({.sum_rule = SumRule::exact});
    const Communicator ordered = world({.sum_rule = SumRule::rank_order});
    const float value = mine[exact.rank()];
    EXPECT_TENSOR(tensor<float>({2}, {2, 4}),
                  exact.all_reduce_sum(tensor<float>({2}, {value, 2 * value})));
    EXPECT_TENSOR(tensor<float>({2}, {0, 0}),
                  ordered.all_reduce_sum(tensor<float>({2}, {value, 2 * value})));
    EXPECT_TENSOR(tensor<float>({1}, {2}),
                  exact.reduce_scatter_sum(tensor<float>({4}, {value, value, value, value})));
    EXPECT_TENSOR(tensor<float>({1}, {0}),
                  ordered.reduce_scatter_sum(tensor<float>({4}, {value, value, value, value})));
  }
}

TEST(MpiSums, ZerosKeepTheirSignsAndSubnormalsAreNotFlushed) {
  for (std::int64_t one_step : {0, 1 << 20}) {
    const WithLimits limits(1 << 30, one_step);
    for (SumRule rule : all_rules) {
      const Communicator c = world({.sum_rule = rule});
      const std::uint32_t mixed = c.rank() == 2 ? 0x00000000 : 0x80000000;
      const auto subnormal = static_cast<std::uint32_t>(c.rank() + 1);
      EXPECT_TENSOR(f32_bits({3}, {0x80000000, 0x00000000, 0x0000000a}),
                    c.all_reduce_sum(f32_bits({3}, {0x80000000, mixed, subnormal})))
          << rule;
    }
  }
}

TEST(MpiSums, AllRanksHoldTheSameBitsOfANaN) {
  for (std::int64_t one_step : {0, 1 << 20}) {
    const WithLimits limits(1 << 30, one_step);
    for (SumRule rule : all_rules) {
      const Communicator c = world({.sum_rule = rule});
      const auto r = static_cast<std::uint32_t>(c.rank());
      const float inf = std::numeric_limits<float>::infinity();
      // Different payloads on every rank, and infinities of both signs.
      std::vector<float> values;
      for (std::uint32_t i = 0; i < 37; ++i)
        values.push_back(float_of(0x7fc00000 + 64 * i + r + 1));
      values.push_back(r % 2 == 0 ? inf : -inf);
      const FloatTensor sum = c.all_reduce_sum(tensor<float>({38}, values));
      for (float value : sum.values<float>()) EXPECT_TRUE(std::isnan(value));
      expect_equal_on_all_ranks(hex(sum));
    }
  }
}

TEST(MpiSums, AWorldOfOneKeepsEveryBit) {
  for (SumRule rule : all_rules) {
    const Communicator c = world({.sum_rule = rule});
    const Communicator alone = c.group({c.rank()});
    EXPECT_EQ(alone.world_size(), 1);
    const FloatTensor x = f32_bits(
        {4}, {0x7fa00123, 0x80000000, 0xffc00000u + static_cast<std::uint32_t>(c.rank()), 1});
    EXPECT_TENSOR(x, alone.all_reduce_sum(x));
    EXPECT_TENSOR(x, alone.reduce_scatter_sum(x));
    EXPECT_TENSOR(x, alone.all_gather_float(x));
    EXPECT_TENSOR(x, alone.broadcast_float(x, 0));
    const auto exchanged = alone.all_to_all_v_float(x, Counts{4});
    EXPECT_TENSOR(x, exchanged.value);
    EXPECT_EQ(exchanged.receive_counts, Counts{4});
    EXPECT_ERROR(alone.all_to_all_v_float(x, Counts{3}), ContractError, "counts_sum");
    EXPECT_ERROR(alone.broadcast_float(x, 1), ContractError, "root_out_of_range");
  }
}

// ---- sizes

TEST(MpiSizes, TensorsLargerThanOneMessageGoInSeveral) {
  const WithLimits limits(100, 0);  // bytes; not a multiple of an element
  for (SumRule rule : all_rules) {
    const Communicator c = world({.sum_rule = rule});
    const auto numbers = [](int rank, std::int64_t count) {
      std::vector<float> values(static_cast<std::size_t>(count));
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<float>(i) * 4 + static_cast<float>(rank);
      return values;
    };
    std::vector<float> all, sum(203), rows;
    for (int rank = 0; rank < ranks; ++rank) {
      const std::vector<float> theirs = numbers(rank, 203);
      all.insert(all.end(), theirs.begin(), theirs.end());
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += theirs[i];
    }
    const FloatTensor x = tensor<float>({203}, numbers(c.rank(), 203));
    EXPECT_TENSOR(tensor<float>({812}, all), c.all_gather_float(x));
    EXPECT_TENSOR(tensor<float>({203}, sum), c.all_reduce_sum(x));
    EXPECT_TENSOR(tensor<float>({203}, numbers(2, 203)), c.broadcast_float(x, 2));
    const auto r = static_cast<std::size_t>(c.rank());
    EXPECT_TENSOR(tensor<float>({50}, {sum.begin() + 50 * static_cast<long>(r),
                                       sum.begin() + 50 * static_cast<long>(r) + 50}),
                  c.reduce_scatter_sum(x.slice_rows(0, 200)));
    const auto exchanged = c.all_to_all_v_float(x, Counts{0, 100, 1, 102});
    const std::int64_t begin[] = {0, 0, 100, 101};
    const std::int64_t count[] = {0, 100, 1, 102};
    for (int rank = 0; rank < ranks; ++rank) {
      const std::vector<float> theirs = numbers(rank, 203);
      rows.insert(rows.end(), theirs.begin() + begin[r], theirs.begin() + begin[r] + count[r]);
    }
    EXPECT_EQ(exchanged.receive_counts, Counts(4, count[r]));
    EXPECT_TENSOR(tensor<float>({4 * count[r]}, rows), exchanged.value);
  }
}

TEST(MpiSizes, FewerElementsThanRanks) {
  const WithLimits limits(1 << 30, 0);
  for (SumRule rule : all_rules) {
    const Communicator c = world({.sum_rule = rule});
    const float r = static_cast<float>(c.rank());
    EXPECT_TENSOR(tensor<float>({3}, {6, 10, 14}),
                  c.all_reduce_sum(tensor<float>({3}, {r, r + 1, r + 2})));
    EXPECT_TENSOR(tensor<float>({1}, {6}), c.all_reduce_sum(tensor<float>({1}, {r})));
  }
}

}  // namespace
}  // namespace lockstep
