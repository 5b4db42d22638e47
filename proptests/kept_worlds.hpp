// Simulated worlds that are kept from case to case: starting threads costs more than most cases.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <tuple>

#include <lockstep/sim/world.hpp>

namespace lockstep::kit {

class KeptWorlds {
 public:
  // Valid until the next call.
  sim::World& of(int ranks, SumRule rule,
                 std::optional<std::chrono::milliseconds> timeout = std::nullopt) {
    const auto key = std::make_tuple(ranks, rule, timeout);
    if (const auto kept = worlds_.find(key); kept != worlds_.end()) return *kept->second;
    if (threads_ + ranks > most_threads) {
      worlds_.clear();
      threads_ = 0;
    }
    auto world = std::make_unique<sim::World>(ranks, sim::Options{rule, timeout});
    threads_ += ranks;
    return *worlds_.emplace(key, std::move(world)).first->second;
  }

 private:
  static constexpr int most_threads = 4096;

  std::map<std::tuple<int, SumRule, std::optional<std::chrono::milliseconds>>,
           std::unique_ptr<sim::World>>
      worlds_;
  int threads_ = 0;
};

}  // namespace lockstep::kit
