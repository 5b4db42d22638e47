// A mutant as a backend of the kit.
#pragma once

#include <chrono>
#include <optional>

#include <lockstep/kit/backend.hpp>

#include "../kept_worlds.hpp"
#include "mutant.hpp"

namespace lockstep::zoo {

class ZooBackend final : public kit::ThreadBackend {
 public:
  // `mutant` and `worlds` must outlive the backend. A rank that hangs is given up after `timeout`,
  // counted from the start of its case.
  ZooBackend(const Mutant& mutant, kit::KeptWorlds& worlds, std::chrono::milliseconds timeout)
      : mutant_(mutant), worlds_(worlds), patience_(timeout) {}

  kit::BackendInfo info() const override;
  void set_timeout(std::optional<std::chrono::milliseconds> timeout) override {
    timeout_ = timeout;
  }
  void launch(int ranks, const RankBody& body) override;

  // Whether a rank of the latest case had to be given up.
  bool hung() const { return patience_.exhausted(); }

 private:
  const Mutant& mutant_;
  kit::KeptWorlds& worlds_;
  Patience patience_;
  std::optional<std::chrono::milliseconds> timeout_;
};

// The rule by which the right part of a mutant adds: its own, or one that `unspecified` allows.
SumRule right_rule(const Mutant& mutant);

}  // namespace lockstep::zoo
