#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <random>

#include <hunt.hpp>

#include "commands.hpp"
#include "exit_status.hpp"
#include "files.hpp"
#include "progress.hpp"
#include "report_json.hpp"

namespace lockstep::tool {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

struct TimedHunt : zoo::Hunt {
  double seconds;
};

struct MutantsRun {
  std::uint64_t seed;
  std::int64_t cases;
  double seconds = 0;
  std::vector<TimedHunt> wrong;
  std::vector<TimedHunt> right;
};

std::int64_t killed(const std::vector<TimedHunt>& hunts) {
  return std::ranges::count_if(hunts, [](const auto& hunt) { return hunt.kill.has_value(); });
}

std::int64_t small(const std::vector<TimedHunt>& hunts) {
  return std::ranges::count_if(hunts,
                               [](const auto& hunt) { return hunt.kill && hunt.kill->is_small(); });
}

// The median of how many cases a kill took; 0 where there is none.
std::int64_t median_cases(const std::vector<TimedHunt>& hunts) {
  std::vector<std::int64_t> cases;
  for (const TimedHunt& hunt : hunts) {
    if (hunt.kill) cases.push_back(hunt.cases);
  }
  std::ranges::sort(cases);
  return cases.empty() ? 0 : cases[cases.size() / 2];
}

// --- For machines

std::string seconds_text(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f", seconds);
  return text;
}

std::string hunt_json(const TimedHunt& hunt) {
  std::string text = "{\"name\": " + json_string(hunt.mutant->name) +
                     ", \"kind\": " + json_string(hunt.mutant->kind) +
                     ", \"fault\": " + json_string(hunt.mutant->description) +
                     ", \"killed\": " + (hunt.kill ? "true" : "false") +
                     ", \"cases\": " + std::to_string(hunt.cases);
  if (hunt.kill) {
    const zoo::Kill& kill = *hunt.kill;
    text += ", \"property\": " + json_string(kill.property) +
            ", \"aspect\": " + json_string(kill.counterexample.divergence.aspect) +
            ", \"hung\": " + (kill.hung ? "true" : "false") +
            ", \"shrunk\": {\"ranks\": " + std::to_string(kill.ranks()) +
            ", \"steps\": " + std::to_string(kill.steps()) +
            ", \"elements\": " + std::to_string(kill.elements()) + "}";
  }
  return text + ", \"seconds\": " + seconds_text(hunt.seconds) + "}";
}

std::string hunts_json(const std::vector<TimedHunt>& hunts) {
  std::string text = "[";
  for (std::size_t i = 0; i < hunts.size(); ++i) {
    text += (i > 0 ? ",\n    " : "\n    ") + hunt_json(hunts[i]);
  }
  return text + "\n  ]";
}

// Everything but `seconds` is a function of the seed and the number of cases.
std::string run_json(const MutantsRun& run) {
  return "{\n  \"seed\": " + std::to_string(run.seed) +
         ",\n  \"cases\": " + std::to_string(run.cases) +
         ",\n  \"killed\": " + std::to_string(killed(run.wrong)) +
         ",\n  \"total\": " + std::to_string(run.wrong.size()) +
         ",\n  \"median_cases\": " + std::to_string(median_cases(run.wrong)) +
         ",\n  \"small\": " + std::to_string(small(run.wrong)) +
         ",\n  \"right_killed\": " + std::to_string(killed(run.right)) +
         ",\n  \"seconds\": " + seconds_text(run.seconds) +
         ",\n  \"mutants\": " + hunts_json(run.wrong) + ",\n  \"right\": " + hunts_json(run.right) +
         "\n}\n";
}

// --- For a person

std::string counted(std::int64_t number, const std::string& what) {
  return std::to_string(number) + " " + what + (number == 1 ? "" : "s");
}

std::string line(const TimedHunt& hunt) {
  std::string text = "  " + std::string(hunt.mutant->name);
  text.resize(std::max<std::size_t>(text.size() + 2, 32), ' ');
  if (!hunt.kill) return text + "not caught in " + counted(hunt.cases, "case") + "\n";
  const zoo::Kill& kill = *hunt.kill;
  text += "case " + std::to_string(hunt.cases) + ", " + kill.property +
          (kill.hung ? ", by its hanging: " : ": ") + counted(kill.ranks(), "rank") + ", " +
          counted(static_cast<std::int64_t>(kill.steps()), "step") + ", " +
          counted(kill.elements(), "element");
  return text + "\n";
}

std::string report(const MutantsRun& run) {
  std::string text;
  std::string_view kind;
  for (const TimedHunt& hunt : run.wrong) {
    if (hunt.mutant->kind != kind) text += std::string(hunt.mutant->kind) + "\n";
    kind = hunt.mutant->kind;
    text += line(hunt);
  }
  if (!run.right.empty()) text += "right ones, which nothing must catch\n";
  for (const TimedHunt& hunt : run.right) text += line(hunt);
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%.1f s", run.seconds);
  return text + "\n" + std::to_string(killed(run.wrong)) + " of " +
         std::to_string(run.wrong.size()) + " wrong backends caught, half of them within " +
         counted(median_cases(run.wrong), "case") + "; " + std::to_string(small(run.wrong)) +
         " by a case of at most 3 ranks, 2 steps and 8 elements; seed " + std::to_string(run.seed) +
         ", " + seconds + "\n";
}

// How each chosen mutant was caught.
std::string explanations(const MutantsRun& run) {
  std::string text;
  for (const TimedHunt& hunt : run.wrong) {
    if (!hunt.kill) continue;
    text += "\n" + std::string(hunt.mutant->name) + ": " + std::string(hunt.mutant->description) +
            "\n" + kit::explain(hunt.kill->counterexample);
  }
  return text;
}

std::vector<const zoo::Mutant*> chosen_mutants(const std::vector<std::string>& names) {
  std::vector<const zoo::Mutant*> chosen;
  for (const zoo::Mutant& mutant : zoo::mutants()) {
    if (names.empty() || std::ranges::count(names, mutant.name) > 0) chosen.push_back(&mutant);
  }
  for (const std::string& name : names) {
    if (std::ranges::count(zoo::mutants(), name, &zoo::Mutant::name) > 0) continue;
    throw Failure(bad_usage, "--mutant: there is no wrong backend named '" + name + "'");
  }
  return chosen;
}

}  // namespace

