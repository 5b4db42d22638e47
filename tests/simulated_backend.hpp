// Simulated ranks as a backend, for tests of the kit and with it.
#pragma once

#include <lockstep/kit/backend.hpp>
#include <lockstep/sim/world.hpp>

namespace lockstep::testing {

class SimulatedBackend : public kit::ThreadBackend {
 public:
  explicit SimulatedBackend(SumRule rule = SumRule::exact) : rule_(rule) {}

  kit::BackendInfo info() const override {
    kit::BackendInfo info;
    info.name = "simulated ranks";
    info.sum_rule = rule_;
    info.offers_throws = true;
    info.offers_stalls = true;
    return info;
  }

  void set_timeout(std::optional<std::chrono::milliseconds> timeout) override {
    timeout_ = timeout;
  }

  void launch(int ranks, const RankBody& body) override {
    sim::World world(ranks, {.sum_rule = rule_, .timeout = timeout_});
    world.run([&](sim::Communicator communicator) {
      const int rank = communicator.rank();
      kit::SubjectOf<sim::Communicator> subject(std::move(communicator));
      body(rank, subject);
    });
  }

 private:
  SumRule rule_;
  std::optional<std::chrono::milliseconds> timeout_;
};

}  // namespace lockstep::testing
