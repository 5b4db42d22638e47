// Faults in test suites and stand-ins of collective libraries: would this kit have let them pass?
// (B30, B68, B97 and B98 of docs/reports.md.)
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include <lockstep/kit/case_file.hpp>
#include <lockstep/kit/corners.hpp>
#include <lockstep/kit/verification.hpp>

#include "generator_values.hpp"
#include "simulated_backend.hpp"
#include "stand_in.hpp"

namespace lockstep::kit {
namespace {

// pytorch/pytorch#125874: gathered rank numbers looked corrupted, but only because a bfloat16
// cannot hold them. Markers must be patterns, not counters.
TEST(B30, MarkersOfManyRanksStayDistinctIn16Bits) {
  constexpr int ranks = 600;
  int distinct = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    Dice dice(seed);
    const std::vector<Tensor> tensors =
        elements_to_move(dice, DType::bf16, std::vector<Shape>(ranks, Shape{3}));
    std::set<std::uint16_t> patterns;
    for (const Tensor& tensor : tensors) {
      for (const bf16 value : tensor.values<bf16>()) patterns.insert(value.bits);
    }
    distinct += patterns.size() == 3 * ranks ? 1 : 0;
  }
  // The other kinds of data are random patterns, and those that careless copies change.
  EXPECT_GE(distinct, 40);
}

struct UnchangedAllReduce : StandIn {
  using StandIn::StandIn;
  FloatTensor all_reduce_sum(const FloatTensor& x) override {
    right_.all_reduce_sum(x);
    return x;
  }
};

// The rank's own chunk, without the others' addends.
struct UnreducedScatter : StandIn {
  UnreducedScatter(Subject& right, int rank) : StandIn(right), rank_(rank) {}
  FloatTensor reduce_scatter_sum(const FloatTensor& x) override {
    const std::int64_t rows = right_.reduce_scatter_sum(x).rows();
    return x.slice_rows(rank_ * rows, (rank_ + 1) * rows);
  }
  int rank_;
};

// The rank's own rows as far as they go, then zeros. The counts are right.
struct PrefixExchange : StandIn {
  using StandIn::StandIn;
  VariableTensorExchange<FloatTensor> all_to_all_v_float(
      const FloatTensor& x, std::span<const std::int64_t> send_counts) override {
    auto exchange = right_.all_to_all_v_float(x, send_counts);
    FloatTensor fake = FloatTensor::zeros(x.dtype(), exchange.value.shape());
    const auto room = fake.mutable_bytes();
    std::ranges::copy(x.bytes().first(std::min(x.bytes().size(), room.size())), room.begin());
    return {std::move(fake), std::move(exchange.receive_counts)};
  }
};

class StandInBackend final : public testing::SimulatedBackend {
 public:
  // Puts something in the place of a rank's right end of the world.
  using Replace = std::function<std::unique_ptr<Subject>(Subject& right, int rank)>;

  explicit StandInBackend(Replace replace) : replace_(std::move(replace)) {}

  BackendInfo info() const override {
    BackendInfo info = SimulatedBackend::info();
    info.offers_groups = false;
    return info;
  }

  void launch(int ranks, const RankBody& body) override {
    SimulatedBackend::launch(ranks, [&](int rank, Subject& right) {
      const std::unique_ptr<Subject> stand_in = replace_(right, rank);
      body(rank, *stand_in);
    });
  }

