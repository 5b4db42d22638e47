// Simulated ranks: what they compute, in every arrangement of threads and communicators.
#include <lockstep/sim/world.hpp>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <sstream>
#include <thread>

#include "expect.hpp"

namespace lockstep::sim {
namespace {

using testing::tensor;
using std::chrono::milliseconds;
using Counts = std::vector<std::int64_t>;

FloatTensor number(float value) { return tensor<float>({1}, {value}); }

TEST(World, ReturnsOneValuePerRankInRankOrder) {
  World world(5);
  EXPECT_EQ(world.run([](Communicator c) { return 10 * c.rank() + c.world_size(); }),
            (std::vector<int>{5, 15, 25, 35, 45}));
}

TEST(World, RunsAgainAndAgain) {
  World world(3);
  for (int round = 0; round < 100; ++round) {
    const auto sums = world.run([&](Communicator c) {
      return c.all_reduce_sum(number(static_cast<float>(round + c.rank())));
    });
    for (const FloatTensor& sum : sums) {
      EXPECT_TENSOR(number(static_cast<float>(3 * round + 3)), sum);
    }
  }
}

TEST(World, WithoutRanksIsRefused) {
  EXPECT_ERROR(World(0), InvalidArgument, "a world has at least one rank");
  EXPECT_ERROR(make_communicators(-3), InvalidArgument, "a world of -3 ranks");
}

TEST(World, CannotRunTwoBodiesAtOnce) {
  World world(2);
  EXPECT_ERROR(world.run([&](Communicator c) {
    if (c.rank() == 0) world.run([](Communicator) {});
  }),
               InvalidArgument, "one body at a time");
}

TEST(World, RunsEveryOperation) {
  World world(2);
  world.run([](Communicator) {});
  struct Results {
    FloatTensor gathered, scattered, reduced, broadcast;
    IntTensor gathered_int;
    VariableTensorExchange<FloatTensor> exchanged;
    VariableTensorExchange<IntTensor> exchanged_int;
  };
  const auto results = world.run([](Communicator c) {
    const float r = static_cast<float>(c.rank());
    const auto i = static_cast<std::int64_t>(c.rank());
    const FloatTensor x = tensor<float>({2}, {r, r + 10});
    return Results{c.all_gather_float(x),
                   c.reduce_scatter_sum(x),
                   c.all_reduce_sum(x),
                   c.broadcast_float(x, 1),
                   c.all_gather_int(tensor<std::int64_t>({1}, {(std::int64_t{1} << 53) + 1 + i})),
                   c.all_to_all_v_float(x, c.rank() == 0 ? Counts{2, 0} : Counts{1, 1}),
                   c.all_to_all_v_int(tensor<std::int64_t>({2}, {20 * i, 20 * i + 1}), Counts{1, 1})};
  });
  for (int rank = 0; rank < 2; ++rank) {
    const Results& r = results[static_cast<std::size_t>(rank)];
    EXPECT_TENSOR(tensor<float>({4}, {0, 10, 1, 11}), r.gathered);
    EXPECT_TENSOR(tensor<float>({1}, {rank == 0 ? 1.0f : 21.0f}), r.scattered);
    EXPECT_TENSOR(tensor<float>({2}, {1, 21}), r.reduced);
    EXPECT_TENSOR(tensor<float>({2}, {1, 11}), r.broadcast);
    EXPECT_TENSOR(tensor<std::int64_t>({2}, {9007199254740993, 9007199254740994}), r.gathered_int);
    EXPECT_TENSOR(rank == 0 ? tensor<float>({3}, {0, 10, 1}) : tensor<float>({1}, {11}),
                  r.exchanged.value);
    EXPECT_EQ(r.exchanged.receive_counts, rank == 0 ? (Counts{2, 1}) : (Counts{0, 1}));
    EXPECT_TENSOR(rank == 0 ? tensor<std::int64_t>({2}, {0, 20}) : tensor<std::int64_t>({2}, {1, 21}),
                  r.exchanged_int.value);
  }
}

TEST(World, FollowsTheSumRuleItWasGiven) {
  for (const auto& [rule, expected] : {std::pair{SumRule::exact, 16777218.0f},
                                       std::pair{SumRule::rank_order, 16777216.0f}}) {
    World world(3, {.sum_rule = rule});
    for (const FloatTensor& sum : world.run([](Communicator c) {
           return c.all_reduce_sum(number(c.rank() == 0 ? 16777216.0f : 1.0f));
         })) {
      EXPECT_TENSOR(number(expected), sum);
    }
  }
}

TEST(World, OfAThousandRanksRunsEveryOperation) {
  constexpr int ranks = 1000;
  World world(ranks);
  const auto right = world.run([](Communicator c) {
    const auto r = static_cast<float>(c.rank());
    const std::int64_t i = c.rank();
    const FloatTensor own = tensor<float>({1}, {r});
    std::vector<float> wide(ranks, r);
    const FloatTensor x = tensor<float>({ranks}, wide);
    bool ok = c.all_gather_float(own).values<float>()[997] == 997;
    ok = ok && c.all_gather_int(tensor<std::int64_t>({1}, {i})).values<std::int64_t>()[999] == 999;
    ok = ok && c.all_reduce_sum(own).values<float>()[0] == 499500;
    ok = ok && same_bits(c.reduce_scatter_sum(x), tensor<float>({1}, {499500}));
    ok = ok && c.broadcast_float(own, 613).values<float>()[0] == 613;
    const Counts ones(ranks, 1);
    const auto exchanged = c.all_to_all_v_float(x, ones);
    ok = ok && exchanged.receive_counts == ones && exchanged.value.values<float>()[501] == 501;
    // Everybody sends its one row to the next rank.
    Counts next(ranks, 0);
    next[static_cast<std::size_t>((c.rank() + 1) % ranks)] = 1;
    const auto passed = c.all_to_all_v_int(tensor<std::int64_t>({1}, {i}), next);
    return ok && passed.value.values<std::int64_t>()[0] == (i + ranks - 1) % ranks;
  });
  EXPECT_EQ(std::count(right.begin(), right.end(), true), ranks);
}

TEST(World, WithMoreRanksThanCoresTakesTenThousandCallsOnAlternatingCommunicators) {
  constexpr int ranks = 8;
  World world(ranks);
  const auto mistakes = world.run([](Communicator c) {
    const Communicator half = c.split(c.rank() % 2, c.rank());
    const Communicator backwards = c.group({7, 6, 5, 4, 3, 2, 1, 0});
    std::int64_t wrong = 0;
    for (int call = 0; call < 10'000; ++call) {
      const auto value = static_cast<float>(call + c.rank());
      const auto base = static_cast<float>(call);
      switch (call % 3) {
        case 0:
          wrong += c.all_reduce_sum(number(value)).values<float>()[0] != 8 * base + 28;
          break;
        case 1:
          wrong += half.all_reduce_sum(number(value)).values<float>()[0] !=
                   4 * base + (c.rank() % 2 == 0 ? 12.0f : 16.0f);
          break;
        case 2:
          wrong += backwards.all_gather_float(number(value)).values<float>()[2] != base + 5;
          break;
      }
    }
    return wrong;
  });
  EXPECT_EQ(mistakes, std::vector<std::int64_t>(ranks, 0));
}

// rapidsai/rapidsmpf#469: results in arrival order.
TEST(World, PutsRanksInOrderHoweverTheyArrive) {
  World world(5);
  const auto mistakes = world.run([](Communicator c) {
    std::int64_t wrong = 0;
    for (int call = 0; call < 100; ++call) {
      std::this_thread::sleep_for(std::chrono::microseconds((c.rank() * 7919 + call * 104729) % 300));
      const auto i = static_cast<std::int64_t>(c.rank());
      wrong += !same_bits(c.all_gather_int(tensor<std::int64_t>({1}, {i})),
                          tensor<std::int64_t>({5}, {0, 1, 2, 3, 4}));
    }
    return wrong;
  });
  EXPECT_EQ(mistakes, std::vector<std::int64_t>(5, 0));
}

TEST(Group, NumbersItsRanksInTheOrderGiven) {
  World world(8);
  world.run([](Communicator c) {
    if (c.rank() < 4) return;
    const Communicator odd = c.group({4, 6, 7, 5});
    const FloatTensor own = number(static_cast<float>(c.rank()));
    if (!same_bits(odd.all_gather_float(own), tensor<float>({4}, {4, 6, 7, 5}))) {
      throw std::runtime_error("ranks of the group are out of order");
    }
    if (!same_bits(odd.broadcast_float(own, 1), number(6))) {
      throw std::runtime_error("root 1 is not thread 6");
    }
  });
}

TEST(Group, OfTheSameListIsTheSameCommunicator) {
  World world(2);
  world.run([](Communicator c) {
    const Communicator first = c.group({1, 0});
    const Communicator second = c.group({1, 0});
    // Rank 0 uses one handle and rank 1 the other; a temporary that is dropped leaves nothing.
    (c.rank() == 0 ? first : second).all_reduce_sum(number(1));
    c.group({1, 0}).all_reduce_sum(number(1));
    second.all_reduce_sum(number(1));
  });
}

TEST(Group, OfOneselfNeedsNobody) {
  World world(3);
  const auto results = world.run([](Communicator c) {
    const Communicator self = c.group({c.rank()});
    return self.all_reduce_sum(number(static_cast<float>(c.rank())));
  });
  EXPECT_TENSOR(number(2), results[2]);
}

TEST(Group, ThatIsNoneIsRefusedWithoutWaiting) {
  World world(3);
  const auto messages = world.run([](Communicator c) {
    std::string texts;
    for (const std::vector<int>& list :
         {std::vector<int>{}, {0, 3}, {-1, c.rank()}, {c.rank(), c.rank()}, {(c.rank() + 1) % 3}}) {
      try {
        c.group(list);
        texts += "accepted; ";
      } catch (const InvalidArgument& error) {
        texts += std::string(error.what()) + "; ";
      }
    }
    return texts;
  });
  EXPECT_EQ(messages[0],
            "communicator world: {} is no group: it has no ranks; "
            "communicator world: {0, 3} is no group: 3 is not one of ranks 0 to 2; "
            "communicator world: {-1, 0} is no group: -1 is not one of ranks 0 to 2; "
            "communicator world: {0, 0} is no group: rank 0 is named twice; "
            "communicator world: {1} is no group: rank 0, which asks, is not in it; ");
}

TEST(Split, OrdersByKeyThenByRank) {
  World world(6);
  const auto members = world.run([](Communicator c) {
    const Communicator half = c.split(c.rank() % 2, c.rank() < 2 ? 1 : 0);
    return half.all_gather_float(number(static_cast<float>(c.rank())));
  });
  EXPECT_TENSOR(tensor<float>({3}, {2, 4, 0}), members[0]);
  EXPECT_TENSOR(tensor<float>({3}, {3, 5, 1}), members[1]);
  EXPECT_TENSOR(tensor<float>({3}, {2, 4, 0}), members[4]);
}

TEST(Split, OfASplitIsACommunicatorLikeAnyOther) {
  World world(8);
  const auto names = world.run([](Communicator c) {
    const Communicator quarter = c.split(c.rank() / 4, 0).split(c.rank() % 2, 0);
    quarter.all_reduce_sum(number(1));
    std::ostringstream text;
    text << quarter;
    return text.str();
  });
  EXPECT_EQ(names[7], "world.split@0{4, 5, 6, 7}.split@0{5, 7}, rank 1 of 2");
}

TEST(ContractErrors, AreTheSameOnEveryRankAndLeaveTheCommunicatorUsable) {
  World world(3);
  const auto messages = world.run([](Communicator c) {
    std::string text;
    c.all_reduce_sum(number(1));
    try {
      c.all_gather_float(FloatTensor::zeros(DType::f32, {c.rank() == 1 ? 3 : 2}));
    } catch (const ContractError& error) {
      text = error.what();
      if (error.violation() != Violation::shape || error.call_number() != 1) text += " (wrong)";
    }
    c.all_reduce_sum(number(1));
    return text;
  });
  EXPECT_EQ(messages[0],
            "all_gather_float, call 1 on world: broken contract (shape): every rank must pass the "
            "same shape; ranks 0, 2 passed f32 [2]; rank 1 passed f32 [3]");
  EXPECT_EQ(messages[1], messages[0]);
  EXPECT_EQ(messages[2], messages[0]);
}

TEST(ContractErrors, NameBothOperationsWhenRanksDisagree) {
  World world(2);
  EXPECT_ERROR(world.run([](Communicator c) {
    if (c.rank() == 0) {
      c.all_reduce_sum(tensor<float>({2}, {1, 2}));
    } else {
      c.split(0, 0);
    }
  }),
               ContractError, "rank 0 passed all_reduce_sum of f32 [2]; rank 1 passed split");
}

TEST(Values, OfTheCallerAreNeverChangedByThisCallOrALater) {
  World world(3);
  const auto right = world.run([](Communicator c) {
    const FloatTensor own = number(static_cast<float>(std::pow(10, c.rank())));
    FloatTensor sum = c.all_reduce_sum(own);
    FloatTensor root = c.broadcast_float(own, 0);
    FloatTensor gathered = c.all_gather_float(own);
    const FloatTensor kept = gathered;
    // Writing to what a rank got back is its own affair.
    sum.mutable_values<float>()[0] = -1;
    root.mutable_values<float>()[0] = static_cast<float>(c.rank());
    gathered.mutable_values<float>()[0] = -3;
    c.all_reduce_sum(sum);
    return same_bits(own, number(static_cast<float>(std::pow(10, c.rank())))) &&
           same_bits(kept, tensor<float>({3}, {1, 10, 100})) &&
           same_bits(root, number(static_cast<float>(c.rank())));
  });
  EXPECT_EQ(right, std::vector<bool>(3, true));
}

TEST(Communicators, WorkOnThreadsOfTheCallersOwn) {
  std::vector<Communicator> handles = make_communicators(4);
  std::vector<FloatTensor> sums(4);
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < 4; ++rank) {
    threads.emplace_back([&sums, rank, c = handles[rank]] {
      std::this_thread::sleep_for(milliseconds(rank * 5));
      sums[rank] = c.all_reduce_sum(number(static_cast<float>(rank)));
    });
  }
  for (std::thread& thread : threads) thread.join();
  // The same handles from other threads.
  threads.clear();
  for (std::size_t rank = 0; rank < 4; ++rank) {
    threads.emplace_back([&handles, rank] { handles[rank].all_reduce_sum(number(1)); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const FloatTensor& sum : sums) EXPECT_TENSOR(number(6), sum);
}

TEST(Communicators, UsedByTwoThreadsAtOnceAreRefused) {
  std::vector<Communicator> handles = make_communicators(2);
  std::atomic<bool> refused = false;
  // Calls as rank 0 until it is let in; which of two threads is refused is theirs to settle.
  const auto call = [&](const Communicator& communicator) {
    for (;;) {
      try {
        return communicator.all_reduce_sum(number(1));
      } catch (const InvalidArgument& error) {
        EXPECT_NE(std::string(error.what()).find("two threads use one rank at once: rank 0 of world"),
                  std::string::npos)
            << error.what();
        refused = true;
        std::this_thread::yield();
      }
    }
  };
  std::thread waiting([&] { call(handles[0]); });  // until rank 1 comes, below
  std::thread other([&, alone = handles[0].group({0})] {
    while (!refused) call(alone);
  });
  while (!refused) std::this_thread::yield();
  handles[1].all_reduce_sum(number(1));
  waiting.join();
  other.join();
}

// pytorch/pytorch#106954: a collective began before all ranks were there.
TEST(Communicators, WaitForTheRankThatComesLate) {
  for (int repeat = 0; repeat < 20; ++repeat) {
    std::vector<Communicator> handles = make_communicators(4);
    std::vector<FloatTensor> sums(4);
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < 4; ++rank) {
      if (rank == 3) std::this_thread::sleep_for(milliseconds(2));
      threads.emplace_back([&, rank] {
        sums[rank] = handles[rank].all_reduce_sum(number(static_cast<float>(rank + 1)));
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const FloatTensor& sum : sums) EXPECT_TENSOR(number(10), sum);
  }
}

}  // namespace
}  // namespace lockstep::sim
