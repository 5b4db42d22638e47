// Faults that collective libraries shipped, on simulated ranks: those that need more than a case
// file can say (large or generated data, the caller's own memory, many calls). The others are in
// tests/cases/; docs/reports.md lists them all.
#include <lockstep/sim/world.hpp>

#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <stdexcept>
#include <thread>

#include "expect.hpp"
#include "filled.hpp"

namespace lockstep::sim {
namespace {

using testing::counting;
using testing::filled;
using testing::tensor;
using Counts = std::vector<std::int64_t>;

constexpr SumRule rules[] = {SumRule::exact, SumRule::rank_order};

std::vector<bool> everybody(int ranks) {
  return std::vector<bool>(static_cast<std::size_t>(ranks), true);
}

// --- Zero rows

// openxla/xla#46982
TEST(B11, ASparseRingFinishesOverAndOver) {
  constexpr int ranks = 4;
  World world(ranks);
  EXPECT_EQ(world.run([](Communicator c) {
    const int next = (c.rank() + 1) % ranks, previous = (c.rank() + ranks - 1) % ranks;
    Counts counts(ranks, 0), received(ranks, 0);
    counts[static_cast<std::size_t>(next)] = 2;
    received[static_cast<std::size_t>(previous)] = 2;
    bool right = true;
    for (int call = 0; call < 200; ++call) {
      const auto exchanged =
          c.all_to_all_v_float(counting<float>({2, 3}, 1000 * c.rank() + 10 * call), counts);
      right = right && exchanged.receive_counts == received &&
              same_bits(exchanged.value, counting<float>({2, 3}, 1000 * previous + 10 * call));
    }
    return right;
  }),
            everybody(ranks));
}

// pmodels/mpich#264: two null pointers were taken for one buffer.
TEST(B12, TensorsWithoutStorageAreNoAliases) {
  for (int ranks : {1, 2, 3}) {
    World world(ranks);
    const auto results = world.run([](Communicator c) {
      const FloatTensor x = FloatTensor::uninitialized(DType::f32, {0, 2});
      if (x.data() != nullptr) throw std::logic_error("the tensor has storage");
      const Counts none(static_cast<std::size_t>(c.world_size()), 0);
      return std::vector<FloatTensor>{c.all_reduce_sum(x), c.reduce_scatter_sum(x),
                                      c.all_gather_float(x), c.broadcast_float(x, 0),
                                      c.all_to_all_v_float(x, none).value};
    });
    for (const auto& of_rank : results) {
      for (const FloatTensor& result : of_rank) {
        EXPECT_EQ(result.dtype(), DType::f32);
        EXPECT_EQ(result.shape(), (Shape{0, 2}));
      }
    }
  }
}

// --- Stale memory

// Leaves this value in freed memory: in blocks of this shape that the pool will hand out again, and
// in small ones of this thread.
void dirty_freed_memory(const Shape& shape, float value) {
  std::vector<FloatTensor> blocks;
  for (int i = 0; i < 4; ++i) {
    for (const Shape& size : {shape, Shape{1}, Shape{4}, Shape{64}}) {
      blocks.push_back(filled<float>(size, [=](std::int64_t) { return value; }));
    }
  }
}

constexpr std::int64_t pooled = 20'001;  // rows of f32 that the pool keeps

// Without this the tests below could not fail.
TEST(StaleMemory, IsHandedOutAgain) {
  dirty_freed_memory({pooled}, 777);
  const FloatTensor fresh = FloatTensor::uninitialized(DType::f32, {pooled});
  EXPECT_EQ(fresh.values<float>()[pooled - 1], 777);
}

// pytorch/pytorch#117486: stale values in the tail of what was received.
TEST(B15, WhatIsReceivedHasNoStaleTail) {
  for (std::int64_t rows : {std::int64_t{1}, std::int64_t{63}, pooled - 1, pooled}) {
    World world(2);
    const auto results = world.run([rows](Communicator c) {
      dirty_freed_memory({pooled}, 777);
      return c.rank() == 0
                 ? c.all_to_all_v_float(counting<float>({rows, 1}, 1000), Counts{0, rows})
                 : c.all_to_all_v_float(FloatTensor::zeros(DType::f32, {0, 1}), Counts{0, 0});
    });
    EXPECT_TENSOR(FloatTensor::zeros(DType::f32, {0, 1}), results[0].value);
    EXPECT_EQ(results[0].receive_counts, (Counts{0, 0}));
    EXPECT_TENSOR(counting<float>({rows, 1}, 1000), results[1].value);
    EXPECT_EQ(results[1].receive_counts, (Counts{rows, 0}));
  }
}

// sgl-project/sglang#8532: uninitialised scratch memory gave NaN.
TEST(B108, SumsDoNotReadFreedMemory) {
  World world(3);
  for (const Shape& shape : {Shape{3}, Shape{pooled}, Shape{3 * pooled}}) {
    EXPECT_EQ(world.run([&shape](Communicator c) {
      const double own = std::pow(10, c.rank());
      const auto times = [](double factor) {
        return [factor](std::int64_t i) { return factor * static_cast<double>(1 + i % 1000); };
      };
      const FloatTensor x = filled<float>(shape, times(own));
      const FloatTensor sum = filled<float>(shape, times(111));
      const std::int64_t rows = shape[0] / 3;
      bool right = true;
      for (int call = 0; call < 50; ++call) {
        dirty_freed_memory(shape, std::numeric_limits<float>::quiet_NaN());
        right = right && same_bits(c.all_reduce_sum(x), sum) &&
                same_bits(c.reduce_scatter_sum(x),
                          sum.slice_rows(c.rank() * rows, (c.rank() + 1) * rows));
      }
      return right;
    }),
              everybody(3));
  }
}

// --- Counts

// deepseek-ai/DeepEP#427: very uneven routing.
TEST(B20, NearlyAllRowsToOneRankArriveThere) {
  World world(4);
  const Counts counts = {10, 10, 10, 2274};
  const auto results = world.run([&counts](Communicator c) {
    return c.all_to_all_v_float(counting<float>({2304, 8}, c.rank() * 2304 * 8), counts);
  });
  for (std::int64_t rank = 0; rank < 4; ++rank) {
    const std::int64_t rows = counts[static_cast<std::size_t>(rank)];
    const FloatTensor expected = filled<float>({4 * rows, 8}, [&](std::int64_t i) {
      const std::int64_t source = i / (8 * rows);
      return source * 2304 * 8 + rank * 10 * 8 + i % (8 * rows);
    });
    EXPECT_TENSOR(expected, results[static_cast<std::size_t>(rank)].value);
    EXPECT_EQ(results[static_cast<std::size_t>(rank)].receive_counts, Counts(4, rows));
  }
}

// tenstorrent/tt-mlir#8499: counts went through a format that cannot hold them.
TEST(B27, CountsThatNoFloatHoldsAreExact) {
  for (std::int64_t there : {257, 2049, 16'777'217}) {
    World world(2);
    const auto rows = [](std::int64_t count, std::int64_t seed) {
      return filled<std::uint8_t>({count, 1}, [=](std::int64_t i) { return (i * 7 + seed) % 251; });
    };
    const auto results = world.run([&](Communicator c) {
      return c.rank() == 0 ? c.all_to_all_v_int(rows(2049, 1), Counts{0, 2049})
                           : c.all_to_all_v_int(rows(there, 2), Counts{there, 0});
    });
    EXPECT_EQ(results[0].receive_counts, (Counts{0, there}));
    EXPECT_EQ(results[1].receive_counts, (Counts{2049, 0}));
    EXPECT_TENSOR(rows(there, 2), results[0].value);
    EXPECT_TENSOR(rows(2049, 1), results[1].value);
  }
}

// --- Order

// Full significands of either sign over 24 binades, within the range of every dtype: sums in which
// order and intermediate precision show.
template <Element T>
FloatTensor mixed(const Shape& shape, std::mt19937_64& random) {
  return filled<T>(shape, [&](std::int64_t) {
    const double significand = 1 + std::ldexp(static_cast<double>(random() >> 12), -52);
    const double sign = random() % 2 == 0 ? 1 : -1;
    return sign * std::ldexp(significand, static_cast<int>(random() % 24) - 12);
  });
}

// One tensor per rank, drawn before any rank runs.
template <Element T>
std::vector<FloatTensor> mixed_inputs(int ranks, const Shape& shape) {
  std::mt19937_64 random(static_cast<std::uint64_t>(ranks) * 1000 + sizeof(T));
  std::vector<FloatTensor> inputs;
  for (int rank = 0; rank < ranks; ++rank) inputs.push_back(mixed<T>(shape, random));
  return inputs;
}

const FloatTensor& of(const std::vector<FloatTensor>& inputs, const Communicator& c) {
  return inputs[static_cast<std::size_t>(c.rank())];
}

template <class T>
class FloatingReports : public ::testing::Test {};
using FloatingTypes = ::testing::Types<f16, bf16, float, double>;
TYPED_TEST_SUITE(FloatingReports, FloatingTypes);

// NVIDIA/nccl#157
TYPED_TEST(FloatingReports, B39SumsDoNotDependOnPositionOrLength) {
  for (SumRule rule : rules) {
    World world(3, {.sum_rule = rule, .timeout = {}});
    for (std::int64_t scale : {1, 100}) {
      const std::int64_t first = 7 * scale, all = 12 * scale;
      const std::vector<FloatTensor> joined = mixed_inputs<TypeParam>(3, {all});
      EXPECT_EQ(world.run([&](Communicator c) {
        const FloatTensor& x = of(joined, c);
        const FloatTensor sum = c.all_reduce_sum(x);
        return same_bits(c.all_reduce_sum(x.slice_rows(0, first)), sum.slice_rows(0, first)) &&
               same_bits(c.all_reduce_sum(x.slice_rows(first, all)), sum.slice_rows(first, all));
      }),
                everybody(3))
          << rule;
    }
  }
}

// pytorch/pytorch#125190
TYPED_TEST(FloatingReports, B40ReduceScatterAndGatherAreAnAllReduce) {
  for (SumRule rule : rules) {
    for (int ranks : {2, 3, 4, 8}) {
      World world(ranks, {.sum_rule = rule, .timeout = {}});
      for (std::int64_t rows : {5, 3001}) {
        const std::vector<FloatTensor> inputs = mixed_inputs<TypeParam>(ranks, {ranks * rows, 3});
        const auto sums = world.run([&](Communicator c) {
          const FloatTensor& x = of(inputs, c);
          return std::pair{c.all_reduce_sum(x), c.all_gather_float(c.reduce_scatter_sum(x))};
        });
        for (const auto& [reduced, gathered] : sums) {
          EXPECT_TENSOR(reduced, gathered);
          EXPECT_TENSOR(sums[0].first, reduced);
        }
      }
    }
  }
}

// rapidsai/rapidsmpf#469, for exchanges; gathers are in world_test.cpp.
TEST(B44, ExchangesAreInRankOrderHoweverRanksArrive) {
  constexpr int ranks = 5;
  World world(ranks);
  const IntTensor sources = counting<std::int32_t>({ranks});
  EXPECT_EQ(world.run([&](Communicator c) {
    bool right = true;
    for (int call = 0; call < 100; ++call) {
      std::this_thread::sleep_for(
          std::chrono::microseconds((c.rank() * 7919 + call * 104'729) % 300));
      const IntTensor x = filled<std::int32_t>({ranks}, [&](std::int64_t) { return c.rank(); });
      right = right && same_bits(c.all_to_all_v_int(x, Counts(ranks, 1)).value, sources);
    }
    return right;
  }),
            everybody(ranks));
}

// --- Layout: a strided array becomes dense when the tensor is made, and no call can tell.

// helmholtz-analytics/heat#1058: ranks judged the contiguity of a single row differently.
TEST(B49, LayoutIsNoPartOfTheAgreement) {
  World world(2);
  const auto results = world.run([](Communicator c) {
    // Column-major arrays of four columns.
    const double single[] = {100, 101, 102, 103};
    const double several[] = {0, 10, 20, 1, 11, 21, 2, 12, 22, 3, 13, 23};
    const std::int64_t rows = c.rank() == 0 ? 1 : 3;
    const std::int64_t strides[] = {1, rows};
    return c.all_to_all_v_float(
        FloatTensor::from_strided(DType::f64, {rows, 4}, strides, c.rank() == 0 ? single : several),
        c.rank() == 0 ? Counts{0, 1} : Counts{2, 1});
  });
  EXPECT_TENSOR(tensor<double>({2, 4}, {0, 1, 2, 3, 10, 11, 12, 13}), results[0].value);
  EXPECT_EQ(results[0].receive_counts, (Counts{0, 2}));
  EXPECT_TENSOR(tensor<double>({2, 4}, {100, 101, 102, 103, 20, 21, 22, 23}), results[1].value);
  EXPECT_EQ(results[1].receive_counts, (Counts{1, 1}));
}

// pytorch/pytorch#130251
TEST(B87, ATransposedTensorIsReducedInItsLogicalOrder) {
  World world(4);
  const auto results = world.run([](Communicator c) {
    std::vector<float> range(24);
    std::iota(range.begin(), range.end(), 0.0f);
    const std::int64_t strides[] = {6, 1, 2};  // [4, 3, 2] with axes 1 and 2 swapped
    return c.reduce_scatter_sum(
        FloatTensor::from_strided(DType::f32, {4, 2, 3}, strides, range.data()));
  });
  EXPECT_TENSOR(tensor<float>({1, 2, 3}, {0, 8, 16, 4, 12, 20}), results[0]);
  EXPECT_TENSOR(tensor<float>({1, 2, 3}, {24, 32, 40, 28, 36, 44}), results[1]);
  EXPECT_TENSOR(tensor<float>({1, 2, 3}, {48, 56, 64, 52, 60, 68}), results[2]);
  EXPECT_TENSOR(tensor<float>({1, 2, 3}, {72, 80, 88, 76, 84, 92}), results[3]);
}

// pytorch/pytorch#159548: strided columns were moved as raw storage.
TEST(B88, AColumnMovesWithoutItsNeighbours) {
  World world(2);
  const std::int64_t strides[] = {2};
  // The column of the report is the same on both ranks; the second one is not.
  const auto results = world.run([&](Communicator c) {
    const float same[] = {0, 0, 1, 1};
    const float own[] = {static_cast<float>(10 * c.rank() + 1), -1,
                         static_cast<float>(10 * c.rank() + 2), -1};
    std::vector<FloatTensor> all;
    for (const float* matrix : {same, own}) {
      const FloatTensor x = FloatTensor::from_strided(DType::f32, {2}, strides, matrix);
      all.insert(all.end(), {c.all_gather_float(x), c.broadcast_float(x, 1), c.all_reduce_sum(x)});
    }
    return all;
  });
  for (const auto& of_rank : results) {
    EXPECT_TENSOR(tensor<float>({4}, {0, 1, 0, 1}), of_rank[0]);
    EXPECT_TENSOR(tensor<float>({2}, {0, 1}), of_rank[1]);
    EXPECT_TENSOR(tensor<float>({2}, {0, 2}), of_rank[2]);
    EXPECT_TENSOR(tensor<float>({4}, {1, 2, 11, 12}), of_rank[3]);
    EXPECT_TENSOR(tensor<float>({2}, {11, 12}), of_rank[4]);
    EXPECT_TENSOR(tensor<float>({2}, {12, 14}), of_rank[5]);
  }
}

// pytorch/pytorch#20421: a slice was moved from the beginning of its storage.
TEST(B89, SlicesOfOneTensorAreTakenWhereTheyBegin) {
  World world(2);
  const auto results = world.run([](Communicator c) {
    const std::int64_t first = 16 * c.rank();
    const FloatTensor own = counting<float>({32, 4}).slice_rows(first, first + 16);
    const IntTensor own_int = counting<std::int64_t>({32, 4}).slice_rows(first, first + 16);
    return std::tuple{c.all_gather_float(own),
                      c.all_gather_int(own_int),
                      c.all_reduce_sum(own),
                      c.broadcast_float(own, 1),
                      c.all_to_all_v_float(own, Counts{12, 4}).value,
                      c.all_gather_float(c.reduce_scatter_sum(own))};
  });
  const FloatTensor sum = filled<float>({16, 4}, [](std::int64_t i) { return 64 + 2 * i; });
  for (const auto& [gathered, gathered_int, reduced, root, exchanged, regathered] : results) {
    EXPECT_TENSOR(counting<float>({32, 4}), gathered);
    EXPECT_TENSOR(counting<std::int64_t>({32, 4}), gathered_int);
    EXPECT_TENSOR(sum, reduced);
    EXPECT_TENSOR(counting<float>({16, 4}, 64), root);
    EXPECT_TENSOR(sum, regathered);  // of slices that the library itself made
  }
  EXPECT_TENSOR(counting<float>({12, 4}), std::get<4>(results[0]).slice_rows(0, 12));
  EXPECT_TENSOR(counting<float>({12, 4}, 64), std::get<4>(results[0]).slice_rows(12, 24));
  EXPECT_TENSOR(counting<float>({4, 4}, 48), std::get<4>(results[1]).slice_rows(0, 4));
  EXPECT_TENSOR(counting<float>({4, 4}, 112), std::get<4>(results[1]).slice_rows(4, 8));
}

}  // namespace
}  // namespace lockstep::sim
