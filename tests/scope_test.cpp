// Forward windows and their reverse passes on simulated ranks.
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include <lockstep/differentiation/derived.hpp>
#include <lockstep/differentiation/scope.hpp>
#include <lockstep/sim/world.hpp>

#include "expect.hpp"
#include "filled.hpp"

namespace lockstep::differentiation {
namespace {

using lockstep::testing::counting;
using lockstep::testing::filled;
using lockstep::testing::tensor;
using sim::Communicator;
using sim::World;
using Counts = std::vector<std::int64_t>;
using Value = Tracked<FloatTensor>;

static_assert(VariableTensorCollective<Differentiable<Communicator>>);

FloatTensor vector(std::vector<float> values) {
  return tensor<float>({static_cast<std::int64_t>(values.size())}, values);
}

// A communicator that writes down which collectives on floats it enters.
struct Observed : Communicator {
  Observed(Communicator base, std::vector<std::string>& log) : Communicator(base), log_(&log) {}

  FloatTensor all_gather_float(const FloatTensor& x) const {
    log_->push_back("all_gather of " + to_string(x));
    return Communicator::all_gather_float(x);
  }
  FloatTensor reduce_scatter_sum(const FloatTensor& x) const {
    log_->push_back("reduce_scatter of " + to_string(x));
    return Communicator::reduce_scatter_sum(x);
  }
  FloatTensor all_reduce_sum(const FloatTensor& x) const {
    log_->push_back("all_reduce of " + to_string(x));
    return Communicator::all_reduce_sum(x);
  }
  Observed group(std::span<const int> ranks) const { return {Communicator::group(ranks), *log_}; }

