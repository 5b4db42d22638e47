// The simulator as a backend: ranks are threads of this process.

#include <map>
#include <memory>

#include <lockstep/kit/backend.hpp>
#include <lockstep/sim/world.hpp>

namespace lockstep::kit {
namespace {

class SimBackend final : public ThreadBackend {
 public:
  BackendInfo info() const override {
    BackendInfo info;
    info.name = "sim";
    info.description = "ranks simulated on threads";
    info.sum_rule = sum_rule_;
    return info;
  }

  void configure(const BackendOptions& options) override {
    if (options.sum_rule == SumRule::unspecified) {
      throw InvalidArgument("sums are exact or rank_order, never unspecified");
    }
    sum_rule_ = options.sum_rule.value_or(SumRule::exact);
    worlds_.clear();
    threads_ = 0;
  }

  void launch(int ranks, const RankBody& body) override {
    world_of(ranks).run([&](sim::Communicator communicator) {
      const int rank = communicator.rank();
      SubjectOf<sim::Communicator> subject(std::move(communicator));
      body(rank, subject);
    });
  }

 private:
  // Worlds are kept: starting threads costs more than most cases.
  sim::World& world_of(int ranks) {
    if (const auto kept = worlds_.find(ranks); kept != worlds_.end()) return *kept->second;
    if (threads_ + ranks > most_threads) {
      worlds_.clear();
      threads_ = 0;
    }
    auto world = std::make_unique<sim::World>(ranks, sim::Options{sum_rule_, std::nullopt});
    threads_ += ranks;
    return *worlds_.emplace(ranks, std::move(world)).first->second;
  }

  static constexpr int most_threads = 4096;

  SumRule sum_rule_ = SumRule::exact;
  std::map<int, std::unique_ptr<sim::World>> worlds_;
  int threads_ = 0;
};

}  // namespace
}  // namespace lockstep::kit

LOCKSTEP_BACKEND(lockstep::kit::SimBackend);