 private:
  Replace replace_;
};

struct WrongStandIn {
  StandInBackend::Replace replace;
  std::string property;
  std::string aspect;  // that the judge names
};

const WrongStandIn wrong_stand_ins[] = {
    {[](Subject& right, int) { return std::make_unique<UnchangedAllReduce>(right); },
     "all_reduce_sum", "sum"},
    {[](Subject& right, int rank) { return std::make_unique<UnreducedScatter>(right, rank); },
     "reduce_scatter_sum", "sum"},
    {[](Subject& right, int) { return std::make_unique<PrefixExchange>(right); },
     "all_to_all_v_float", "bits"},
};

// pytorch/pytorch#194530
TEST(B97, StandInsThatOnlyLookLikeCollectivesAreRejected) {
  for (const WrongStandIn& one : wrong_stand_ins) {
    StandInBackend backend(one.replace);
    for (int ranks : {2, 3, 4}) {
      VerifyOptions options;
      options.fewest_ranks = ranks;
      options.most_ranks = ranks;
      options.cases = 50;
      options.properties = {one.property};
      const VerifyReport report = verify(backend, options);
      ASSERT_EQ(report.properties.size(), 1u);
      ASSERT_TRUE(report.properties[0].counterexample)
          << one.property << " of " << ranks << " ranks";
      EXPECT_EQ(report.properties[0].counterexample->divergence.aspect, one.aspect);
      EXPECT_LT(report.properties[0].cases, 10);
    }
  }
}

TEST(B97, TheSameBackendWithoutAFaultIsNotRejected) {
  testing::SimulatedBackend backend;
  VerifyOptions options;
  options.fewest_ranks = 2;
  options.most_ranks = 4;
  options.cases = 150;
  options.properties = {"all_reduce_sum", "reduce_scatter_sum", "all_to_all_v_float"};
  const VerifyReport report = verify(backend, options);
  EXPECT_TRUE(report.holds()) << explain(report);
}

struct ThrowingScatter : StandIn {
  using StandIn::StandIn;
  FloatTensor reduce_scatter_sum(const FloatTensor&) override {
    throw std::runtime_error("the worker thread ran out of handles");
  }
};

// ml-explore/mlx#4285: an error on an internal thread never reached the caller.
TEST(B68, AnErrorInsideTheBackendReachesEveryCaller) {
  const Case c = read_case(R"({"lockstep_case": 1, "world": 3, "steps": [
      {"op": "reduce_scatter_sum", "inputs": [
        {"dtype": "f32", "shape": [3], "values": [1, 2, 3]},
        {"dtype": "f32", "shape": [3], "values": [10, 20, 30]},
        {"dtype": "f32", "shape": [3], "values": [100, 200, 300]}]}]})");
  for (bool everywhere : {false, true}) {
    StandInBackend backend([=](Subject& right, int rank) -> std::unique_ptr<Subject> {
      if (rank == 1 || everywhere) return std::make_unique<ThrowingScatter>(right);
      return std::make_unique<StandIn>(right);
    });
    const Transcript transcript = backend.run(c);
    for (std::size_t rank = 0; rank < 3; ++rank) {
      const Outcome& outcome = transcript[0][rank];
      if (rank == 1 || everywhere) {
        EXPECT_EQ(outcome.kind, Outcome::Kind::broken);
        EXPECT_EQ(outcome.message, "the worker thread ran out of handles");
      } else {
        EXPECT_EQ(outcome.kind, Outcome::Kind::transport);
        EXPECT_NE(outcome.message.find("rank 1 can no longer arrive"), std::string::npos)
            << outcome.message;
      }
    }
    const auto divergence = judge(c, transcript, SumRule::exact);
    ASSERT_TRUE(divergence.has_value());
    EXPECT_EQ(divergence->member, everywhere ? 0 : 1);
    EXPECT_EQ(divergence->aspect, "outcome");
    EXPECT_NE(divergence->explanation.find("the worker thread ran out of handles"),
              std::string::npos)
        << divergence->explanation;
  }
}

// ROCm/rccl-tests#12: a test of a variable exchange that held no zero counts.
TEST(B98, GeneratedExchangesHoldZerosOfEveryKind) {
  constexpr int cases = 1000;
  for (const std::string property : {"all_to_all_v_float", "all_to_all_v_int"}) {
    int zero_counts = 0, no_rows = 0, row = 0, column = 0, one_sender = 0, one_receiver = 0;
    for (std::uint64_t index = 0; index < cases; ++index) {
      const Case c = draw_case(property, {}, case_seed(7, property, index));
      const Corners visited = corners(c);
      const auto visits = [&](Corner corner) {
        return visited.test(static_cast<std::size_t>(corner)) ? 1 : 0;
      };
      bool zero = false;
      for (const Step& step : c.steps) {
        for (const auto& input : step.inputs) {
          zero = zero || std::ranges::count(input->send_counts, 0) > 0;
        }
      }
      zero_counts += zero ? 1 : 0;
      no_rows += visits(Corner::zero_row_rank);
      row += visits(Corner::empty_counts_row);
      column += visits(Corner::empty_counts_column);
      one_sender += visits(Corner::one_sender);
      one_receiver += visits(Corner::one_receiver);
    }
    // Shares of a thousand.
    EXPECT_GE(zero_counts, 500) << property;
    EXPECT_GE(no_rows, 200) << property;
    EXPECT_GE(row, 200) << property;
    EXPECT_GE(column, 200) << property;
    EXPECT_GE(one_sender, 50) << property;
    EXPECT_GE(one_receiver, 50) << property;
  }
}

}  // namespace
}  // namespace lockstep::kit
