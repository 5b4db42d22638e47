// Large tensors are worked on by as many threads as there are. The bits do not depend on how many.

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include <gtest/gtest.h>
#include <tbb/global_control.h>
#include <tbb/task_arena.h>

#include <lockstep/oracle.hpp>

namespace lockstep {
namespace {

constexpr int ranks = 3;
// Odd, and with every dtype far beyond what one thread does alone.
constexpr std::int64_t rows = 3 * 100'003;

// Every pattern of bits, so that sums see ties, cancellation, subnormals, infinities and NaN.
std::vector<FloatTensor> any_bits(DType dtype) {
  std::mt19937_64 random(static_cast<unsigned>(dtype) + 1);
  std::vector<FloatTensor> inputs;
  for (int rank = 0; rank < ranks; ++rank) {
    inputs.push_back(FloatTensor::zeros(dtype, {rows}));
    const std::span<std::byte> bytes = inputs.back().mutable_bytes();
    for (std::size_t at = 0; at < bytes.size(); at += sizeof(std::uint64_t)) {
      const std::uint64_t bits = random();
      std::memcpy(bytes.data() + at, &bits, std::min(sizeof bits, bytes.size() - at));
    }
  }
  return inputs;
}

// The same with sums whose stages all have work to do: exponents near one another.
std::vector<FloatTensor> similar_floats() {
  std::mt19937_64 random(7);
  std::normal_distribution<float> normal;
  std::vector<FloatTensor> inputs;
  for (int rank = 0; rank < ranks; ++rank) {
    inputs.push_back(FloatTensor::zeros(DType::f32, {rows}));
    for (float& value : inputs.back().mutable_values<float>()) value = normal(random);
  }
  return inputs;
}

struct Results {
  std::vector<FloatTensor> sums, shares, gathered, exchanged;
};

Results evaluate_with(int threads, const std::vector<FloatTensor>& inputs, SumRule rule) {
  const tbb::global_control limit(tbb::global_control::max_allowed_parallelism,
                                  static_cast<std::size_t>(threads));
  tbb::task_arena arena(threads);
  return arena.execute([&] {
    Results results;
    results.sums = reference::all_reduce_sum(inputs, rule).results();
    results.shares = reference::reduce_scatter_sum(inputs, rule).results();
    results.gathered = reference::all_gather(std::span(inputs)).results();
    const std::vector<std::vector<std::int64_t>> counts = {
        {rows - 1, 0, 1}, {0, rows, 0}, {5, rows - 12, 7}};
    const auto exchanges = reference::all_to_all_v(std::span(inputs), counts);
    for (const auto& exchange : exchanges.results()) results.exchanged.push_back(exchange.value);
    return results;
  });
}

void expect_equal(const std::vector<FloatTensor>& one, const std::vector<FloatTensor>& many,
                  const char* what) {
  ASSERT_EQ(one.size(), static_cast<std::size_t>(ranks));
  ASSERT_EQ(many.size(), static_cast<std::size_t>(ranks));
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    EXPECT_TRUE(same_bits(one[rank], many[rank])) << what << " of rank " << rank;
  }
}

void expect_equal_at_every_number_of_threads(const std::vector<FloatTensor>& inputs) {
  for (const SumRule rule : {SumRule::exact, SumRule::rank_order}) {
    const Results one = evaluate_with(1, inputs, rule);
    for (const int threads : {2, 3, 8}) {
      SCOPED_TRACE(std::to_string(threads) + " threads, sums " + std::string(name(rule)) + ", " +
                   std::string(name(inputs[0].dtype())));
      const Results many = evaluate_with(threads, inputs, rule);
      expect_equal(one.sums, many.sums, "sum");
      expect_equal(one.shares, many.shares, "share of the sum");
      expect_equal(one.gathered, many.gathered, "gathered rows");
      expect_equal(one.exchanged, many.exchanged, "exchanged rows");
    }
  }
}

TEST(OracleThreads, DoNotChangeTheBitsOfAnyDtype) {
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
    expect_equal_at_every_number_of_threads(any_bits(dtype));
  }
}

TEST(OracleThreads, DoNotChangeTheBitsOfOrdinaryNumbers) {
  expect_equal_at_every_number_of_threads(similar_floats());
}

}  // namespace
}  // namespace lockstep
