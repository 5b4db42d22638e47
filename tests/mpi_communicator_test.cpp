// Communicators of processes: broken contracts, groups, splits, threads. See mpi_processes.hpp.

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "mpi_processes.hpp"

namespace lockstep {
namespace {

using namespace testing;
using namespace std::chrono_literals;

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

}  // namespace
}  // namespace lockstep
