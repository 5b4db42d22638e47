// GPU communicators on simulated devices when something goes wrong.
#include <lockstep/gpu/communicator.hpp>

#include <cuda_runtime_api.h>

#include <atomic>
#include <thread>

#include "gpu_ranks.hpp"

namespace lockstep::gpu {
namespace {

using namespace testing;
using std::chrono::milliseconds;

void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "the message is: " << text;
}

FloatTensor ones(const Communicator& c, const Shape& shape) {
  return up(c, filled<float>(shape, [](std::int64_t) { return 1; }));
}

TEST(GpuReports, B71AnAbortFromAnotherThreadEndsThePeersThatWait) {
  std::vector<std::string> told_first(2), told_later(2);
  on_devices(2, {}, [&](Communicator c) {
    const auto r = static_cast<std::size_t>(c.rank());
    c.all_reduce_sum(ones(c, {4})).download();
    c.gather_integers({});  // nobody aborts what the other still waits for
    if (c.rank() == 1) {
      // Waits for rank 0, which aborts instead of coming.
      told_first[r] = told<TransportError>([&] { c.all_reduce_sum(ones(c, {4})); });
    } else {
      const Communicator copy = c;
      std::thread second([copy] {
        copy.abort("the user asked for it");
        copy.abort("again");
      });
      second.join();
      c.abort("and again");
      told_first[r] = told<TransportError>([&] { c.all_reduce_sum(ones(c, {4})); });
    }
    told_later[r] = told<TransportError>([&] { c.all_gather_float(ones(c, {1})); });
  });
  EXPECT_EQ(told_first[0], "world was aborted by rank 0: the user asked for it");
  expect_contains(told_first[1], "all_reduce_sum, call 1 on world: ");
  expect_contains(told_first[1], "rank 0 can no longer arrive: it left this communicator");
  EXPECT_EQ(told_later, told_first);
}

TEST(GpuReports, B71AnAbortEndsTheCallThatItsOwnThreadIsIn) {
  std::vector<std::string> told_to(2);
  std::atomic<bool> aborted = false;
  on_devices(2, {}, [&](Communicator c) {
    if (c.rank() == 0) {
      std::thread second([&aborted, c] {
        std::this_thread::sleep_for(milliseconds(20));
        c.abort("enough");
        aborted = true;
      });
      told_to[0] = told<TransportError>([&] { c.all_reduce_sum(ones(c, {4})); });
      second.join();
    } else {
      while (!aborted) std::this_thread::yield();
      told_to[1] = told<TransportError>([&] { c.all_reduce_sum(ones(c, {4})); });
    }
  });
  EXPECT_EQ(told_to[0], "world was aborted by rank 0: enough");
  expect_contains(told_to[1], "rank 0 can no longer arrive");
}

// Without agreement a rank enqueues its part, whatever the others do.
Options alone(milliseconds timeout) {
  Options options;
  options.agreement = false;
  options.timeout = timeout;
  return options;
}

TEST(GpuFailure, DataThatNeverComeAreNoticedByTheTimeLimit) {
  std::string waiting, later;
  std::atomic<bool> over = false;
  on_devices(2, alone(milliseconds(300)), [&](Communicator c) {
    c.all_reduce_sum(ones(c, {4})).download();
    if (c.rank() == 0) {
      while (!over) std::this_thread::yield();  // stuck in its own code
      return;
    }
    const FloatTensor sum = c.all_reduce_sum(ones(c, {4}));
    waiting = told<TransportError>([&] { sum.download(); });
    later = told<TransportError>([&] { c.all_reduce_sum(ones(c, {4})); });
    // What was lost stays lost, and the device works on.
    EXPECT_EQ(told<TransportError>([&] { sum.download(); }), waiting);
    EXPECT_TENSOR(tensor<float>({1}, {5}), up(c, tensor<float>({1}, {5})).download());
    over = true;
  });
  expect_contains(waiting, "all_reduce_sum, call 1 on world: timed out after 300 ms");
  EXPECT_EQ(later, waiting);
}

TEST(GpuFailure, AbortingEndsADownloadThatWaits) {
  std::string waiting;
  std::atomic<bool> over = false;
  on_devices(2, alone(milliseconds(60'000)), [&](Communicator c) {
    c.all_reduce_sum(ones(c, {4})).download();
    if (c.rank() == 0) {
      while (!over) std::this_thread::yield();
      return;
    }
    const FloatTensor sum = c.all_reduce_sum(ones(c, {4}));
    std::thread second([c] {
      std::this_thread::sleep_for(milliseconds(20));
      c.abort("no longer needed");
    });
    waiting = told<TransportError>([&] { sum.download(); });
    second.join();
    over = true;
  });
  EXPECT_EQ(waiting, "world was aborted by rank 1: no longer needed");
}

TEST(GpuFailure, AResultThatWasThereBeforeAPeerLeftStaysRight) {
  for (int repeat = 0; repeat < 20; ++repeat) {
    const auto results = on_devices(2, {}, [&](Communicator c) {
      const FloatTensor sum = c.all_reduce_sum(up(c, counting<float>({1000}, c.rank())));
      // Rank 0 leaves as soon as its call has returned; its part may not have run yet.
      if (c.rank() == 0) return lockstep::FloatTensor();
      EXPECT_NE(told<TransportError>([&] { c.all_gather_float(sum); }), "returned");
      return sum.download();
    });
    EXPECT_TENSOR(filled<float>({1000}, [](std::int64_t i) { return 2 * i + 1; }), results[1]);
  }
}

TEST(GpuFailure, ADeviceWithoutMemoryForTheResultIsEverybodysError) {
  std::vector<std::string> told_to(2);
  on_devices(2, {}, [&](Communicator c) {
    // 12 MiB on every rank, 24 in the result, for which rank 1 of 64 MiB has no room.
    const auto x = FloatTensor::zeros(DType::f32, {3 << 20}, c.stream());
    std::optional<FloatTensor> filler;
    if (c.rank() == 1) filler = FloatTensor::zeros(DType::f32, {8 << 20}, c.stream());
    told_to[static_cast<std::size_t>(c.rank())] =
        told<TransportError>([&] { c.all_gather_float(x); });
  });
  expect_contains(told_to[0],
                  "all_gather_float, call 0 on world: no device memory for the result on rank 1");
  expect_contains(told_to[1], told_to[0]);
  expect_contains(told_to[1], "bytes on device 1");
}

TEST(GpuFailure, ARankThatGivesUpInTheMiddleOfAnExchangeIsNamedToThoseThatWait) {
  std::vector<std::string> told_to(4);
  on_devices(4, {}, [&](Communicator c) {
    // Nobody knows before the counts are exchanged that rank 3 has no room for its rows. (Its
    // device is one that no other test here uses up: freed memory is not given out again for a
    // while.)
    std::optional<FloatTensor> filler;
    if (c.rank() == 3) filler = FloatTensor::zeros(DType::f32, {10 << 20}, c.stream());
    const auto x = FloatTensor::zeros(DType::f32, {2 << 20, 1}, c.stream());
    const Counts all_to_3 = {0, 0, 0, 2 << 20};
    told_to[static_cast<std::size_t>(c.rank())] = told<TransportError>([&] {
      const auto exchange = c.all_to_all_v_float(x, all_to_3);
      exchange.value.download();
      c.all_reduce_sum(ones(c, {1}));
    });
  });
  expect_contains(told_to[3], "all_to_all_v_float, call 0 on world: this rank gave up");
  for (const std::size_t rank : {0, 1, 2}) {
    expect_contains(told_to[rank], "rank 3");
    expect_contains(told_to[rank], "on world");
  }
}

TEST(GpuFailure, OtherCommunicatorsOfTheSameStreamGoOn) {
  on_devices(3, {}, [](Communicator c) {
    if (c.rank() == 2) return;
    const Communicator pair = c.group({0, 1});
    EXPECT_NE(told<TransportError>([&] { c.all_reduce_sum(ones(c, {4})); }), "returned");
    EXPECT_TENSOR(tensor<float>({1}, {2}), pair.all_reduce_sum(ones(c, {1})).download());
  });
}

TEST(GpuFailure, TwoThreadsOnOneRankAreRefused) {
  std::atomic<int> refusals = 0;
  on_devices(2, {}, [&](Communicator c) {
    if (c.rank() == 1) {
      while (refusals == 0) std::this_thread::yield();
      c.all_reduce_sum(ones(c, {1}));
      return;
    }
    // One of the two is in the call until rank 1 comes, so the other meets it there.
    const auto call = [&] {
      const std::string message = told<InvalidArgument>([&] { c.all_reduce_sum(ones(c, {1})); });
      if (message == "returned") return;
      expect_contains(message, "two threads use one rank at once: rank 0 of world");
      ++refusals;
    };
    std::thread second(call);
    call();
    second.join();
  });
  EXPECT_EQ(refusals, 1);
}

TEST(GpuAgreement, SwitchedOffLeavesWhatARankCanSeeByItself) {
  Options options;
  options.agreement = false;
  on_devices(2, options, [](Communicator c) {
    if (c.rank() == 0) {
      EXPECT_ERROR(c.reduce_scatter_sum(ones(c, {3})), ContractError, "indivisible_rows");
      EXPECT_ERROR(c.broadcast_float(ones(c, {1}), 2), ContractError, "root_out_of_range");
    }
    EXPECT_TENSOR(tensor<float>({2}, {2, 2}), c.all_reduce_sum(ones(c, {2})).download());
    // Exchanges need each other's counts, and agree on the rest along the way.
    const Counts counts = {c.rank() == 0 ? 1 : 0, 0};
    EXPECT_ERROR(c.all_to_all_v_float(ones(c, {c.rank() == 0 ? 2 : 0, 1}), counts), ContractError,
                 "counts_sum");
    EXPECT_TENSOR(tensor<float>({2}, {2, 2}), c.all_reduce_sum(ones(c, {2})).download());
  });
}

}  // namespace
}  // namespace lockstep::gpu
