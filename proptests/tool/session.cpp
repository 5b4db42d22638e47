#include "session.hpp"

#include <algorithm>

#include "backend_library.hpp"
#include "exit_status.hpp"
#include "launch.hpp"

namespace lockstep::tool {

bool Session::needs_launcher() const {
  return !launched() && !backend->launcher(1).empty();
}

std::optional<int> Session::serve() {
  const std::optional<int> status = backend->serve();
  if (status) leave_verdict_to_others();
  return status;
}

Session open_session(const std::string& given, const std::optional<std::string>& sum_rule) {
  kit::BackendOptions options;
  if (sum_rule) {
    options.sum_rule = sum_rule_named(*sum_rule);
    if (!options.sum_rule) {
      throw Failure(bad_usage,
                    "--sum-rule: '" + *sum_rule + "': not one of exact, rank_order, unspecified");
    }
  }
  Session session{given, load_backend(backend_file(given)), sum_rule};
  const std::string reason = session.info().unavailable;
  if (!reason.empty()) {
    throw Failure(cannot_run_here, "backend " + given + " cannot run here: " + reason);
  }
  try {
    session.backend->configure(options);
  } catch (const InvalidArgument& error) {
    throw Failure(bad_usage, "backend " + given + ": " + error.what());
  }
  if (options.sum_rule && session.info().sum_rule != *options.sum_rule) {
    throw Failure(bad_usage, "backend " + given + ": its sums are " +
                                 std::string(name(session.info().sum_rule)) + ", not " + *sum_rule +
                                 " as --sum-rule asks");
  }
  return session;
}

RankRange default_ranks(const Session& session) {
  const int usual = session.needs_launcher() ? 4 : 64;
  return {1, std::min(usual, session.info().most_ranks)};
}

void require_ranks(const Session& session, int most) {
  const int available = session.info().most_ranks;
  if (most <= available) return;
  throw Failure(bad_usage, "backend " + session.given + " has worlds of " +
                               std::to_string(available) + " ranks at most here, not the " +
                               std::to_string(most) + " asked for");
}

std::string replay_command(const Session& session, const std::string& case_file) {
  std::string command =
      shell_quoted(command_name()) + " replay --backend " + shell_quoted(session.given);
  if (session.sum_rule) command += " --sum-rule " + *session.sum_rule;
  return command + " " + shell_quoted(case_file);
}

}  // namespace lockstep::tool
