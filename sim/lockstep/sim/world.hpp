// Ranks as threads of this process.
//
//   lockstep::sim::World world(4);
//   auto sums = world.run([](lockstep::sim::Communicator c) {
//     auto x = lockstep::FloatTensor::of<float>({1}, {1.0f + c.rank()});
//     return c.all_reduce_sum(x);
//   });
//
// Ranks meet at a rendezvous; the last to arrive computes everybody's result with the oracle. No
// more threads run at once than the machine has cores, so a world of a thousand ranks is ordinary.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include <lockstep/error.hpp>
#include <lockstep/sim/communicator.hpp>
#include <lockstep/sum_rule.hpp>

namespace lockstep::sim {

struct Options {
  // `exact` or `rank_order`; `unspecified` is served as `rank_order`.
  SumRule sum_rule = SumRule::exact;
  // How long a rank waits for the others in one call before it gives up on them. Only needed for
  // ranks that may get stuck in their own code: a rank that throws, returns, or waits in a circle
  // is noticed without a clock.
  std::optional<std::chrono::nanoseconds> timeout = {};
};

// How one rank of a run failed.
struct RankFailure {
  int rank;
  std::exception_ptr exception;
  std::string text;  // the exception's what()
};

class World {
 public:
  // Starts one thread per rank. Throws InvalidArgument unless ranks >= 1, and std::system_error
  // when the system has no more threads to give.
  explicit World(int ranks, Options options = {});
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int size() const;

  // Calls body(communicator) once per rank, each on its rank's thread, on a fresh communicator of
  // the whole world, and returns what they returned, in rank order. A rank whose body returns or
  // throws has left: peers that wait for it, or call it later, get a TransportError.
  //
  // If bodies throw, the exception of the rank that failed first is rethrown as it is, after all
  // have finished. Where it is a lockstep::Error, how the others failed is attached to it; for any
  // exception, failures() has the full list.
  template <class Body>
  auto run(Body&& body) {
    using R = std::invoke_result_t<Body&, Communicator>;
    if constexpr (std::is_void_v<R>) {
      run_ranks([&](Communicator communicator) { body(std::move(communicator)); });
    } else {
      std::vector<std::optional<R>> returned(static_cast<std::size_t>(size()));
      run_ranks([&](Communicator communicator) {
        const auto rank = static_cast<std::size_t>(communicator.rank());
        returned[rank].emplace(body(std::move(communicator)));
      });
      std::vector<R> results;
      results.reserve(returned.size());
      for (std::optional<R>& result : returned) results.push_back(std::move(*result));
      return results;
    }
  }

  // The failures of the latest run, first failure first; empty when all bodies returned.
  const std::vector<RankFailure>& failures() const;

 private:
  void run_ranks(const std::function<void(Communicator)>& body);

  struct Threads;
  std::unique_ptr<Threads> threads_;
};

// Communicators of a new world, entry r for rank r, for threads of the caller's own. A rank leaves
// when the last copy of its communicators is gone. Throws InvalidArgument unless ranks >= 1.
std::vector<Communicator> make_communicators(int ranks, Options options = {});

}  // namespace lockstep::sim
