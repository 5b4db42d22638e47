#include <chrono>
#include <filesystem>
#include <iostream>
#include <memory>
#include <mutex>
#include <random>

#include <lockstep/kit/case_file.hpp>
#include <lockstep/kit/program_oracle.hpp>
#include <lockstep/kit/verification.hpp>

#include "backend_library.hpp"
#include "card.hpp"
#include "commands.hpp"
#include "exit_status.hpp"
#include "files.hpp"
#include "launch.hpp"
#include "progress.hpp"
#include "report_json.hpp"
#include "session.hpp"
#include "watchdog.hpp"

namespace lockstep::tool {
namespace {

// What the command line asks for, checked.
struct Plan {
  std::optional<RankRange> ranks;
  std::int64_t cases;
  std::uint64_t seed;
  double timeout;
};

std::string case_path(const VerifyArguments& arguments, const std::string& property,
                      std::uint64_t seed, std::uint64_t index) {
  return arguments.out + "/lockstep-" + property + "-seed" + std::to_string(seed) + "-" +
         std::to_string(index) + ".json";
}

// Progress on the terminal, and an end to a backend that hangs.
class Overseer final : public kit::VerifyObserver {
 public:
  Overseer(const VerifyArguments& arguments, const Session& session, const Plan& plan)
      : arguments_(arguments),
        session_(session),
        plan_(plan),
        progress_(session.given, plan.cases),
        watchdog_(plan.timeout,
                  [this](const kit::Watchdog::LastWords& words) { report_end(words); }) {}

  void starting(const kit::PropertyReport& property, std::uint64_t index,
                const kit::Case& c) override {
    property_ = &property;
    index_ = index;
    case_ = &c;
    watchdog_.arm(c);
  }

  void finished() override {
    watchdog_.disarm();
    const bool shrinking = property_->verdict == kit::PropertyReport::Verdict::broken;
    if (shrinking) {
      progress_.note("simplifying a case that broke " + property_->name);
    } else {
      progress_.advance();
    }
  }

  void clear() { progress_.clear(); }

 private:
  // Runs while the case is still being run, so it is there to be read.
  void report_end(const kit::Watchdog::LastWords& words) {
    const std::string path = case_path(arguments_, property_->name, plan_.seed, index_);
    std::string where;
    try {
      write_file(path, kit::write_case(kit::with_expected(*case_)));
      where =
          "; the case is in " + path + ", and this replays it:\n" + replay_command(session_, path);
    } catch (const std::exception& error) {
      where = std::string("; the case could not be written: ") + error.what();
    }
    std::cerr << "\nlockstep: backend " << session_.given << " " << words.before << " case "
              << index_ << " of " << property_->name << words.after << where << std::endl;
    try {
      deliver_status(backend_broke);
    } catch (const std::exception&) {
      // The launcher's side will notice that there is no verdict.
    }
  }

