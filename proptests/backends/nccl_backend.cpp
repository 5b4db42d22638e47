// NCCL as a backend: ranks are threads of this process, each with a device of its own. Built twice,
// with the real CUDA runtime and NCCL and with the simulated ones.

#include <chrono>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <lockstep/kit/backend.hpp>
#include <lockstep/sim/world.hpp>

#include "clean_case.hpp"
#include "gpu_transfer.hpp"

namespace lockstep::kit {
namespace {

#if LOCKSTEP_SIMULATED_DEVICES
constexpr const char* backend_name = "nccl-sim";
constexpr const char* description = "NCCL on simulated devices, ranks are threads";
#else
constexpr const char* backend_name = "nccl";
constexpr const char* description = "NCCL, ranks are threads with a device each";
#endif

// Long after anything that is not stuck has ended, and before the tool calls it hanging.
constexpr std::chrono::seconds patience{40};

class NcclBackend final : public ThreadBackend {
 public:
  NcclBackend() {
#if LOCKSTEP_SIMULATED_DEVICES
    ::setenv("LOCKSTEP_SIM_DEVICES", "128", 0);  // unless the user wants another number
#endif
    try {
      devices_ = gpu::device_count();
    } catch (const gpu::DeviceError& error) {
      unavailable_ = error.what();
    }
  }

  BackendInfo info() const override {
    BackendInfo info;
    info.name = backend_name;
    info.description = description;
    info.sum_rule = sum_rule_;
    info.unavailable = unavailable_;
    info.most_ranks = devices_;
    info.offers_throws = true;
    info.offers_stalls = true;
    return info;
  }

  void configure(const BackendOptions& options) override {
    sum_rule_ = options.sum_rule.value_or(SumRule::exact);
  }

  // The control plane's: that is where ranks wait for one that does not come.
  void set_timeout(std::optional<std::chrono::milliseconds> timeout) override {
    timeout_ = timeout;
    worlds_.clear();
  }

  // A communicator is used again as long as that cannot be noticed.
  Transcript run(const Case& c) override {
    keep_ = leaves_no_trace(c);
    Transcript transcript = ThreadBackend::run(c);
    for (const std::vector<Outcome>& step : transcript) {
      for (const Outcome& outcome : step) keep_ = keep_ && !is_failure(outcome);
    }
    if (!keep_) worlds_.erase(c.world);
    keep_ = false;
    return transcript;
  }

  void launch(int ranks, const RankBody& body) override {
    World world;
    if (keep_ && worlds_.contains(ranks)) {
      world = worlds_.at(ranks);
    } else {
      world = fresh_world(ranks);
    }
    if (keep_) worlds_.insert_or_assign(ranks, world);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      gpu::Communicator& its = world[static_cast<std::size_t>(rank)];
      threads.emplace_back([&body, rank, communicator = std::move(its)]() mutable {
        // When the body ends, the rank has left, unless the communicator is kept.
        SubjectOf<gpu::Communicator> subject(std::move(communicator));
        try {
          body(rank, subject);
        } catch (const InjectedFault&) {
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

 private:
  using World = std::vector<gpu::Communicator>;

  World fresh_world(int ranks) const {
    try {
      gpu::Options options;
      options.sum_rule = sum_rule_;
      options.timeout = patience;
      sim::Options control;
      control.timeout = timeout_;
      World world;
      for (sim::Communicator& host : sim::make_communicators(ranks, control)) {
        const gpu::Stream stream(static_cast<int>(world.size()));
        world.emplace_back(std::move(host), stream, options);
      }
      return world;
    } catch (const gpu::DeviceError& error) {
      throw BackendBroken(error.what());
    }
  }

  SumRule sum_rule_ = SumRule::exact;
  std::optional<std::chrono::milliseconds> timeout_;
  int devices_ = 0;
  std::string unavailable_;
  bool keep_ = false;            // the world of the case that runs
  std::map<int, World> worlds_;  // kept from case to case
};

}  // namespace
}  // namespace lockstep::kit

LOCKSTEP_BACKEND(lockstep::kit::NcclBackend);
