// Processes that leave, throw, get stuck or run out of memory. See mpi_processes.hpp.

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <functional>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <lockstep/storage.hpp>

#include "mpi_processes.hpp"

namespace lockstep {
namespace {

using namespace testing;
using namespace std::chrono_literals;

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
#if defined(LOCKSTEP_ADDRESS_SANITIZER) || defined(LOCKSTEP_THREAD_SANITIZER)
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

}  // namespace
}  // namespace lockstep