  const VerifyArguments& arguments_;
  const Session& session_;
  const Plan& plan_;
  Progress progress_;
  const kit::PropertyReport* property_ = nullptr;
  std::uint64_t index_ = 0;
  const kit::Case* case_ = nullptr;
  kit::Watchdog watchdog_;  // last: its thread looks at the others
};

// The same command for one backend in another process.
std::vector<std::string> arguments_for(const VerifyArguments& arguments, const Plan& plan,
                                       const std::string& backend,
                                       const std::optional<RankRange>& ranks,
                                       const std::string& json) {
  std::vector<std::string> words = {"verify",
                                    "--backend",
                                    backend,
                                    "--cases",
                                    arguments.cases,
                                    "--seed",
                                    std::to_string(plan.seed),
                                    "--out",
                                    arguments.out,
                                    "--timeout",
                                    arguments.timeout,
                                    "--json",
                                    json};
  if (ranks) {
    words.push_back("--ranks");
    words.push_back(std::to_string(ranks->fewest) + ".." + std::to_string(ranks->most));
  }
  for (const std::string& property : arguments.properties) {
    words.push_back("--property");
    words.push_back(property);
  }
  if (arguments.sum_rule) {
    words.push_back("--sum-rule");
    words.push_back(*arguments.sum_rule);
  }
  return words;
}

struct Result {
  int status;
  std::string json;  // nothing in a process that only lent its rank
};

Result verify_here(const VerifyArguments& arguments, const Plan& plan, Session& session,
                   const RankRange& ranks) {
  require_ranks(session, ranks.most);
  kit::VerifyOptions options;
  options.fewest_ranks = ranks.fewest;
  options.most_ranks = ranks.most;
  options.seed = plan.seed;
  options.cases = plan.cases;
  options.properties = arguments.properties;

  VerifyRun run;
  const auto begin = std::chrono::steady_clock::now();
  {
    Overseer overseer(arguments, session, plan);
    run.report = kit::verify(*session.backend, options, &overseer);
    overseer.clear();
  }
  run.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  run.backend = session.info().name;
  run.sum_rule = session.info().sum_rule;
  run.seed = plan.seed;
  run.ranks = ranks;

  std::string explanations;
  std::string commands;
  for (const kit::PropertyReport& property : run.report.properties) {
    run.counterexamples.emplace_back();
    if (!property.counterexample) continue;
    const kit::Counterexample& found = *property.counterexample;
    const std::string path = case_path(arguments, property.name, plan.seed, found.index);
    write_file(path, kit::write_case(found.shrunk));
    run.counterexamples.back() = path;
    explanations += "\nBroken: " + property.clause + "\n" + kit::explain(found);
    commands += replay_command(session, path) + "\n";
  }
  std::cout << card(run) << explanations;
  // The last thing that a reader sees is what to type next.
  if (!commands.empty()) std::cout << "\nTo see it again:\n" << commands;
  std::cout << std::flush;
  return {run.report.holds() ? all_held : divergence, report_json(run)};
}

Result verify_backend(const VerifyArguments& arguments, const Plan& plan,
                      const std::string& given) {
  Session session = open_session(given, arguments.sum_rule);
  if (session.needs_launcher()) {
    const RankRange ranks = plan.ranks.value_or(default_ranks(session));
    require_ranks(session, ranks.most);
    const TemporaryDirectory directory;
    const std::string json = directory.file("report.json");
    const std::vector<std::string> launcher = session.backend->launcher(ranks.most);
    const int status = launch(launcher, arguments_for(arguments, plan, given, ranks, json));
    const bool verdict = status == all_held || status == divergence;
    return {status, verdict ? read_file(json) : failure_json(given, "see its messages")};
  }
  if (const std::optional<int> served = session.serve()) return {*served, ""};
  return verify_here(arguments, plan, session, plan.ranks.value_or(default_ranks(session)));
}

// The names of all backends that are here and can run; says why of the others.
std::vector<std::string> runnable_backends() {
  std::vector<std::string> names;
  for (const FoundBackend& found : find_backends()) {
    try {
      const std::string reason = ask_backend(found.file).unavailable;
      if (reason.empty()) {
        names.push_back(found.name);
      } else {
        std::cerr << "lockstep: " << found.name << " is left out: " << reason << std::endl;
      }
    } catch (const Failure& failure) {
      std::cerr << "lockstep: " << found.name << " is left out: " << failure.what() << std::endl;
    }
  }
  if (names.empty())
    throw Failure(cannot_run_here, "no backend can run here; see lockstep backends");
  return names;
}

void write_report(const VerifyArguments& arguments, const std::string& json) {
  if (arguments.json && !json.empty()) write_file(*arguments.json, json);
}

// One backend after the other, each in a process of its own, since not all can be loaded into one;
// a failure of one does not keep the others from their verdicts.
int verify_several(const VerifyArguments& arguments, const Plan& plan,
                   const std::vector<std::string>& backends) {
  std::vector<std::string> reports;
  int worst = all_held;
  for (const std::string& given : backends) {
    if (given != backends.front()) std::cout << std::endl;
    const TemporaryDirectory directory;
    const std::string json = directory.file("report.json");
    try {
      worst = std::max(worst, run_apart(arguments_for(arguments, plan, given, plan.ranks, json)));
    } catch (const Failure& failure) {
      std::cerr << "lockstep: backend " << given << " broke: " << failure.what() << std::endl;
      worst = std::max<int>(worst, failure.status());
    }
    const bool reported = std::filesystem::exists(json);
    reports.push_back(reported ? read_file(json) : failure_json(given, "see its messages"));
  }
  write_report(arguments, list_json(reports));
  return worst;
}

}  // namespace

int verify_command(const VerifyArguments& arguments) {
  Plan plan;
  if (arguments.ranks) plan.ranks = parse_ranks(*arguments.ranks);
  plan.cases = parse_number("--cases", arguments.cases, 1);
  std::random_device entropy;
  plan.seed = arguments.seed ? parse_seed(*arguments.seed) : entropy();
  plan.timeout = parse_seconds("--timeout", arguments.timeout);
  kit::require_properties(arguments.properties);
  // Found out now rather than after the work.
  require_directory(arguments.out);
  if (arguments.json) require_parent_directory(*arguments.json);

  const std::vector<std::string> backends =
      arguments.backends.empty() ? runnable_backends() : arguments.backends;
  if (backends.size() > 1) return verify_several(arguments, plan, backends);
  Result result = verify_backend(arguments, plan, backends.front());
  write_report(arguments, result.json);
  return result.status;
}

}  // namespace lockstep::tool
