#include "hunt.hpp"

#include "zoo_backend.hpp"

namespace lockstep::zoo {
namespace {

// Long enough for a rank to come back on a busy machine; each simpler case that hangs costs it.
constexpr std::chrono::milliseconds patience(100);

}  // namespace

std::int64_t Kill::elements() const {
  std::int64_t elements = 0;
  for (const kit::Step& step : counterexample.shrunk.steps) {
    for (const std::optional<kit::Input>& input : step.inputs) {
      if (input && !input->from_step) elements += input->tensor.elements();
    }
  }
  return elements;
}

Hunt hunt(const Mutant& mutant, const HuntOptions& options, kit::KeptWorlds& worlds) {
  ZooBackend backend(mutant, worlds, patience);
  kit::VerifyOptions verify;
  verify.seed = options.seed;
  verify.cases = options.cases;
  verify.most_ranks = options.most_ranks;
  verify.stop_when_broken = true;
  verify.shrink_seconds = 1e6;  // a seed gives one counterexample, however slow the machine
  kit::VerifyReport report = kit::verify(backend, verify);

  Hunt hunt{&mutant, report.cases, std::nullopt};
  for (kit::PropertyReport& property : report.properties) {
    if (!property.counterexample) continue;
    Kill kill{property.name, std::move(*property.counterexample), false};
    (void)kit::run_case(backend, kill.counterexample.shrunk);
    kill.hung = backend.hung();
    hunt.kill = std::move(kill);
  }
  return hunt;
}

}  // namespace lockstep::zoo
