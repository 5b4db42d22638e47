// Faults that collective libraries shipped, continued from reports_test.cpp: the caller's own
// values, and sizes.
#include <lockstep/sim/world.hpp>

#include <cmath>
#include <cstdlib>
#include <string_view>

#include <lockstep/agreement.hpp>

#include "expect.hpp"
#include "filled.hpp"

namespace lockstep::sim {
namespace {

using testing::counting;
using testing::filled;
using testing::tensor;
using Counts = std::vector<std::int64_t>;

std::vector<bool> everybody(int ranks) {
  return std::vector<bool>(static_cast<std::size_t>(ranks), true);
}

// --- The caller's own values

// microsoft/ark#253: an in-place ring changed the input before forwarding it.
TEST(B90, TheInputStillHoldsTheRanksOwnValue) {
  for (int ranks : {2, 3, 4}) {
    World world(ranks);
    const float sum = ranks == 2 ? 11.0f : ranks == 3 ? 111.0f : 1111.0f;
    const auto results = world.run([](Communicator c) {
      const auto own = static_cast<float>(std::pow(10, c.rank()));
      const FloatTensor x = tensor<float>({1}, {own});
      const FloatTensor reduced = c.all_reduce_sum(x);
      return std::pair{reduced, x};
    });
    float own = 1;
    for (const auto& [reduced, x] : results) {
      EXPECT_TENSOR(tensor<float>({1}, {sum}), reduced);
      EXPECT_TENSOR(tensor<float>({1}, {own}), x);
      own *= 10;
    }
  }
}

// llnl/Aluminum#110 and #22: in-place calls overwrote other parts of the buffer.
TEST(B91, ASecondReferenceToTheInputSurvivesEveryInPlaceUse) {
  World world(3);
  const auto results = world.run([](Communicator c) {
    const FloatTensor original = counting<float>({3}, 10 * c.rank());
    const IntTensor original_int = counting<std::int64_t>({3}, 10 * c.rank());
    std::vector<FloatTensor> references(5, original);
    FloatTensor x = references[0];
    x = c.reduce_scatter_sum(x);
    x.mutable_values<float>()[0] = -1;
    x = references[1];
    x = c.all_gather_float(x);
    x.mutable_values<float>()[4] = -2;
    x = references[2];
    x = c.all_reduce_sum(x);
    x.mutable_values<float>()[2] = -3;
    x = references[3];
    x = c.broadcast_float(x, 2);
    x.mutable_values<float>()[1] = -4;
    x = references[4];
    x = c.all_to_all_v_float(x, Counts{1, 1, 1}).value;
    x.mutable_values<float>()[0] = -5;
    IntTensor i = original_int;
    i = c.all_gather_int(i);
    i.mutable_values<std::int64_t>()[0] = -6;
    references.push_back(original);
    return std::pair{references, original_int};
  });
  for (std::int64_t rank = 0; rank < 3; ++rank) {
    const auto& [references, integers] = results[static_cast<std::size_t>(rank)];
    for (const FloatTensor& reference : references) {
      EXPECT_TENSOR(counting<float>({3}, 10 * rank), reference);
    }
    EXPECT_TENSOR(counting<std::int64_t>({3}, 10 * rank), integers);
  }
}

// pytorch/pytorch#70260: a broadcast into the tensor itself broke values that were kept.
TEST(B92, ABroadcastLeavesTheReceiversHandleAsItWas) {
  World world(2);
  const auto results = world.run([](Communicator c) {
    const FloatTensor x = tensor<float>({1}, {c.rank() == 0 ? 1.0f : 5.0f});
    const FloatTensor kept = x;
    FloatTensor received = c.broadcast_float(x, 0);
    const FloatTensor again = received;
    received.mutable_values<float>()[0] = static_cast<float>(70 + c.rank());
    c.broadcast_float(received, 1);
    return std::vector<FloatTensor>{x, kept, again, received};
  });
  EXPECT_TENSOR(tensor<float>({1}, {1}), results[0][0]);
  EXPECT_TENSOR(tensor<float>({1}, {1}), results[0][1]);
  EXPECT_TENSOR(tensor<float>({1}, {5}), results[1][0]);
  EXPECT_TENSOR(tensor<float>({1}, {5}), results[1][1]);
  for (int rank : {0, 1}) {
    const auto& of_rank = results[static_cast<std::size_t>(rank)];
    EXPECT_TENSOR(tensor<float>({1}, {1}), of_rank[2]);
    EXPECT_TENSOR(tensor<float>({1}, {static_cast<float>(70 + rank)}), of_rank[3]);
  }
}

// open-mpi/ompi#1636: a reduce-scatter wrote beyond its receive buffer. Here the inputs stand
// between guard values, and the peers' results stand beside a rank's own in one block.
TEST(B105, AReduceScatterTouchesNothingAroundIt) {
  for (int ranks = 2; ranks <= 16; ++ranks) {
    World world(ranks);
    struct Results {
      FloatTensor ones, distinct, block;
    };
    auto results = world.run([ranks](Communicator c) {
      const FloatTensor ones = filled<float>({ranks}, [](std::int64_t) { return 1; });
      FloatTensor block = filled<float>({ranks + 2}, [&](std::int64_t i) {
        return i == 0 || i == ranks + 1 ? -777.0 : std::ldexp(static_cast<double>(i), c.rank());
      });
      const FloatTensor distinct = block.slice_rows(1, ranks + 1);
      return Results{c.reduce_scatter_sum(ones), c.reduce_scatter_sum(distinct), block};
    });
    // Writing to one's own result is nobody else's affair.
    results[1].distinct.mutable_values<float>()[0] = -999;
    const double all = std::ldexp(1.0, ranks) - 1;
    for (int rank = 0; rank < ranks; ++rank) {
      const Results& r = results[static_cast<std::size_t>(rank)];
      EXPECT_TENSOR(tensor<float>({1}, {static_cast<float>(ranks)}), r.ones);
      const double sum = rank == 1 ? -999 : all * (rank + 1);
      EXPECT_TENSOR(tensor<float>({1}, {static_cast<float>(sum)}), r.distinct);
      EXPECT_EQ(r.block.values<float>().front(), -777);
      EXPECT_EQ(r.block.values<float>().back(), -777);
      EXPECT_EQ(r.block.values<float>()[1], std::ldexp(1.0f, rank));
    }
  }
}

// --- Sizes

// Gigabytes are moved only when asked for: LOCKSTEP_BIG_TESTS=1.
#define SKIP_UNLESS_BIG(gigabytes)                                                             \
  do {                                                                                         \
    const char* asked = std::getenv("LOCKSTEP_BIG_TESTS");                                     \
    if (asked == nullptr || std::string_view(asked) != "1") {                                  \
      GTEST_SKIP() << "needs " #gigabytes " GB of memory; set LOCKSTEP_BIG_TESTS=1 to run it"; \
    }                                                                                          \
  } while (false)

// Bytes that no shift by a power of two maps onto themselves.
std::uint8_t byte_at(std::int64_t i) {
  return static_cast<std::uint8_t>(i % 251);
}

IntTensor bytes(const Shape& shape) {
  IntTensor x = IntTensor::uninitialized(DType::u8, shape);
  std::int64_t i = 0;
  for (std::uint8_t& one : x.mutable_values<std::uint8_t>()) one = byte_at(i++);
  return x;
}

// Whether `x` holds what `bytes` has from `first` on.
bool continues_at(const IntTensor& x, std::int64_t first) {
  for (std::uint8_t one : x.values<std::uint8_t>()) {
    if (one != byte_at(first++)) return false;
  }
  return true;
}

// open-mpi/ompi#9616. The arithmetic alone is in agreement_test.cpp.
TEST(B77, MoreThanTwoToThe31RowsArrive) {
  SKIP_UNLESS_BIG(5);
  constexpr std::int64_t rows = 2'147'483'664;
  World world(2);
  const auto results = world.run([](Communicator c) {
    return c.rank() == 0 ? c.all_to_all_v_int(bytes({rows, 1}), Counts{0, rows})
                         : c.all_to_all_v_int(IntTensor::zeros(DType::u8, {0, 1}), Counts{0, 0});
  });
  EXPECT_EQ(results[0].value.shape(), (Shape{0, 1}));
  EXPECT_EQ(results[1].receive_counts, (Counts{rows, 0}));
  EXPECT_EQ(results[1].value.shape(), (Shape{rows, 1}));
  EXPECT_TRUE(continues_at(results[1].value, 0));
}

// pytorch/pytorch#104297: few rows, but large ones.
TEST(B78, AFewRowsOfAGigabyteEachArrive) {
  SKIP_UNLESS_BIG(7);
  constexpr std::int64_t width = 1'073'741'824;
  World world(2);
  const auto results = world.run([](Communicator c) {
    return c.rank() == 0
               ? c.all_to_all_v_int(bytes({3, width}), Counts{1, 2})
               : c.all_to_all_v_int(IntTensor::zeros(DType::u8, {0, width}), Counts{0, 0});
  });
  EXPECT_EQ(results[0].receive_counts, (Counts{1, 0}));
  EXPECT_EQ(results[0].value.shape(), (Shape{1, width}));
  EXPECT_TRUE(continues_at(results[0].value, 0));
  EXPECT_EQ(results[1].receive_counts, (Counts{2, 0}));
  EXPECT_EQ(results[1].value.shape(), (Shape{2, width}));
  EXPECT_TRUE(continues_at(results[1].value, width));
}

TEST(B78, TheSizesOfLargeRowsAreNoBreach) {
  constexpr std::int64_t width = 1'073'741'824;
  for (std::int64_t scale : {std::int64_t{1}, std::int64_t{1} << 30}) {  // up to 2^61 rows' bytes
    const Counts sent = {scale, 2 * scale}, none = {0, 0};
    const std::vector<Signature> calls = {
        {Operation::all_to_all_v_int, DType::u8, {3 * scale, width}, 0, sent},
        {Operation::all_to_all_v_int, DType::u8, {0, width}, 0, none}};
    EXPECT_EQ(find_breach(calls), std::nullopt);
    EXPECT_EQ(result_shape(calls, 0), (Shape{scale, width}));
    EXPECT_EQ(result_shape(calls, 1), (Shape{2 * scale, width}));
  }
}

// openxla/xla#47283: a table of 32 entries.
TEST(B79, MoreThan32RanksExchangeAndGather) {
  for (int ranks : {33, 40, 64, 100}) {
    World world(ranks);
    const Counts ones(static_cast<std::size_t>(ranks), 1);
    const IntTensor gathered =
        filled<std::int32_t>({ranks}, [](std::int64_t source) { return 7 * source + 1; });
    EXPECT_EQ(world.run([&](Communicator c) {
      const auto exchanged =
          c.all_to_all_v_int(counting<std::int32_t>({ranks}, 1000 * c.rank()), ones);
      const IntTensor expected = filled<std::int32_t>(
          {ranks}, [&](std::int64_t source) { return 1000 * source + c.rank(); });
      const IntTensor own =
          filled<std::int32_t>({1}, [&](std::int64_t) { return 7 * c.rank() + 1; });
      return exchanged.receive_counts == ones && same_bits(exchanged.value, expected) &&
             same_bits(c.all_gather_int(own), gathered);
    }),
              everybody(ranks));
  }
}

// open-mpi/ompi#7523: worlds that are no power of two.
TEST(B82, EveryRootBroadcastsEveryLengthInOddWorlds) {
  for (int ranks : {3, 5, 6, 7, 9}) {
    World world(ranks);
    EXPECT_EQ(world.run([ranks](Communicator c) {
      bool right = true;
      for (std::int64_t length : {1, 2, 3, 5, 7, 1000}) {
        for (int root = 0; root < ranks; ++root) {
          const FloatTensor x = counting<float>({length}, 10'000 * c.rank());
          right = right &&
                  same_bits(c.broadcast_float(x, root), counting<float>({length}, 10'000 * root));
        }
      }
      return right;
    }),
              everybody(ranks));
  }
}

// RBLN-SW/torch-rbln#56: the odd remainder was padded on one side only.
TEST(B83, AReduceScatterIsExactToItsLastElement) {
  for (std::int64_t rows : {1, 3, 127, 129, 2'097'174}) {
    World world(2);
    // 10 bits are enough: sums of two stay below 2048, the integers that f16 holds.
    const auto value = [](std::int64_t rank, std::int64_t i) { return (i * (rank + 1)) % 1009; };
    const auto results = world.run([&](Communicator c) {
      return c.reduce_scatter_sum(
          filled<f16>({2 * rows}, [&](std::int64_t i) { return value(c.rank(), i); }));
    });
    for (std::int64_t rank : {0, 1}) {
      EXPECT_TENSOR(filled<f16>({rows},
                                [&](std::int64_t i) {
                                  return value(0, rank * rows + i) + value(1, rank * rows + i);
                                }),
                    results[static_cast<std::size_t>(rank)]);
    }
  }
}

}  // namespace
}  // namespace lockstep::sim
