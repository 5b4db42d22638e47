// Verification of a backend: generate cases, run and judge each, shrink what fails.
//
// The `lockstep` tool is a command line around this; a test suite calls it directly:
//
//   auto report = lockstep::kit::verify(backend, {.seed = 1, .cases = 1000});
//   EXPECT_TRUE(report.holds()) << lockstep::kit::explain(report);
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/kit/backend.hpp>
#include <lockstep/kit/corners.hpp>
#include <lockstep/kit/generator.hpp>
#include <lockstep/kit/judge.hpp>

namespace lockstep::kit {

struct VerifyOptions {
  int fewest_ranks = 1;
  int most_ranks = 8;
  std::uint64_t seed = 0;
  std::int64_t cases = 10000;           // dealt out among the properties
  std::vector<std::string> properties = {};  // all when empty
  // Whether the first property that breaks ends the run. Otherwise the others go on.
  bool stop_when_broken = false;
  // Shrinking stops after so many runs or seconds, whichever comes first. (The default number of
  // runs always comes first on a backend of ordinary speed, so that a seed gives one
  // counterexample.)
  std::int64_t shrink_runs = 4000;
  double shrink_seconds = 60;
};

// A case on which the backend differs from the oracle.
struct Counterexample {
  std::uint64_t index = 0;  // of the generated case, within its property
  Case shrunk;              // with `expected` filled in
  Divergence divergence;    // of the shrunken case
  std::int64_t runs = 0;    // that shrinking took
};

struct PropertyReport {
  enum class Verdict : std::uint8_t { holds, broken, not_offered, not_run };
  std::string name;
  std::string clause;
  Verdict verdict = Verdict::not_run;
  std::int64_t cases = 0;
  std::optional<Counterexample> counterexample;
};
std::string_view name(PropertyReport::Verdict verdict);

struct VerifyReport {
  std::vector<PropertyReport> properties;
  std::int64_t cases = 0;
  std::array<std::int64_t, corner_count> visits{};  // cases that visited each corner

  bool holds() const;
};

// Told what goes on, in the calling thread. The case lives until the next call.
class VerifyObserver {
 public:
  virtual ~VerifyObserver() = default;
  virtual void starting(const PropertyReport& property, std::uint64_t index, const Case& c) {
    (void)property, (void)index, (void)c;
  }
  virtual void finished() {}
  virtual void broken(const PropertyReport& property) { (void)property; }
};

// Runs the cases. Throws InvalidArgument for a property that is not listed or a range of ranks that
// is none; what the backend throws (BackendBroken) passes through.
VerifyReport verify(Backend& backend, const VerifyOptions& options,
                    VerifyObserver* observer = nullptr);

// Throws InvalidArgument, with the names that there are, unless all are names of properties.
void require_properties(const std::vector<std::string>& names);

// Runs one case. In one where a rank stalls, ranks wait `timeout` for it.
inline constexpr std::chrono::milliseconds stall_timeout{30};
Transcript run_case(Backend& backend, const Case& c,
                    std::chrono::milliseconds timeout = stall_timeout);

// Runs one case and judges it by the backend's own sum rule: against the oracle, and where calls in
// it are related (relations.hpp), against one another. (A short timeout may hit a rank that is only
// slow, so that where a rank stalls a divergence must last under longer timeouts.)
std::optional<Divergence> run_and_judge(Backend& backend, const Case& c);

// What broke, for a person: the shrunken case and the judge's explanation.
std::string explain(const Counterexample& counterexample);
std::string explain(const VerifyReport& report);

}  // namespace lockstep::kit
