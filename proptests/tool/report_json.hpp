// What `verify --json` writes.
#pragma once

#include <string>
#include <vector>

#include <lockstep/kit/verification.hpp>

#include "arguments.hpp"

namespace lockstep::tool {

// A finished verification and how it came about.
struct VerifyRun {
  std::string backend;
  SumRule sum_rule = SumRule::exact;
  std::uint64_t seed = 0;
  RankRange ranks;
  double seconds = 0;
  kit::VerifyReport report;
  // The file of each property's counterexample, in the order of the report; empty where none.
  std::vector<std::string> counterexamples;
};

// One object: backend, sum_rule, seed, ranks, cases, seconds, verdict ("holds" or "broken"),
// properties and corners. Everything but `seconds` is a function of the arguments of the run.
std::string report_json(const VerifyRun& run);

// A backend that gave no verdict: {"backend", "verdict": "failed", "error"}.
std::string failure_json(const std::string& backend, const std::string& error);

// {"backends": [...]}, of objects as above.
std::string list_json(const std::vector<std::string>& reports);

// A JSON string, quotes included.
std::string json_string(std::string_view text);

}  // namespace lockstep::tool
