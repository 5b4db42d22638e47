#include <algorithm>
#include <iostream>

#include <lockstep/kit/case_file.hpp>
#include <lockstep/kit/program_oracle.hpp>
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

// What the file expects as if a backend had answered it; where it says nothing, what the oracle
// does.
kit::Transcript stated_outcomes(const kit::Case& c) {
  kit::Transcript stated = kit::expected_transcript(c, c.sum_rule);
  for (std::size_t s = 0; s < c.steps.size(); ++s) {
    if (!c.steps[s].expected.empty()) stated[s] = c.steps[s].expected;
  }
  return stated;
}

// True when it holds.
bool replay(const NamedCase& replayed, kit::Backend& backend) {
  const kit::Case& c = replayed.content;
  const bool states =
      std::ranges::any_of(c.steps, [](const kit::Step& step) { return !step.expected.empty(); });
  bool holds = true;
  if (states) {
    if (const auto wrong = kit::judge(c, stated_outcomes(c), c.sum_rule)) {
      std::cout << replayed.file << ": the file expects something else than the oracle\n"
                << wrong->explanation << std::endl;
      holds = false;
    }
  }
  if (const auto wrong = kit::run_and_judge(backend, c)) {
    std::cout << replayed.file << ": " << backend.info().name << " differs from the oracle ("
              << wrong->aspect << ")\n"
              << wrong->explanation << std::endl;
    holds = false;
  }
  if (holds) std::cout << replayed.file << ": holds" << std::endl;
  return holds;
}

}  // namespace

int replay_command(const ReplayArguments& arguments) {
  const double timeout = parse_seconds("--timeout", arguments.timeout);
  limit_memory();
  std::vector<NamedCase> cases;
  int most_ranks = 1;
  bool groups = false;
  for (const std::string& file : arguments.cases) {
    cases.push_back({file, kit::read_case(read_file(file), file)});
    const kit::Case& c = cases.back().content;
    most_ranks = std::max(most_ranks, c.world);
    for (const kit::Step& step : c.steps) groups = groups || !step.group.empty();
  }

  Session session = open_session(arguments.backend, arguments.sum_rule);
  if (session.needs_launcher()) {
    require_ranks(session, most_ranks);
    std::vector<std::string> words = {"replay", "--backend", arguments.backend, "--timeout",
                                      arguments.timeout};
    if (arguments.sum_rule) {
      words.push_back("--sum-rule");
      words.push_back(*arguments.sum_rule);
    }
    words.insert(words.end(), arguments.cases.begin(), arguments.cases.end());
    return launch(session.backend->launcher(most_ranks), words);
  }
  if (const std::optional<int> served = session.serve()) return *served;
  require_ranks(session, most_ranks);
  if (groups && !session.info().offers_groups) {
    throw Failure(cannot_run_here, "backend " + arguments.backend +
                                       " has no sub-communicators, and a case needs them");
  }

  const NamedCase* running = nullptr;
  Watchdog watchdog(timeout, [&] {
    std::cerr << "lockstep: backend " << arguments.backend << " did not finish " << running->file
              << " within " << arguments.timeout << " s" << std::endl;
    deliver_status(backend_broke);
  });
  bool all = true;
  for (const NamedCase& replayed : cases) {
    running = &replayed;
    watchdog.arm();
    all = replay(replayed, *session.backend) && all;
    watchdog.disarm();
  }
  return all ? all_held : divergence;
}

}  // namespace lockstep::tool
