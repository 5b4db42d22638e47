// Simulated ranks that never arrive: what the others are told, and how soon.
#include <lockstep/sim/world.hpp>

#ifdef __linux__
#include <sched.h>
#endif

#include <atomic>
#include <functional>
#include <thread>

#include "expect.hpp"

namespace lockstep::sim {
namespace {

using std::chrono::milliseconds;
using testing::tensor;
using Counts = std::vector<std::int64_t>;

FloatTensor number(float value) {
  return tensor<float>({1}, {value});
}

// What the call throws, or "returned".
template <class Call>
std::string told(Call&& call) {
  try {
    call();
    return "returned";
  } catch (const TransportError& error) {
    return error.what();
  }
}

const std::function<void(const Communicator&)> every_operation[] = {
    [](const Communicator& c) { c.all_gather_float(number(1)); },
    [](const Communicator& c) { c.all_gather_int(tensor<std::int32_t>({1}, {1})); },
    [](const Communicator& c) { c.reduce_scatter_sum(FloatTensor::zeros(DType::f32, {0})); },
    [](const Communicator& c) { c.all_reduce_sum(number(1)); },
    [](const Communicator& c) { c.broadcast_float(number(1), 0); },
    [](const Communicator& c) {
      c.all_to_all_v_float(FloatTensor::zeros(DType::f32, {0, 1}),
                           Counts(static_cast<std::size_t>(c.world_size())));
    },
    [](const Communicator& c) {
      c.all_to_all_v_int(IntTensor::zeros(DType::i32, {0, 1}),
                         Counts(static_cast<std::size_t>(c.world_size())));
    },
    [](const Communicator& c) { c.split(0, 0); },
};

TEST(Departure, ByAnExceptionReachesTheCallerAndThePeers) {
  World world(3);
  std::vector<std::string> messages(3);
  try {
    world.run([&](Communicator c) {
      c.all_reduce_sum(number(1));
      if (c.rank() == 1) throw std::out_of_range("token 17 has no expert");
      messages[static_cast<std::size_t>(c.rank())] = told([&] { c.all_reduce_sum(number(1)); });
      // From then on at once, and the same.
      EXPECT_EQ(told([&] { c.all_gather_float(number(1)); }),
                messages[static_cast<std::size_t>(c.rank())]);
    });
    ADD_FAILURE() << "nothing was thrown";
  } catch (const std::out_of_range& error) {
    EXPECT_STREQ(error.what(), "token 17 has no expert");
  }
  EXPECT_EQ(messages[0],
            "communicator world: rank 1 can no longer arrive: it threw \"token 17 has no expert\" "
            "(last completed all_reduce_sum, call 0 on world)");
  EXPECT_EQ(messages[2], messages[0]);
  ASSERT_EQ(world.failures().size(), 1u);
  EXPECT_EQ(world.failures()[0].rank, 1);
}

TEST(Departure, ByReturningEarlyIsToldToThePeers) {
  World world(3);
  const auto messages = world.run([](Communicator c) {
    if (c.rank() == 2) return std::string();
    return told([&] { c.all_gather_float(number(1)); });
  });
  EXPECT_EQ(messages[0],
            "communicator world: rank 2 can no longer arrive: it returned (made no call)");
  EXPECT_EQ(messages[1], messages[0]);
}

TEST(Departure, DuringAnyOperationIsTheSame) {
  for (const auto& operation : every_operation) {
    World world(3);
    const auto messages = world.run([&](Communicator c) {
      if (c.rank() == 0) return std::string();
      return told([&] { operation(c); });
    });
    EXPECT_EQ(messages[1],
              "communicator world: rank 0 can no longer arrive: it returned (made no call)");
    EXPECT_EQ(messages[2], messages[1]);
  }
}

TEST(Departure, LeavesCommunicatorsThatDoNotNeedTheRankAtWork) {
  World world(4);
  const auto messages = world.run([](Communicator c) {
    if (c.rank() == 3) return std::string();
    std::string text = told([&] { c.all_reduce_sum(number(1)); });
    const Communicator others = c.group({2, 0, 1});
    const FloatTensor ranks = others.all_gather_float(number(static_cast<float>(c.rank())));
    if (!same_bits(ranks, tensor<float>({3}, {2, 0, 1}))) text += " (group is wrong)";
    // One that needs it, made after it left, fails from the start.
    text += "\n" + told([&] { c.group({0, 1, 2, 3}).all_reduce_sum(number(1)); });
    return text;
  });
  EXPECT_EQ(
      messages[0],
      "communicator world: rank 3 can no longer arrive: it returned (made no call)\n"
      "communicator world.group{0, 1, 2, 3}: rank 3 can no longer arrive: it returned (made no "
      "call)");
  EXPECT_EQ(messages[1], messages[0]);
}

TEST(Departure, OutranksABrokenContract) {
  World world(3);
  const auto messages = world.run([](Communicator c) {
    if (c.rank() == 2) return std::string();
    return told([&] { c.all_reduce_sum(FloatTensor::zeros(DType::f32, {1 + c.rank()})); });
  });
  EXPECT_NE(messages[0].find("rank 2 can no longer arrive"), std::string::npos) << messages[0];
  EXPECT_EQ(messages[1], messages[0]);
}

TEST(Departure, FromAnotherThreadEndsTheCallThatIsWaiting) {
  std::vector<Communicator> ranks = make_communicators(3);
  std::string told_to_0, told_to_1;
  std::thread rank_0([&] { told_to_0 = told([&] { ranks[0].all_reduce_sum(number(1)); }); });
  std::thread rank_1([&] { told_to_1 = told([&] { ranks[1].all_reduce_sum(number(1)); }); });
  ranks[0].leave();  // while rank 0 waits for rank 2, or just before
  rank_0.join();
  rank_1.join();
  EXPECT_NE(told_to_0.find("rank 0 can no longer arrive: it left this communicator"),
            std::string::npos)
      << told_to_0;
  EXPECT_EQ(told_to_1, told_to_0);
  EXPECT_EQ(told([&] { ranks[2].all_gather_float(number(1)); }), told_to_0);
}

TEST(Departure, OfTheWholeWorldOnlyOnceDoneIsNoError) {
  World world(4);
  for (int repeat = 0; repeat < 200; ++repeat) {
    EXPECT_NO_THROW(world.run([](Communicator c) { c.all_reduce_sum(number(1)); }));
  }
}

TEST(WaitingInACircle, IsReportedWithTheTableOfWhoWaitsWhere) {
  World world(4);
  const auto messages = world.run([](Communicator c) {
    if (c.rank() > 1) return std::string();
    const Communicator a = c.group({0, 1}), b = c.group({1, 0});
    const Communicator& first = c.rank() == 0 ? a : b;
    return told([&] { first.all_reduce_sum(number(1)); });
  });
  const std::string table =
      ": its call can never complete, since every rank that still runs is waiting\n"
      "  world rank 0 waits in all_reduce_sum, call 0 on world.group{0, 1}, for world rank 1\n"
      "  world rank 1 waits in all_reduce_sum, call 0 on world.group{1, 0}, for world rank 0\n"
      "  world rank 2 returned (made no call)\n"
      "  world rank 3 returned (made no call)";
  EXPECT_EQ(messages[0], "communicator world.group{0, 1}" + table);
  EXPECT_EQ(messages[1], "communicator world.group{1, 0}" + table);
}

TEST(WaitingInACircle, OfThreeIsReportedToo) {
  World world(3);
  const auto messages = world.run([](Communicator c) {
    // 0 waits for 1, 1 for 2, 2 for 0.
    const int next = (c.rank() + 1) % 3;
    return told([&] { c.group({c.rank(), next}).all_reduce_sum(number(1)); });
  });
  for (const std::string& message : messages) {
    EXPECT_NE(message.find("every rank that still runs is waiting"), std::string::npos) << message;
  }
}

TEST(WaitingInACircle, IsReportedHoweverOftenRanksSleptAndWereWokenBefore) {
  // Those who sleep are counted, and are counted as running again by whoever wakes them, though
  // they may sleep in the next call before that one has got to it.
  constexpr int ranks = 16;
  constexpr int calls = 40;
  World world(ranks);
  for (int round = 0; round < 10; ++round) {
    const auto messages = world.run([&](Communicator c) {
      std::vector<int> backwards;
      for (int rank = ranks; rank-- > 0;) backwards.push_back(rank);
      const Communicator other = c.group(backwards);
      for (int call = 0; call < calls; ++call) {
        // One rank comes too late for the others to stay awake.
        if (call % 2 == 0 && (call + round) % ranks == c.rank()) {
          std::this_thread::sleep_for(milliseconds(3));
        }
        (call % 3 == 0 ? other : c).all_reduce_sum(number(1));
      }
      const int next = (c.rank() + 1) % ranks;
      return told([&] { c.group({c.rank(), next}).all_reduce_sum(number(1)); });
    });
    for (const std::string& message : messages) {
      EXPECT_NE(message.find("every rank that still runs is waiting"), std::string::npos)
          << message;
    }
  }
}

TEST(Deadlines, FindARankThatIsStuckInItsOwnCodeForEveryOperationAlike) {
  for (const auto& operation : every_operation) {
    World world(3, {.timeout = milliseconds(200)});
    std::atomic<int> told_so{0};  // of the others; it is stuck for as long as they wait
    const auto messages = world.run([&](Communicator c) {
      c.all_reduce_sum(number(1));
      while (c.rank() == 1 && told_so < 2) std::this_thread::sleep_for(milliseconds(1));
      const std::string message = told([&] { operation(c); });
      ++told_so;
      return message;
    });
    EXPECT_EQ(messages[0],
              "communicator world: 1 of 3 ranks did not arrive within 200 ms\n"
              "  rank 1 last completed all_reduce_sum, call 0 on world");
    EXPECT_EQ(messages[1], messages[0]);  // the stuck rank itself, when it comes at last
    EXPECT_EQ(messages[2], messages[0]);
  }
}

TEST(Deadlines, ThatAreLongEnoughChangeNothing) {
  World world(2, {.timeout = std::chrono::seconds(60)});
  for (const auto& operation : every_operation) {
    EXPECT_NO_THROW(world.run([&](Communicator c) {
      if (c.rank() == 1) std::this_thread::sleep_for(milliseconds(20));
      operation(c);
    }));
  }
}

TEST(Handles, ThatAreAllDroppedMeanThatTheRankHasLeft) {
  std::vector<Communicator> handles = make_communicators(2);
  std::string message;
  std::thread survivor(
      [c = handles[1], &message] { message = told([&] { c.all_reduce_sum(number(1)); }); });
  std::this_thread::sleep_for(milliseconds(20));
  handles.clear();
  survivor.join();
  EXPECT_EQ(message,
            "communicator world: rank 0 can no longer arrive: it dropped its last handle on this "
            "communicator");
}

TEST(Handles, ThatAreDroppedAfterTheCallDoNotDisturbAPeerThatTakesItsResult) {
  for (int repeat = 0; repeat < 200; ++repeat) {
    std::vector<Communicator> handles = make_communicators(2);
    FloatTensor sum;
    std::thread peer([c = std::move(handles[1]), &sum] { sum = c.all_reduce_sum(number(2)); });
    {
      const Communicator own = std::move(handles[0]);
      own.all_reduce_sum(number(1));
    }
    peer.join();
    EXPECT_TENSOR(number(3), sum);
  }
}

TEST(Handles, OnASplitThatAreDroppedFailThatCommunicatorOnly) {
  World world(2);
  const auto messages = world.run([](Communicator c) {
    std::string text;
    {
      const Communicator split = c.split(0, 0);
      if (c.rank() == 1) text = told([&] { split.all_reduce_sum(number(1)); });
    }
    c.all_reduce_sum(number(1));
    return text;
  });
  EXPECT_EQ(messages[1],
            "communicator world.split@0{0, 1}: rank 0 can no longer arrive: it dropped its last "
            "handle on this communicator");
}

TEST(Handles, DroppedByAnExceptionLeaveTheExceptionAsTheReason) {
  World world(2);
  std::string message;
  EXPECT_THROW(world.run([&](Communicator c) {
    const Communicator split = c.split(0, 0);
    if (c.rank() == 0) throw std::domain_error("negative mass");
    message = told([&] { split.all_reduce_sum(number(1)); });
  }),
               std::domain_error);
  EXPECT_NE(message.find("it threw \"negative mass\""), std::string::npos) << message;
}

TEST(Handles, DroppedByAnExceptionThatIsCaughtAreToldAtTheNextCall) {
  World world(2);
  const auto messages = world.run([](Communicator c) {
    std::string text;
    try {
      const Communicator split = c.split(0, 0);
      if (c.rank() == 0) throw std::domain_error("caught below");
      text = told([&] { split.all_reduce_sum(number(1)); });
    } catch (const std::domain_error&) {
    }
    c.all_reduce_sum(number(1));
    return text;
  });
  EXPECT_NE(messages[1].find("dropped its last handle on this communicator in an exception"),
            std::string::npos)
      << messages[1];
}

TEST(Failures, OfLockstepsOwnTypeCarryHowTheOthersFared) {
  World world(3);
  try {
    world.run(
        [](Communicator c) { c.all_gather_float(FloatTensor::zeros(DType::f32, {c.rank() + 1})); });
    ADD_FAILURE() << "nothing was thrown";
  } catch (const ContractError& error) {
    EXPECT_EQ(error.attached().size(), 2u);
    EXPECT_NE(std::string(error.what()).find("the same on rank"), std::string::npos)
        << error.what();
  }
  EXPECT_EQ(world.failures().size(), 3u);
}

TEST(Failures, OfAForeignTypeAreListedFirstFailureFirst) {
  World world(4);
  EXPECT_THROW(world.run([](Communicator c) {
    if (c.rank() == 2) throw 42;
    c.all_reduce_sum(number(1));
  }),
               int);
  ASSERT_EQ(world.failures().size(), 4u);
  EXPECT_EQ(world.failures()[0].rank, 2);
  EXPECT_NE(world.failures()[1].text.find("rank 2 can no longer arrive"), std::string::npos);
  EXPECT_NO_THROW(world.run([](Communicator c) { c.all_reduce_sum(number(1)); }));
  EXPECT_TRUE(world.failures().empty());
}

// nv-legate/legate#345: with fewer cores than ranks an in-process communicator hung.
TEST(Departure, AndArrivalAreNoticedOnASingleCore) {
#ifdef __linux__
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &before)) {
      CPU_SET(cpu, &one);
      break;
    }
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);  // threads started from here inherit it
  {
    World world(16);
    for (int repeat = 0; repeat < 100; ++repeat) {
      world.run([](Communicator c) {
        const Communicator a = c.split(0, 0), b = c.split(0, -c.rank());
        a.all_reduce_sum(number(1));
        b.all_reduce_sum(number(1));
      });
    }
  }
  sched_setaffinity(0, sizeof before, &before);
#endif
}

}  // namespace
}  // namespace lockstep::sim
