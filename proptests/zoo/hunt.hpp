// The hunt for one mutant: generated cases until one shows that it is wrong, made simple.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/kit/verification.hpp>

#include "../kept_worlds.hpp"
#include "mutant.hpp"

namespace lockstep::zoo {

struct HuntOptions {
  std::uint64_t seed = 0;
  std::int64_t cases = 30000;  // after which a mutant counts as one that got away
  int most_ranks = 64;
};

// What it took to catch a mutant.
struct Kill {
  std::string property;
  kit::Counterexample counterexample;
  bool hung = false;  // a rank never came back from the shrunken case, the kit had to give it up

  // The size of the shrunken case: the elements of all ranks in all steps.
  int ranks() const { return counterexample.shrunk.world; }
  std::size_t steps() const { return counterexample.shrunk.steps.size(); }
  std::int64_t elements() const;
  // What a person takes in at a glance: at most 3 ranks, 2 steps and 8 elements.
  bool is_small() const { return ranks() <= 3 && steps() <= 2 && elements() <= 8; }
};

struct Hunt {
  const Mutant* mutant = nullptr;
  std::int64_t cases = 0;  // that were run, the one that caught it included
  std::optional<Kill> kill;
};

Hunt hunt(const Mutant& mutant, const HuntOptions& options, kit::KeptWorlds& worlds);

}  // namespace lockstep::zoo
