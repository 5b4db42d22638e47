// A backend, ready to run cases.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include <lockstep/kit/backend.hpp>

#include "arguments.hpp"

namespace lockstep::tool {

struct Session {
  std::string given;  // after --backend: a name or a path
  std::unique_ptr<kit::Backend> backend;
  std::optional<std::string> sum_rule;  // as given on the command line

  kit::BackendInfo info() const { return backend->info(); }
  // Whether its ranks are processes that this process does not have.
  bool needs_launcher() const;
  // In a process that only lends its rank: until the judge is done, then the exit status.
  std::optional<int> serve();
};

// Loads and configures it. Throws Failure: status 77 with the reason when it cannot run here, 2
// when it cannot follow the sum rule.
Session open_session(const std::string& given, const std::optional<std::string>& sum_rule);

// What `verify` uses when nothing is said: few processes, more threads.
RankRange default_ranks(const Session& session);

// Throws Failure, status 2, when the backend's world is smaller here.
void require_ranks(const Session& session, int most);

// The command that replays a case file on this backend, as a shell takes it.
std::string replay_command(const Session& session, const std::string& case_file);

}  // namespace lockstep::tool
