// The simulator as a backend: ranks are threads of this process.

#include <lockstep/kit/backend.hpp>
#include <lockstep/sim/world.hpp>

#include "../kept_worlds.hpp"

namespace lockstep::kit {
namespace {

class SimBackend final : public ThreadBackend {
 public:
  BackendInfo info() const override {
    BackendInfo info;
    info.name = "sim";
    info.description = "ranks simulated on threads";
    info.sum_rule = sum_rule_;
    info.offers_throws = true;
    info.offers_stalls = true;
    return info;
  }

  void configure(const BackendOptions& options) override {
    if (options.sum_rule == SumRule::unspecified) {
      throw InvalidArgument("sums are exact or rank_order, never unspecified");
    }
    sum_rule_ = options.sum_rule.value_or(SumRule::exact);
  }

  void set_timeout(std::optional<std::chrono::milliseconds> timeout) override {
    timeout_ = timeout;
  }

  void launch(int ranks, const RankBody& body) override {
    worlds_.of(ranks, sum_rule_, timeout_).run([&](sim::Communicator communicator) {
      const int rank = communicator.rank();
      SubjectOf<sim::Communicator> subject(std::move(communicator));
      body(rank, subject);
    });
  }

 private:
  SumRule sum_rule_ = SumRule::exact;
  std::optional<std::chrono::milliseconds> timeout_;
  KeptWorlds worlds_;
};

}  // namespace
}  // namespace lockstep::kit

LOCKSTEP_BACKEND(lockstep::kit::SimBackend);
