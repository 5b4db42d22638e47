// The commands of the tool: each takes what was on its command line and returns the exit status.
// What goes wrong is thrown as a Failure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench_plan.hpp"

namespace lockstep::tool {

struct VerifyArguments {
  std::vector<std::string> backends;  // all that can run here when empty
  std::optional<std::string> ranks;
  std::string cases = "10000";
  std::optional<std::string> seed;
  std::vector<std::string> properties;
  std::optional<std::string> json;
  std::string out = ".";
  std::optional<std::string> sum_rule;
  std::string timeout = "60";
};
int verify_command(const VerifyArguments& arguments);

struct ReplayArguments {
  std::vector<std::string> cases;
  std::optional<std::string> backend;  // sim if absent, or none for a recorded case
  std::optional<std::string> sum_rule;
  std::string timeout = "60";
};
int replay_command(const ReplayArguments& arguments);

struct OracleArguments {
  std::string file = "-";
};
int oracle_command(const OracleArguments& arguments);

struct MutantsArguments {
  std::string cases = "30000";
  std::optional<std::string> seed;
  std::vector<std::string> mutants;  // all, and the right backends, when empty
  std::optional<std::string> json;
};
int mutants_command(const MutantsArguments& arguments);

struct BenchArguments {
  bench::Arguments plan;
  std::string backend = "sim";
  std::optional<std::string> sum_rules;  // a list; the backend's own when absent
  std::optional<std::string> json;
  std::optional<std::string> lines;  // where a launched process leaves its measurements
};
int bench_command(const BenchArguments& arguments);

int backends_command();

struct SimulateArguments {
  std::optional<std::string> devices;
  std::optional<std::string> seed;
  std::optional<std::string> memory;
  std::optional<std::string> timeout;
  bool abort = false;
  std::optional<std::string> json;
  std::vector<std::string> program;  // and its arguments
};
// Returns the program's exit status, or 86 where that is 0 and there were findings.
int simulate_command(const SimulateArguments& arguments);

}  // namespace lockstep::tool
