// The contract between processes. Run by four of them: `mpirun -np 4 mpi-test`.
//
// All processes run the same tests in the same order, each on fresh communicators. A failed
// expectation never ends a test early, so a process that fails stays in step with the others; if
// one throws, it leaves its communicators, and the others get an error instead of waiting.

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <functional>
#include <iostream>
#include <limits>
#include <new>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <lockstep/error.hpp>
#include <lockstep/mpi/communicator.hpp>
#include <lockstep/tensor.hpp>

#include "expect.hpp"
#include "limits.hpp"

namespace lockstep {
namespace {

using mpi::Communicator;
using testing::tensor;
using Counts = std::vector<std::int64_t>;
using namespace std::chrono_literals;

constexpr int ranks = 4;

const mpi::Environment* environment = nullptr;

// The barrier keeps one slow process from running into another's time limit.
Communicator world(mpi::Options options = {}) {
  MPI_Barrier(MPI_COMM_WORLD);
  return Communicator(*environment, options);
}

// Everybody's text, by rank. Uses MPI directly, so that it works whatever became of a communicator.
std::vector<std::string> from_all_ranks(const std::string& text) {
  constexpr int most = 2000;  // characters
  std::vector<char> mine(most), all(most * ranks);
  text.copy(mine.data(), most - 1);
  MPI_Allgather(mine.data(), most, MPI_CHAR, all.data(), most, MPI_CHAR, MPI_COMM_WORLD);
  std::vector<std::string> texts;
  for (int rank = 0; rank < ranks; ++rank) texts.emplace_back(all.data() + rank * most);
  return texts;
}

void expect_equal_on_all_ranks(const std::string& text) {
  const std::vector<std::string> texts = from_all_ranks(text);
  for (const std::string& other : texts) EXPECT_EQ(other, texts[0]);
}

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

// Every operation of the contract, for tests of what holds for each alike.
struct NamedCall {
  const char* name;
  std::function<void(const Communicator&)> enter;
};
const std::vector<NamedCall>& every_operation() {
  static const std::vector<NamedCall> calls = {
      {"all_gather_float",
       [](const Communicator& c) { c.all_gather_float(tensor<float>({1}, {1.5f})); }},
      {"all_gather_int",
       [](const Communicator& c) { c.all_gather_int(tensor<std::int64_t>({1}, {7})); }},
      {"reduce_scatter_sum",
       [](const Communicator& c) {
         c.reduce_scatter_sum(FloatTensor::zeros(DType::f32, {c.world_size(), 3}));
       }},
      {"all_reduce_sum",
       [](const Communicator& c) {
         c.all_reduce_sum(tensor<double>({2}, {1, 2}));
       }},
      {"broadcast_float",
       [](const Communicator& c) { c.broadcast_float(tensor<float>({1}, {1.5f}), 0); }},
      {"all_to_all_v_float",
       [](const Communicator& c) {
         c.all_to_all_v_float(FloatTensor::zeros(DType::f16, {c.world_size(), 2}),
                              Counts(static_cast<std::size_t>(c.world_size()), 1));
       }},
      {"all_to_all_v_int",
       [](const Communicator& c) {
         c.all_to_all_v_int(IntTensor::zeros(DType::u8, {c.world_size(), 2}),
                            Counts(static_cast<std::size_t>(c.world_size()), 1));
       }},
      {"split", [](const Communicator& c) { c.split(0, c.rank()); }},
  };
  return calls;
}

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

// ---- broken contracts

// Enters a call that breaks `violation`, and expects the same words on every rank and a
// communicator that works on.
void expect_breach(const Communicator& c, Violation violation, const std::function<void()>& enter) {
  std::string what = "no error";
  try {
    enter();
  } catch (const ContractError& error) {
    what = error.what();
    EXPECT_EQ(error.violation(), violation);
  }
  expect_equal_on_all_ranks(what);
  EXPECT_NE(what.find(name(violation)), std::string::npos) << what;
  EXPECT_TENSOR(tensor<std::int32_t>({4}, {0, 1, 2, 3}),
                c.all_gather_int(tensor<std::int32_t>({1}, {c.rank()})));
}

TEST(MpiContract, EveryRuleIsOneErrorOnEveryRankAndTheCommunicatorWorksOn) {
  const Communicator c = world();
  const bool odd_one_out = c.rank() == 2;
  const auto x = [](const Shape& shape) { return FloatTensor::zeros(DType::f32, shape); };
  expect_breach(c, Violation::operation, [&] {
    if (odd_one_out) {
      c.all_gather_float(x({2}));
    } else {
      c.all_reduce_sum(x({2}));
    }
  });
  expect_breach(c, Violation::operation, [&] {
    if (odd_one_out) {
      c.split(0, 0);
    } else {
      c.all_reduce_sum(x({2}));
    }
  });
  expect_breach(c, Violation::dtype, [&] {
    c.all_reduce_sum(FloatTensor::zeros(odd_one_out ? DType::bf16 : DType::f16, {2}));
  });
  expect_breach(c, Violation::axes, [&] { c.all_reduce_sum(odd_one_out ? x({2, 1}) : x({2})); });
  expect_breach(c, Violation::shape, [&] {
    c.all_gather_float(odd_one_out ? x({0, 3}) : x({3, 3}));
  });
  expect_breach(c, Violation::shape, [&] {  // beyond the axes that a digest holds
    c.all_reduce_sum(x({1, 1, 1, 1, 1, 1, 1, 1, 1, odd_one_out ? 2 : 1}));
  });
  expect_breach(c, Violation::leading_axis, [&] { c.all_gather_float(x({})); });
  expect_breach(c, Violation::indivisible_rows, [&] { c.reduce_scatter_sum(x({6})); });
  expect_breach(c, Violation::root_out_of_range, [&] { c.broadcast_float(x({1}), 4); });
  expect_breach(c, Violation::root_out_of_range,
                [&] { c.broadcast_float(x({1}), odd_one_out ? -1 : 0); });
  expect_breach(c, Violation::root_out_of_range,
                [&] { c.broadcast_float(x({1}), std::int64_t{1} << 32); });
  expect_breach(c, Violation::roots_differ,
                [&] { c.broadcast_float(x({1}), odd_one_out ? 1 : 0); });
  expect_breach(c, Violation::counts_length, [&] {
    c.all_to_all_v_float(x({3, 1}), odd_one_out ? Counts{3} : Counts{1, 1, 1, 0});
  });
  expect_breach(c, Violation::counts_sum, [&] {
    c.all_to_all_v_float(x({3, 1}), odd_one_out ? Counts{1, 1, 0, 0} : Counts{1, 1, 1, 0});
  });
  expect_breach(c, Violation::counts_sum, [&] {
    c.all_to_all_v_float(x({0, 1}), odd_one_out ? Counts{1, -1, 0, 0} : Counts{0, 0, 0, 0});
  });
  expect_breach(c, Violation::zero_trailing_axis, [&] {
    c.all_to_all_v_float(x({1, 0, 2}), Counts{1, 0, 0, 0});
  });
  expect_breach(c, Violation::size_overflow, [&] {
    c.all_gather_float(x({std::int64_t{1} << 62, 0}));
  });
}

TEST(MpiContract, TheErrorSaysWhichCallOnWhichCommunicatorItWas) {
  const Communicator c = world();
  c.all_reduce_sum(tensor<float>({1}, {1}));
  c.all_reduce_sum(tensor<float>({1}, {1}));
  EXPECT_ERROR(c.broadcast_float(tensor<float>({1}, {1}), c.rank() == 3 ? 1 : 0), ContractError,
               "broadcast_float, call 2 on world");
  EXPECT_ERROR(c.reduce_scatter_sum(tensor<float>({1}, {1})), ContractError,
               "reduce_scatter_sum, call 3 on world");
}

TEST(MpiContract, MoreAxesThanADigestHoldsAreOrdinary) {
  const Communicator c = world();
  const float r = static_cast<float>(c.rank());
  const Shape shape{1, 1, 1, 1, 1, 1, 1, 1, 1, 2};
  EXPECT_TENSOR(tensor<float>(shape, {6, 10}), c.all_reduce_sum(tensor<float>(shape, {r, r + 1})));
  EXPECT_TENSOR(tensor<float>({4, 1, 1, 1, 1, 1, 1, 1, 1, 2}, {0, 1, 1, 2, 2, 3, 3, 4}),
                c.all_gather_float(tensor<float>(shape, {r, r + 1})));
}

// ---- communicators

TEST(MpiGroups, RanksCountInTheOrderOfTheList) {
  const Communicator c = world();
  const std::vector<int> list = {3, 0, 2};
  if (c.rank() == 1) {
    EXPECT_THROW(c.group(list), InvalidArgument);
  } else {
    const Communicator g = c.group(list);
    const int expected_rank[] = {1, -1, 2, 0};
    EXPECT_EQ(g.rank(), expected_rank[c.rank()]);
    EXPECT_EQ(g.world_size(), 3);
    EXPECT_EQ(g.name(), "world.group{3, 0, 2}");
    EXPECT_TENSOR(tensor<std::int32_t>({3}, {3, 0, 2}),
                  g.all_gather_int(tensor<std::int32_t>({1}, {c.rank()})));
    EXPECT_TENSOR(tensor<float>({1}, {30}),
                  g.broadcast_float(tensor<float>({1}, {10.0f * static_cast<float>(c.rank())}), 0));
    const auto exchanged = g.all_to_all_v_int(
        tensor<std::int64_t>({3}, {100 * c.rank(), 100 * c.rank() + 1, 100 * c.rank() + 2}),
        Counts{1, 1, 1});
    EXPECT_TENSOR(tensor<std::int64_t>({3}, {300 + g.rank(), g.rank(), 200 + g.rank()}),
                  exchanged.value);
  }
  EXPECT_TENSOR(tensor<float>({1}, {6}),
                c.all_reduce_sum(tensor<float>({1}, {static_cast<float>(c.rank())})));
}

TEST(MpiGroups, TheSameListIsTheSameCommunicator) {
  const Communicator c = world();
  const int pair = c.rank() / 2 * 2;
  c.group({pair, pair + 1}).all_reduce_sum(tensor<float>({1}, {1}));
  c.group({pair, pair + 1}).all_reduce_sum(tensor<float>({1}, {1}));
  EXPECT_ERROR(c.group({pair, pair + 1}).reduce_scatter_sum(tensor<float>({1}, {1})), ContractError,
               "call 2 on world.group{" + std::to_string(pair) + ", " + std::to_string(pair + 1));
  EXPECT_ERROR(c.group({pair + 1, pair}).reduce_scatter_sum(tensor<float>({1}, {1})), ContractError,
               "call 0 on world.group{" + std::to_string(pair + 1));
}

TEST(MpiGroups, AGroupOfAGroupIsNamedByWorldRanks) {
  const Communicator c = world();
  if (c.rank() == 0) return;
  const Communicator g = c.group({3, 2, 1});
  if (g.rank() == 1) return;
  const Communicator inner = g.group({2, 0});
  EXPECT_EQ(inner.name(), "world.group{3, 2, 1}.group{1, 3}");
  EXPECT_TENSOR(tensor<std::int32_t>({2}, {1, 3}),
                inner.all_gather_int(tensor<std::int32_t>({1}, {c.rank()})));
}

TEST(MpiGroups, ListsThatCannotBeAreRefused) {
  const Communicator c = world();
  const int me = c.rank();
  EXPECT_ERROR(c.group({}), InvalidArgument, "one rank at least");
  EXPECT_ERROR(c.group({me, me}), InvalidArgument, "listed twice");
  EXPECT_ERROR(c.group({me, 4}), InvalidArgument, "there is no rank 4");
  EXPECT_ERROR(c.group({-1, me}), InvalidArgument, "there is no rank -1");
  EXPECT_ERROR(c.group({(me + 1) % ranks}), InvalidArgument, "not on the list");
}

TEST(MpiSplit, ColorsBecomeCommunicatorsOrderedByKey) {
  const Communicator c = world();
  c.all_reduce_sum(tensor<float>({1}, {1}));
  const Communicator part = c.split(c.rank() % 2 == 0 ? -5 : std::int64_t{1} << 40, -c.rank());
  const bool even = c.rank() % 2 == 0;
  EXPECT_EQ(part.name(), even ? "world.split@1{2, 0}" : "world.split@1{3, 1}");
  EXPECT_TENSOR(even ? tensor<std::int32_t>({2}, {2, 0}) : tensor<std::int32_t>({2}, {3, 1}),
                part.all_gather_int(tensor<std::int32_t>({1}, {c.rank()})));
}

TEST(MpiCommunicator, WrapsAnyMpiCommunicatorAndPrints) {
  MPI_Comm reversed = MPI_COMM_NULL;
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &reversed);
  const Communicator c(*environment, reversed);
  MPI_Comm_free(&reversed);  // it was the caller's, and the communicator has its own
  EXPECT_EQ(c.rank(), 3 - rank);
  EXPECT_TENSOR(tensor<std::int32_t>({4}, {3, 2, 1, 0}),
                c.all_gather_int(tensor<std::int32_t>({1}, {rank})));
  std::ostringstream text;
  text << c;
  EXPECT_EQ(text.str(), "comm, rank " + std::to_string(3 - rank) + " of 4");
  EXPECT_FALSE(static_cast<bool>(c.autodiff_context()));
}

TEST(MpiCommunicator, ThreeHundredCallsOnMixedCommunicators) {
  const Communicator c = world({.sum_rule = SumRule::rank_order});
  const Communicator evens_or_odds = c.split(c.rank() % 2, c.rank());
  const Communicator pair = c.group(c.rank() < 2 ? std::vector<int>{1, 0} : std::vector<int>{3, 2});
  int wrong = 0;
  for (int i = 0; i < 100; ++i) {
    const float f = static_cast<float>(i);
    const float r = static_cast<float>(c.rank());
    const auto same = [&](const Tensor& a, const Tensor& b) { wrong += same_bits(a, b) ? 0 : 1; };
    same(c.all_reduce_sum(tensor<float>({2}, {f, r})), tensor<float>({2}, {4 * f, 6}));
    same(evens_or_odds.all_gather_float(tensor<float>({1}, {100 * f + r})),
         c.rank() % 2 == 0 ? tensor<float>({2}, {100 * f, 100 * f + 2})
                           : tensor<float>({2}, {100 * f + 1, 100 * f + 3}));
    same(pair.broadcast_float(tensor<float>({1}, {10 * f + r}), i % 2),
         tensor<float>({1}, {10 * f + static_cast<float>(c.rank() / 2 * 2 + 1 - i % 2)}));
  }
  EXPECT_EQ(wrong, 0);
}

TEST(MpiCommunicator, MadeAndDroppedAgainAndAgain) {
  for (int i = 0; i < 50; ++i) {
    const Communicator c = world();
    EXPECT_TENSOR(tensor<float>({1}, {4}), c.all_reduce_sum(tensor<float>({1}, {1})));
  }
}

TEST(MpiCommunicator, TwoThreadsUseOneRankAtOnce) {
  int provided = 0;
  MPI_Query_thread(&provided);
  if (provided < MPI_THREAD_MULTIPLE) GTEST_SKIP() << "the test itself calls MPI from two threads";
  const Communicator c = world();
  const float r = static_cast<float>(c.rank());
  // The peers enter the call only after rank 0's second thread has been refused.
  std::string refused = "not refused";
  std::thread second;
  if (c.rank() == 0) {
    second = std::thread([&] {
      std::this_thread::sleep_for(100ms);  // the first thread waits inside the call by then
      try {
        c.all_gather_float(tensor<float>({1}, {-1}));
      } catch (const Error& error) {
        refused = error.what();
      }
      MPI_Barrier(MPI_COMM_WORLD);
    });
  } else {
    MPI_Barrier(MPI_COMM_WORLD);
  }
  EXPECT_TENSOR(tensor<float>({1}, {6}), c.all_reduce_sum(tensor<float>({1}, {r})));
  if (c.rank() == 0) {
    second.join();
    EXPECT_EQ(refused, "two threads use one rank at once: rank 0 of world");
  }
}

// ---- departures

// Enters `call`, which must give a TransportError that names the `lost` ranks; returns its text.
std::string transport_error(const std::function<void()>& call, const std::vector<int>& lost) {
  try {
    call();
  } catch (const TransportError& error) {
    EXPECT_EQ(error.lost_ranks(), lost) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no TransportError";
  return "no error";
}

TEST(MpiDeparture, ARankThatLeavesIsAnErrorForAllWhoWaitInAnyOperation) {
  for (const NamedCall& operation : every_operation()) {
    std::optional<Communicator> c = world();
    c->all_reduce_sum(tensor<float>({1}, {1}));
    if (c->rank() == 2) {
      std::this_thread::sleep_for(20ms);  // the others are waiting by then
      c.reset();
    } else {
      const auto call = [&] { operation.enter(*c); };
      const std::string what = transport_error(call, {2});
      EXPECT_EQ(what, std::string(operation.name) +
                          ", call 1 on world: rank 2 left after call 0 (all_reduce_sum)");
      for (const NamedCall& later : every_operation()) {
        EXPECT_EQ(transport_error([&] { later.enter(*c); }, {2}), what);
      }
    }
  }
}

TEST(MpiDeparture, ARankThatThrewHasLeft) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  try {
    const Communicator c = world();
    if (rank == 1) throw std::runtime_error("a bug in rank 1");
    EXPECT_EQ(transport_error([&] { c.all_reduce_sum(tensor<float>({1}, {1})); }, {1}),
              "all_reduce_sum, call 0 on world: rank 1 left before its first call");
  } catch (const std::runtime_error&) {
    EXPECT_EQ(rank, 1);
  }
}

TEST(MpiDeparture, AMissingRankOutranksABrokenRule) {
  std::optional<Communicator> c = world();
  if (c->rank() == 3) {
    c.reset();
  } else {
    transport_error([&] { c->all_reduce_sum(FloatTensor::zeros(DType::f32, {c->rank()})); }, {3});
  }
}

TEST(MpiDeparture, LeavingRightAfterTheLastCallDisturbsNobody) {
  for (int i = 0; i < 50; ++i) {
    const Communicator c = world();
    EXPECT_TENSOR(tensor<float>({1}, {6}),
                  c.broadcast_float(tensor<float>({1}, {6.0f + static_cast<float>(c.rank())}), 0));
  }
}

TEST(MpiDeparture, GroupsThatDoNotNeedTheLostRankGoOn) {
  std::optional<Communicator> c = world();
  const int rank = c->rank();
  if (rank == 1) {
    c.reset();
    return;
  }
  const Communicator early = c->group({0, 2, 3});
  early.all_reduce_sum(tensor<float>({1}, {1}));
  transport_error([&] { c->all_reduce_sum(tensor<float>({1}, {1})); }, {1});
  EXPECT_TENSOR(tensor<std::int32_t>({3}, {0, 2, 3}),
                early.all_gather_int(tensor<std::int32_t>({1}, {rank})));
  EXPECT_TENSOR(tensor<std::int32_t>({3}, {3, 2, 0}),
                c->group({3, 2, 0}).all_gather_int(tensor<std::int32_t>({1}, {rank})));
  // A group that does need it: its rank 1 of three.
  const Communicator broken = c->group({0, 1, rank == 0 ? 2 : rank});
  if (rank == 3) return;
  const std::string what =
      transport_error([&] { broken.all_reduce_sum(tensor<float>({1}, {1})); }, {1});
  EXPECT_EQ(what,
            "first call on world.group{0, 1, 2}: rank 1 (rank 1 of world) left before its first "
            "call there");
  EXPECT_EQ(transport_error([&] { broken.all_reduce_sum(tensor<float>({1}, {1})); }, {1}), what);
}

TEST(MpiDeparture, LeavingAPartOfASplitIsNotLeavingTheWorld) {
  const Communicator c = world();
  {
    std::optional<Communicator> part = c.split(c.rank() / 2, 0);
    if (c.rank() % 2 == 1) {
      part.reset();
    } else {
      transport_error([&] { part->all_reduce_sum(tensor<float>({1}, {1})); }, {1});
    }
  }
  EXPECT_TENSOR(tensor<float>({1}, {4}), c.all_reduce_sum(tensor<float>({1}, {1})));
}

TEST(MpiDeparture, AStuckRankTimesOutInEveryOperationAlike) {
  using Clock = std::chrono::steady_clock;
  for (const NamedCall& operation : every_operation()) {
    SCOPED_TRACE(operation.name);
    const Communicator c = world({.timeout = 200ms});
    c.all_reduce_sum(tensor<float>({1}, {1}));
    if (c.rank() == 1) std::this_thread::sleep_for(1s);
    const auto start = Clock::now();
    std::string what = "no error";
    std::vector<int> lost;
    try {
      operation.enter(c);
    } catch (const TransportError& error) {
      what = error.what();
      lost = error.lost_ranks();
    }
    const auto waited = Clock::now() - start;
    const auto says = [&](const std::string& words) {
      return what.find(words) != std::string::npos;
    };
    const std::string gave_up =
        "gave up in call 1 (" + std::string(operation.name) + "), which timed out";
    EXPECT_TRUE(says(std::string(operation.name) + ", call 1 on world: ")) << what;
    if (c.rank() == 1) {  // comes late, and hears that the others have given up
      // Perhaps not from each of them: one that was told by another gives up without a word.
      EXPECT_TRUE(says(gave_up)) << what;
      EXPECT_FALSE(lost.empty());
      EXPECT_EQ(std::count(lost.begin(), lost.end(), 1), 0) << what;
    } else {
      // Whose clock runs out first tells the others, and all of them name the rank that is stuck.
      EXPECT_TRUE(
          says("timed out after 200 ms, waiting for rank 1, last seen in call 0 "
               "(all_reduce_sum)") ||
          (says(gave_up) && says("rank 1 has not come, last seen in call 0 (all_reduce_sum)")))
          << what;
      EXPECT_EQ(std::count(lost.begin(), lost.end(), 1), 1) << what;
      EXPECT_LT(waited, 900ms);
    }
    const auto later = Clock::now();
    for (const NamedCall& other : every_operation()) {
      EXPECT_EQ(transport_error([&] { other.enter(c); }, lost), what);
    }
    EXPECT_LT(Clock::now() - later, 200ms);  // answered without waiting
  }
}

TEST(MpiDeparture, SlowerThanUsualButWithinTheLimitIsNoError) {
  const Communicator c = world({.timeout = 30s});
  for (const NamedCall& operation : every_operation()) {
    if (c.rank() == 3) std::this_thread::sleep_for(60ms);
    EXPECT_NO_THROW(operation.enter(c)) << operation.name;
  }
}

TEST(MpiDeparture, ARankThatRunsOutOfMemoryInACallTellsTheOthers) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers need the address space that this test takes away";
#endif
  constexpr std::int64_t rows = 16 << 20;
  const Communicator c = world();
  const IntTensor x = IntTensor::zeros(DType::u8, {rows});
  release_pooled_storage();
  rlimit before;
  getrlimit(RLIMIT_AS, &before);
  if (c.rank() == 0) {  // which would receive 64 MiB
    long pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    rlimit tight = before;
    tight.rlim_cur = static_cast<rlim_t>(pages * sysconf(_SC_PAGESIZE) + (32 << 20));
    setrlimit(RLIMIT_AS, &tight);
    EXPECT_THROW(c.all_to_all_v_int(x, Counts{rows, 0, 0, 0}), std::bad_alloc);
    setrlimit(RLIMIT_AS, &before);
    transport_error([&] { c.all_to_all_v_int(x, Counts{rows, 0, 0, 0}); }, {0});
  } else {
    EXPECT_EQ(transport_error(
                  [&] {
                    c.all_to_all_v_int(x, Counts{rows, 0, 0, 0});
                  },
                  {0}),
              "all_to_all_v_int, call 0 on world: rank 0 gave up in call 0 (all_to_all_v_int), in "
              "which it threw");
  }
}

