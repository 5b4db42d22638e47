#include <algorithm>
#include <iostream>

#include <lockstep/kit/case_file.hpp>
#include <lockstep/kit/judge.hpp>
#include <lockstep/kit/verification.hpp>

#include "commands.hpp"
#include "exit_status.hpp"
#include "files.hpp"
#include "launch.hpp"
#include "memory_limit.hpp"
#include "session.hpp"
#include "watchdog.hpp"

namespace lockstep::tool {
namespace {

struct NamedCase {
  std::string file;
  kit::Case content;
};

// What a case needs and a backend has not, in words; empty when it can run it.
std::string not_offered(const kit::Case& c, const kit::BackendInfo& info) {
  for (const kit::Step& step : c.steps) {
    if (!info.offers_groups && !step.group.empty()) return "sub-communicators";
    for (std::size_t member = 0; member < step.members(); ++member) {
      if (!info.offers_departure && !step.inputs[member]) return "ranks that leave";
    }
    for (const kit::Departure departure : step.departures) {
      if (!info.offers_throws && departure == kit::Departure::throws) return "ranks that throw";
      if (!info.offers_stalls && departure == kit::Departure::stalls) return "ranks that stall";
    }
  }
  return "";
}

// Says how the file's own expectation differs from the oracle, if it does.
bool expects_right(const NamedCase& replayed) {
  const auto wrong = kit::judge_expected(replayed.content);
  if (wrong) {
    std::cout << replayed.file << ": the file expects something else than the oracle\n"
              << wrong->explanation << std::endl;
  }
  return !wrong;
}

// What was received when the case was recorded. True when it holds.
bool judge_recorded(const NamedCase& replayed) {
  bool holds = expects_right(replayed);
  const std::string& name = replayed.content.recorded->name;
  if (const auto wrong = kit::judge_received(replayed.content)) {
    std::cout << replayed.file << ": " << name << " differed from the oracle when it was recorded ("
              << wrong->aspect << ")\n"
              << wrong->explanation << std::endl;
    holds = false;
  }
  if (holds) std::cout << replayed.file << ": holds, as recorded from " << name << std::endl;
  return holds;
}

// True when it holds.
bool replay(const NamedCase& replayed, kit::Backend& backend) {
  const kit::Case& c = replayed.content;
  bool holds = expects_right(replayed);
  if (const auto wrong = kit::run_and_judge(backend, c)) {
    std::cout << replayed.file << ": " << backend.info().name << " differs from the oracle ("
              << wrong->aspect << ")\n"
              << wrong->explanation << std::endl;
    holds = false;
  }
  if (holds) {
    std::cout << replayed.file << ": holds on " << backend.info().name << std::endl;
  }
  return holds;
}

}  // namespace

int replay_command(const ReplayArguments& arguments) {
  const double timeout = parse_seconds("--timeout", arguments.timeout);
  limit_memory();
  std::vector<NamedCase> cases;
  std::vector<std::string> to_run;
  int most_ranks = 1;
  bool all = true;
  for (const std::string& file : arguments.cases) {
    NamedCase named{file, kit::read_case(read_file(file), file)};
    if (named.content.recorded && !arguments.backend) {
      all = judge_recorded(named) && all;
      continue;
    }
    most_ranks = std::max(most_ranks, named.content.world);
    to_run.push_back(file);
    cases.push_back(std::move(named));
  }
  if (cases.empty()) return all ? all_held : divergence;

  const std::string backend = arguments.backend.value_or("sim");
  Session session = open_session(backend, arguments.sum_rule);
  if (session.needs_launcher()) {
    require_ranks(session, most_ranks);
    std::vector<std::string> words = {"replay", "--backend", backend, "--timeout",
                                      arguments.timeout};
    if (arguments.sum_rule) {
      words.push_back("--sum-rule");
      words.push_back(*arguments.sum_rule);
    }
    words.insert(words.end(), to_run.begin(), to_run.end());
    return launch(session.backend->launcher(most_ranks), words);
  }
  if (const std::optional<int> served = session.serve()) return *served;
  require_ranks(session, most_ranks);
  const kit::BackendInfo info = session.info();
  const NamedCase* running = nullptr;
  kit::Watchdog watchdog(timeout, [&](const kit::Watchdog::LastWords& words) {
    std::cerr << "lockstep: backend " << backend << " " << words.before << " " << running->file
              << words.after << std::endl;
    deliver_status(backend_broke);
  });
  bool any = false;
  for (const NamedCase& replayed : cases) {
    if (const std::string needed = not_offered(replayed.content, info); !needed.empty()) {
      std::cout << replayed.file << ": not offered by " << info.name << ": " << needed << std::endl;
      continue;
    }
    any = true;
    running = &replayed;
    watchdog.arm(replayed.content);
    try {
      all = replay(replayed, *session.backend) && all;
    } catch (const InvalidArgument& error) {
      throw Failure(bad_usage, replayed.file + ": " + error.what());
    }
    watchdog.disarm();
  }
  if (!any) throw Failure(cannot_run_here, "backend " + info.name + " can run none of the cases");
  return all ? all_held : divergence;
}

}  // namespace lockstep::tool