int mutants_command(const MutantsArguments& arguments) {
  zoo::HuntOptions options;
  options.cases = parse_number("--cases", arguments.cases, 1);
  std::random_device entropy;
  options.seed = arguments.seed ? parse_seed(*arguments.seed) : entropy();
  if (arguments.json) require_parent_directory(*arguments.json);
  const std::vector<const zoo::Mutant*> chosen = chosen_mutants(arguments.mutants);
  const bool all = arguments.mutants.empty();

  MutantsRun run;
  run.seed = options.seed;
  run.cases = options.cases;
  const Clock::time_point begin = Clock::now();
  {
    kit::KeptWorlds worlds;
    Progress progress("wrong backends", static_cast<std::int64_t>(chosen.size()));
    const auto hunt = [&](const zoo::Mutant& mutant) {
      progress.note("after " + std::string(mutant.name));
      const Clock::time_point started = Clock::now();
      zoo::Hunt found = zoo::hunt(mutant, options, worlds);
      return TimedHunt{std::move(found), seconds_since(started)};
    };
    for (const zoo::Mutant* mutant : chosen) run.wrong.push_back(hunt(*mutant));
    if (all) {
      for (const zoo::Mutant& right : zoo::right_backends()) run.right.push_back(hunt(right));
    }
  }
  run.seconds = seconds_since(begin);
  std::cout << report(run) << (all ? "" : explanations(run)) << std::flush;
  if (arguments.json) write_file(*arguments.json, run_json(run));
  const bool held =
      killed(run.wrong) == static_cast<std::int64_t>(run.wrong.size()) && killed(run.right) == 0;
  return held ? all_held : divergence;
}

}  // namespace lockstep::tool
