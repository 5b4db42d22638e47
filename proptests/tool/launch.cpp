#include "launch.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "exit_status.hpp"
#include "files.hpp"

extern char** environ;

namespace lockstep::tool {
namespace {

// Set for launched processes: the file for the status, what the user typed, who watches. The first
// also keeps a launcher that gives no world from launching without end.
constexpr const char* status_variable = "LOCKSTEP_STATUS_FILE";
constexpr const char* command_variable = "LOCKSTEP_COMMAND";
constexpr const char* watched_variable = "LOCKSTEP_WATCHED";

std::string& stored_command() {
  static std::string command = "lockstep";
  return command;
}

pid_t launcher_process = 0;
bool judges = true;

// A launcher ends its processes when it is asked to end; nothing else would.
void pass_on(int signal) {
  if (launcher_process > 0) ::kill(launcher_process, signal);
}

}  // namespace

void remember_command(const char* argv0) {
  const char* typed = std::getenv(command_variable);
  stored_command() = typed != nullptr ? typed : argv0;
}

const std::string& command_name() {
  return stored_command();
}

bool launched() {
  return std::getenv(status_variable) != nullptr;
}

bool watched() {
  return ::isatty(STDERR_FILENO) == 1 || std::getenv(watched_variable) != nullptr;
}

int launch(const std::vector<std::string>& launcher, const std::vector<std::string>& arguments) {
  const TemporaryDirectory directory;
  const std::string status_file = directory.file("status");
  ::setenv(status_variable, status_file.c_str(), 1);
  ::setenv(command_variable, command_name().c_str(), 1);
  if (watched()) ::setenv(watched_variable, "1", 1);

  std::vector<std::string> words = launcher;
  words.push_back(std::filesystem::read_symlink("/proc/self/exe").string());
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);

  const int failed =
      ::posix_spawnp(&launcher_process, argv[0], nullptr, nullptr, argv.data(), environ);
  ::unsetenv(status_variable);
  ::unsetenv(command_variable);
  ::unsetenv(watched_variable);
  if (failed != 0) {
    throw Failure(backend_broke, "cannot start " + words[0] + ": " + std::strerror(failed));
  }
  std::signal(SIGTERM, pass_on);
  std::signal(SIGINT, pass_on);
  int ended = 0;
  while (::waitpid(launcher_process, &ended, 0) < 0 && errno == EINTR) {
  }
  std::signal(SIGTERM, SIG_DFL);
  std::signal(SIGINT, SIG_DFL);
  launcher_process = 0;

  std::ifstream in(status_file);
  if (int status = 0; in >> status) return status;
  const std::string how = WIFSIGNALED(ended) ? "by signal " + std::to_string(WTERMSIG(ended))
                                             : "with status " + std::to_string(WEXITSTATUS(ended));
  throw Failure(backend_broke, words[0] + " ended " + how +
                                   " before a verdict: a process died, or none could start");
}

void leave_verdict_to_others() {
  judges = false;
}

int deliver_status(int status) {
  const char* file = std::getenv(status_variable);
  if (file == nullptr || !judges) return status;
  write_file(file, std::to_string(status) + "\n");
  return 0;
}

TemporaryDirectory::TemporaryDirectory() {
  path_ = (std::filesystem::temp_directory_path() / "lockstep-XXXXXX").string();
  if (::mkdtemp(path_.data()) == nullptr) {
    throw Failure(bad_usage, "cannot make a directory like " + path_ + ": " + std::strerror(errno));
  }
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace lockstep::tool
