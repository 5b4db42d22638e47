// Memory runs out on one rank, in the making of a communicator and in calls (B69 of
// docs/reports.md): that rank or all ranks get an error, and nobody waits for ever.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include <lockstep/sim/world.hpp>

namespace {

// Of this thread: how many allocations succeed before one that fails; negative when none will.
thread_local int allowed = -1;

bool fails() {
  if (allowed < 0) return false;
  return --allowed < 0;
}

}  // namespace

void* operator new(std::size_t size) {
  void* memory = fails() ? nullptr : std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace lockstep::sim {
namespace {

// How a rank fared: a letter.
constexpr char value = 'v', out_of_memory = 'm', lost = 't';

template <class Call>
char fate(Call call) {
  try {
    call();
    return value;
  } catch (const TransportError&) {
    return lost;
  } catch (const std::bad_alloc&) {
    return out_of_memory;
  }
}

// All that a program does with a communicator of its own.
std::string program(const Communicator& world, int rank_that_fails, int allocations) {
  std::string fates(3, '?');
  const bool mine = world.rank() == rank_that_fails;
  const auto x = FloatTensor::of<float>({4}, {1, 2, 3, 4});
  std::vector<Communicator> made;
  made.reserve(1);
  if (mine) allowed = allocations;
  fates[0] = fate([&] { made.push_back(world.split(0, -world.rank())); });
  if (made.empty()) {
    allowed = -1;
    return fates;
  }
  fates[1] = fate([&] { made[0].all_reduce_sum(x); });
  fates[2] = fate([&] { made[0].all_gather_float(x); });
  allowed = -1;
  return fates;
}

TEST(B69, MemoryThatRunsOutOnOneRankIsAnErrorForAll) {
  int failures = 0;
  for (int allocations = 0; allocations < 60; ++allocations) {
    World world(4);
    const auto fates = world.run([&](Communicator c) { return program(c, 2, allocations); });
    // A communicator that was not made anywhere was made nowhere, or is lost to all who have it.
    bool failed = false;
    for (const std::string& fate : fates) failed = failed || fate != "vvv";
    if (!failed) continue;
    ++failures;
    for (std::size_t rank = 0; rank < fates.size(); ++rank) {
      if (rank != 2) {
        EXPECT_EQ(fates[rank].find(out_of_memory), std::string::npos) << rank;
      }
      const bool some_error = fates[rank].find(lost) != std::string::npos ||
                              fates[rank].find(out_of_memory) != std::string::npos;
      EXPECT_TRUE(some_error) << "rank " << rank << " after " << allocations
                              << " allocations: " << fates[rank];
    }
  }
  EXPECT_GE(failures, 1);
}

TEST(B69, SetUpThatThrowsOnOneRankEndsTheSetUpOfAll) {
  World world(4);
  std::vector<std::string> told(4);
  EXPECT_THROW(world.run([&](Communicator c) {
    if (c.rank() == 2) throw std::bad_alloc();
    try {
      c.split(0, 0);
    } catch (const TransportError& error) {
      told[static_cast<std::size_t>(c.rank())] = error.what();
    }
  }),
               std::bad_alloc);
  for (std::size_t rank : {0u, 1u, 3u}) {
    EXPECT_EQ(told[rank],
              "communicator world: rank 2 can no longer arrive: it threw \"std::bad_alloc\" (made "
              "no call)");
  }
}

}  // namespace
}  // namespace lockstep::sim
