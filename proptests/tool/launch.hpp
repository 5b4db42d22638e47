// Running this tool again, under a launcher that gives it processes for ranks.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace lockstep::tool {

// Remembers how the tool was called, for messages that say what to type. In a launched process that
// is what the user typed, not the launcher's own path to the tool.
void remember_command(const char* argv0);
const std::string& command_name();

// True in a process that `launch` started.
bool launched();
// Whether the user watches standard error, directly or through the launcher.
bool watched();

// Runs `launcher` with this executable and `arguments`, and waits. The status comes back through a
// file rather than through the launcher: launchers garnish a nonzero status with pages of their
// own, and one that is missing tells that the processes died. Returns the tool's exit status;
// throws Failure with status 3 when the launcher cannot be started or its processes died.
int launch(const std::vector<std::string>& launcher, const std::vector<std::string>& arguments);

// Runs this executable with `arguments` in a process of its own and waits: for what would not mix
// with what this process has loaded. Returns the exit status; throws Failure with status 3 when the
// process died.
int run_apart(const std::vector<std::string>& arguments);
// The same, and what it wrote to standard output.
struct Answer {
  int status;
  std::string text;
};
Answer ask_apart(const std::vector<std::string>& arguments);

// This process only lends its rank: the verdict is another one's.
void leave_verdict_to_others();
// In a launched process that judges: hands the status to `launch`, and returns what to exit with.
int deliver_status(int status);

// A directory that goes away with everything in it.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace lockstep::tool