// ---- the run

// Only process 0 reports progress; the others speak up when something fails.
class FailuresOnly : public ::testing::EmptyTestEventListener {
 public:
  explicit FailuresOnly(int rank) : rank_(rank) {}

 private:
  void OnTestStart(const ::testing::TestInfo& test) override {
    name_ = std::string(test.test_suite_name()) + "." + test.name();
  }
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::ostringstream text;
    text << "[rank " << rank_ << "] " << name_ << "\n"
         << (result.file_name() != nullptr ? result.file_name() : "") << ":" << result.line_number()
         << ": " << result.message() << "\n";
    std::cerr << text.str() << std::flush;
  }

  int rank_;
  std::string name_;
};

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  alarm(240);  // a test that hangs ends the job
  const lockstep::mpi::Environment mpi;
  lockstep::environment = &mpi;
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size != lockstep::ranks) {
    if (rank == 0)
      std::cerr << "this test needs " << lockstep::ranks << " processes: mpirun -np 4\n";
    return 2;
  }
  ::testing::TestEventListeners& listeners = ::testing::UnitTest::GetInstance()->listeners();
  if (rank != 0) {
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new lockstep::FailuresOnly(rank));
  }
  // Every process exits with the worst result of all.
  int result = RUN_ALL_TESTS();
  MPI_Allreduce(MPI_IN_PLACE, &result, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  return result;
}