 private:
  std::vector<std::string>* log_;
};
using Log = std::vector<std::string>;

// a * b, elementwise on f32.
FloatTensor times(const FloatTensor& a, const FloatTensor& b) {
  return filled<float>(a.shape(), [&](std::int64_t i) {
    const auto at = static_cast<std::size_t>(i);
    return a.values<float>()[at] * b.values<float>()[at];
  });
}
Value product(const auto& scope, const Value& a, const Value& b) {
  return scope.local(times(a.value(), b.value()), {a, b},
                     [x = a.value(), y = b.value()](const FloatTensor& up) {
                       return std::vector{times(up, y), times(up, x)};
                     });
}

// --- Values

TEST(Scope, ComposesLocalOperationsAndCollectives) {
  // loss_r = u_r * sum over ranks of (x_q * w_q): dx_q = (u_0 + u_1) w_q.
  World world(2);
  const auto all = world.run([](Communicator bare) {
    const Scope scope(bare);
    const auto c = scope.communicator();
    const Value x = scope.variable(vector({3.0f + bare.rank()}));
    const Value w = scope.variable(vector({10.0f * (bare.rank() + 1)}));
    const Value y = c.all_reduce_sum(product(scope, x, w));
    EXPECT_TENSOR(vector({110}), y.value());
    const auto gradients = scope.backward({{y, vector({bare.rank() == 0 ? 2.0f : 5.0f})}});
    return std::vector{gradients.of(x), gradients.of(w)};
  });
  EXPECT_TENSOR(vector({70}), all[0][0]);
  EXPECT_TENSOR(vector({21}), all[0][1]);
  EXPECT_TENSOR(vector({140}), all[1][0]);
  EXPECT_TENSOR(vector({28}), all[1][1]);
}

TEST(Scope, GivesEveryCollectiveItsGradient) {
  // The rows B56 and B59 to B62 of docs/reports.md in one window.
  World world(2);
  const auto all = world.run([](Communicator bare) {
    const bool first = bare.rank() == 0;
    const Scope scope(bare);
    const auto c = scope.communicator();
    const Value gathered = scope.variable(vector({5}));
    const Value reduced = scope.variable(vector({6}));
    const Value sent = scope.variable(vector({7}));
    const Value exchanged = scope.variable(counting<float>({3, 1}, 10 * bare.rank()));
    const Value scattered = scope.variable(vector({8, 9}));
    const Value y0 = c.all_gather_float(gathered);
    const Value y1 = c.all_reduce_sum(reduced);
    const Value y2 = c.broadcast_float(sent, 1);
    const auto y3 = c.all_to_all_v_float(exchanged, first ? Counts{1, 2} : Counts{0, 3});
    const Value y4 = c.reduce_scatter_sum(scattered);
    const auto gradients = scope.backward(
        {{y4, vector({first ? 3.0f : 5.0f})},
         {y0, first ? vector({1, 10}) : vector({100, 1000})},
         {y1, vector({first ? 1.0f : 10.0f})},
         {y2, vector({first ? 1.0f : 10.0f})},
         {y3.value, first ? tensor<float>({1, 1}, {7}) : tensor<float>({5, 1}, {1, 2, 3, 4, 5})}});
    return std::vector{gradients.of(gathered), gradients.of(reduced), gradients.of(sent),
                       gradients.of(exchanged), gradients.of(scattered)};
  });
  EXPECT_TENSOR(vector({101}), all[0][0]);
  EXPECT_TENSOR(vector({1010}), all[1][0]);
  EXPECT_TENSOR(vector({11}), all[0][1]);
  EXPECT_TENSOR(vector({11}), all[1][1]);
  EXPECT_TENSOR(vector({0}), all[0][2]);
  EXPECT_TENSOR(vector({11}), all[1][2]);
  EXPECT_TENSOR(tensor<float>({3, 1}, {7, 1, 2}), all[0][3]);
  EXPECT_TENSOR(tensor<float>({3, 1}, {3, 4, 5}), all[1][3]);
  EXPECT_TENSOR(vector({3, 5}), all[0][4]);
  EXPECT_TENSOR(vector({3, 5}), all[1][4]);
}

TEST(Scope, AddsUpTheUsesOfAValue) {
  World world(2);
  const auto all = world.run([](Communicator bare) {
    const Scope scope(bare);
    const Value x = scope.variable(vector({2.0f + bare.rank()}));
    const Value y = scope.communicator().all_reduce_sum(product(scope, x, x));
    const auto gradients =
        scope.backward({{y, vector({1})}, {y, vector({10})}, {x, vector({1000})}});
    return gradients.of(x);
  });
  EXPECT_TENSOR(vector({1000 + 2 * 22 * 2}), all[0]);
  EXPECT_TENSOR(vector({1000 + 2 * 22 * 3}), all[1]);
}

TEST(Scope, DerivedOperationsHaveTheirGradients) {
  World world(2);
  const auto all = world.run([](Communicator bare) {
    const Scope scope(bare);
    const auto c = scope.communicator();
    const float r = static_cast<float>(bare.rank());
    const Value x = scope.variable(counting<float>({2, 1}, 10 * bare.rank()));
    const Value z = scope.variable(counting<float>({2, 2}, 10 * bare.rank()));
    const Value m = scope.variable(vector({r}));
    const Value s = scope.variable(vector({r, 1}));
    const Value columns = all_gather_along(c, x, 1);
    EXPECT_TENSOR(tensor<float>({2, 2}, {0, 10, 1, 11}), columns.value());
    const Value column = reduce_scatter_along(c, z, 1);
    EXPECT_TENSOR(tensor<float>({2, 1}, {10 + 2 * r, 14 + 2 * r}), column.value());
    const Value mean = all_reduce_mean(c, m);
    EXPECT_TENSOR(vector({0.5}), mean.value());
    const Value part = reduce_scatter_mean(c, s);
    const auto gradients =
        scope.backward({{columns, tensor<float>({2, 2}, {1 + r, 10 + r, 100 + r, 1000 + r})},
                        {column, tensor<float>({2, 1}, {1 + r, 5 + r})},
                        {mean, vector({1 + 2 * r})},
                        {part, vector({3 + 4 * r})}});
    return std::vector{gradients.of(x), gradients.of(z), gradients.of(m), gradients.of(s)};
  });
  EXPECT_TENSOR(tensor<float>({2, 1}, {3, 201}), all[0][0]);
  EXPECT_TENSOR(tensor<float>({2, 1}, {21, 2001}), all[1][0]);
  for (const auto& of_rank : all) {
    EXPECT_TENSOR(tensor<float>({2, 2}, {1, 2, 5, 6}), of_rank[1]);
    EXPECT_TENSOR(vector({2}), of_rank[2]);
    EXPECT_TENSOR(vector({1.5, 3.5}), of_rank[3]);
  }
}

// --- Who uses what

TEST(Scope, RanksUseDifferentResults) {
  World world(3);
  std::vector<Log> logs(3);
  const auto all = world.run([&](Communicator bare) {
    Log& log = logs[static_cast<std::size_t>(bare.rank())];
    const Scope scope(Observed(bare, log));
    const auto c = scope.communicator();
    std::vector<Value> x;
    std::vector<Value> y;
    for (int i = 0; i < 4; ++i) {
      x.push_back(scope.variable(vector({1.0f + static_cast<float>(i)})));
      y.push_back(c.all_reduce_sum(x.back()));
    }
    log.clear();
    // Rank 0 uses result 2, rank 1 results 0 and 2, rank 2 nothing at all. Nobody uses 1 and 3.
    std::vector<Seed<FloatTensor>> seeds;
    if (bare.rank() == 0) seeds = {{y[2], vector({1})}};
    if (bare.rank() == 1) seeds = {{y[0], vector({10})}, {y[2], vector({100})}};
    const auto gradients = scope.backward(seeds);
    for (int i : {0, 2}) EXPECT_TRUE(gradients.reach(x[static_cast<std::size_t>(i)]));
    for (int i : {1, 3}) EXPECT_FALSE(gradients.reach(x[static_cast<std::size_t>(i)]));
    return std::vector{gradients.of(x[0]), gradients.of(x[1]), gradients.of(x[2]),
                       gradients.of(x[3])};
  });
  for (const auto& of_rank : all) {
    EXPECT_TENSOR(vector({10}), of_rank[0]);
    EXPECT_TENSOR(vector({0}), of_rank[1]);
    EXPECT_TENSOR(vector({101}), of_rank[2]);
    EXPECT_TENSOR(vector({0}), of_rank[3]);
  }
  EXPECT_EQ(logs[0], (Log{"all_reduce of f32 [1] {1}", "all_reduce of f32 [1] {0}"}));
  EXPECT_EQ(logs[1], (Log{"all_reduce of f32 [1] {100}", "all_reduce of f32 [1] {10}"}));
  EXPECT_EQ(logs[2], (Log{"all_reduce of f32 [1] {0}", "all_reduce of f32 [1] {0}"}));
}

TEST(Scope, ALossReachesWhatAnotherRankFedIn) {
  // Rank 0's loss uses the second collective, whose input on rank 1 came from a group of ranks 1
  // and 2, and on rank 2 from one of its own. Nobody's loss uses a group's result directly.
  World world(3);
  const auto all = world.run([](Communicator bare) {
    const Scope scope(bare);
    const auto c = scope.communicator();
    const Value x = scope.variable(vector({1.0f + bare.rank()}));
    Value fed = x;
    if (bare.rank() > 0) fed = c.group({2, 1}).all_reduce_sum(x);
    if (bare.rank() == 2) fed = c.group({2}).all_reduce_sum(x);
    const Value y = c.all_reduce_sum(fed);
    std::vector<Seed<FloatTensor>> seeds;
    if (bare.rank() == 0) seeds = {{y, vector({7})}};
    const auto gradients = scope.backward(seeds);
    EXPECT_TRUE(gradients.reach(x));
    return std::pair{y.value(), gradients.of(x)};
  });
  // y = x0 + (x1 + x2) + x2
  for (const auto& [y, gradient] : all) EXPECT_TENSOR(vector({1 + 5 + 3}), y);
  EXPECT_TENSOR(vector({7}), all[0].second);
  EXPECT_TENSOR(vector({7}), all[1].second);
  EXPECT_TENSOR(vector({14}), all[2].second);
}

TEST(Scope, AbsentGradientsAreTrueZerosWhateverTheValues) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  World world(2);
  std::vector<Log> logs(2);
  const auto all = world.run([&](Communicator bare) {
    Log& log = logs[static_cast<std::size_t>(bare.rank())];
    const Scope scope(Observed(bare, log));
    const Value x = scope.variable(vector({infinity, nan, -0.0f}));
    const Value w = scope.variable(vector({nan, infinity, 1}));
    const Value unused = product(scope, x, w);
    const Value y = scope.communicator().all_gather_float(x);
    log.clear();
    std::vector<Seed<FloatTensor>> seeds;
    if (bare.rank() == 1) seeds = {{y, vector({1, 2, 3, 4, 5, 6})}};
    const auto gradients = scope.backward(seeds);
    (void)unused;
    return std::vector{gradients.of(x), gradients.of(w)};
  });
  EXPECT_EQ(logs[0], (Log{"reduce_scatter of f32 [6] {0, 0, 0, 0, 0, 0}"}));
  EXPECT_TENSOR(vector({1, 2, 3}), all[0][0]);
  EXPECT_TENSOR(vector({4, 5, 6}), all[1][0]);
  EXPECT_TENSOR(vector({0, 0, 0}), all[0][1]);
  EXPECT_TENSOR(vector({0, 0, 0}), all[1][1]);
}

TEST(Scope, NothingFlowsIntoWhatABroadcastIgnored) {
  // Rank 0's tensor is infinite, and never mattered: not even a zero is multiplied by it.
  const float infinity = std::numeric_limits<float>::infinity();
  World world(2);
  const auto all = world.run([&](Communicator bare) {
    const Scope scope(bare);
    const Value x = scope.variable(vector({bare.rank() == 0 ? 1.0f : 2.0f}));
    const Value w = scope.variable(vector({bare.rank() == 0 ? infinity : 3.0f}));
    const Value y = scope.communicator().broadcast_float(product(scope, x, w), 1);
    const auto gradients = scope.backward({{y, vector({1.0f + bare.rank()})}});
    EXPECT_EQ(gradients.reach(x), bare.rank() == 1);
    return gradients.of(x);
  });
  EXPECT_TENSOR(vector({0}), all[0]);
  EXPECT_TENSOR(vector({9}), all[1]);
}

TEST(Scope, WhatOnlyFedAnIgnoredInputIsNotEnteredAgain) {
  World world(2);
  std::vector<Log> logs(2);
  world.run([&](Communicator bare) {
    Log& log = logs[static_cast<std::size_t>(bare.rank())];
    const Scope scope(Observed(bare, log));
    const auto c = scope.communicator();
    const Value x = scope.variable(vector({1.0f + bare.rank()}));
    const int own[] = {bare.rank()};
    const Value y = c.broadcast_float(c.group(own).all_reduce_sum(x), 1);
    log.clear();
    scope.backward({{y, vector({3.0f + bare.rank()})}});
  });
  EXPECT_EQ(logs[0], (Log{"all_reduce of f32 [1] {3}"}));
  EXPECT_EQ(logs[1], (Log{"all_reduce of f32 [1] {4}", "all_reduce of f32 [1] {7}"}));
}

TEST(Scope, RanksWithoutRowsEnter) {
  World world(3);
  const auto all = world.run([](Communicator bare) {
    const Scope scope(bare);
    const bool sender = bare.rank() == 1;
    const Value x = scope.variable(sender ? counting<float>({2, 1}) : tensor<float>({0, 1}, {}));
    const auto y =
        scope.communicator().all_to_all_v_float(x, sender ? Counts{0, 0, 2} : Counts{0, 0, 0});
    // Only rank 2 received anything, and only rank 0, which has nothing, has no loss.
    std::vector<Seed<FloatTensor>> seeds;
    if (bare.rank() > 0) {
      seeds = {{y.value, filled<float>(y.value.value().shape(), [](auto i) { return 5 + i; })}};
    }
    return scope.backward(seeds).of(x);
  });
  EXPECT_TENSOR(tensor<float>({0, 1}, {}), all[0]);
  EXPECT_TENSOR(tensor<float>({2, 1}, {5, 6}), all[1]);
  EXPECT_TENSOR(tensor<float>({0, 1}, {}), all[2]);
}

TEST(Scope, NobodysLossEntersNothing) {
  World world(2);
  std::vector<Log> logs(2);
  world.run([&](Communicator bare) {
    Log& log = logs[static_cast<std::size_t>(bare.rank())];
    const Scope scope(Observed(bare, log));
    const Value x = scope.variable(vector({1}));
    scope.communicator().all_reduce_sum(x);
    log.clear();
    EXPECT_TENSOR(vector({0}), scope.backward({}).of(x));
  });
  EXPECT_EQ(logs, (std::vector<Log>{{}, {}}));
}

TEST(Scope, CollectivesOfConstantsAreEnteredAndPassedBy) {
  // Rank 0 gathers a constant, rank 1 a variable.
  World world(2);
  const auto all = world.run([](Communicator bare) {
    const Scope scope(bare);
    const Value x = scope.variable(vector({3}));
    const Value y = scope.communicator().all_gather_float(bare.rank() == 0 ? vector({2}) : x);
    EXPECT_FALSE(y.is_constant());
    return scope.backward({{y, vector({1, 10})}}).of(x);
  });
  EXPECT_TENSOR(vector({0}), all[0]);
  EXPECT_TENSOR(vector({20}), all[1]);
}

TEST(Scope, SplitsRecordOnTheSameScope) {
  World world(4);
  const auto all = world.run([](Communicator bare) {
    const Scope scope(bare);
    const auto c = scope.communicator();
    const Value x = scope.variable(vector({1.0f + bare.rank()}));
    // Even and odd ranks, in reverse order.
    const auto half = c.split(bare.rank() % 2, -bare.rank());
    const Value y = half.all_gather_float(x);
    const Value z = c.all_reduce_sum(y);
    std::vector<Seed<FloatTensor>> seeds;
    if (bare.rank() == 3) seeds = {{z, vector({1, 10})}};
    return std::pair{y.value(), scope.backward(seeds).of(x)};
  });
  EXPECT_TENSOR(vector({3, 1}), all[0].first);
  EXPECT_TENSOR(vector({4, 2}), all[1].first);
  // z = (x2 + x3 + x2 + x3, x0 + x1 + x0 + x1): both members of a half pass their gather on.
  EXPECT_TENSOR(vector({20}), all[0].second);
  EXPECT_TENSOR(vector({20}), all[1].second);
  EXPECT_TENSOR(vector({2}), all[2].second);
  EXPECT_TENSOR(vector({2}), all[3].second);
}

TEST(Scope, IsWhatTheWrapperReturnsAndBareCommunicatorsHaveNone) {
  World world(1);
  world.run([](Communicator bare) {
    EXPECT_FALSE(static_cast<bool>(bare.autodiff_context()));
    const Scope scope(bare);
    const auto c = scope.communicator();
    ASSERT_TRUE(static_cast<bool>(c.autodiff_context()));
    const Value x = c.autodiff_context().variable(vector({4}));
    const Value y = c.group({0}).autodiff_context().local(
        vector({8}), {x},
        [](const FloatTensor& up) { return std::vector{times(up, vector({2}))}; });
    EXPECT_TENSOR(vector({6}), scope.backward({{y, vector({3})}}).of(x));
  });
}

}  // namespace
}  // namespace lockstep::differentiation
