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

// Waits for launcher_process, and passes on what asks this one to end. Returns how it ended.
int wait_for_child() {
  std::signal(SIGTERM, pass_on);
  std::signal(SIGINT, pass_on);
  int ended = 0;
  while (::waitpid(launcher_process, &ended, 0) < 0 && errno == EINTR) {
  }
  std::signal(SIGTERM, SIG_DFL);
  std::signal(SIGINT, SIG_DFL);
  launcher_process = 0;
  return ended;
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> list;
  for (std::string& word : words) list.push_back(word.data());
  list.push_back(nullptr);
  return list;
}

std::string executable() {
  return std::filesystem::read_symlink("/proc/self/exe").string();
}

// Starts this executable under the name that the user typed, with standard output going to
// `output`.
void spawn_self(const std::vector<std::string>& arguments, int output) {
  std::vector<std::string> words = {command_name()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  const std::vector<char*> argv = pointers(words);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  if (output != STDOUT_FILENO) {
    ::posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  }
  const int failed = ::posix_spawn(&launcher_process, executable().c_str(), &actions, nullptr,
                                   argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) {
    throw Failure(backend_broke, std::string("cannot start a process: ") + std::strerror(failed));
  }
}

int status_of(int ended) {
  if (WIFEXITED(ended)) return WEXITSTATUS(ended);
  throw Failure(backend_broke,
                "its process was ended by signal " + std::to_string(WTERMSIG(ended)));
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
  words.push_back(executable());
  words.insert(words.end(), arguments.begin(), arguments.end());
  const std::vector<char*> argv = pointers(words);

  const int failed =
      ::posix_spawnp(&launcher_process, argv[0], nullptr, nullptr, argv.data(), environ);
  ::unsetenv(status_variable);
  ::unsetenv(command_variable);
  ::unsetenv(watched_variable);
  if (failed != 0) {
    throw Failure(backend_broke, "cannot start " + words[0] + ": " + std::strerror(failed));
  }
  const int ended = wait_for_child();

  std::ifstream in(status_file);
  if (int status = 0; in >> status) return status;
  const std::string how = WIFSIGNALED(ended) ? "by signal " + std::to_string(WTERMSIG(ended))
                                             : "with status " + std::to_string(WEXITSTATUS(ended));
  throw Failure(backend_broke, words[0] + " ended " + how +
                                   " before a verdict: a process died, or none could start");
}

int run_apart(const std::vector<std::string>& arguments) {
  spawn_self(arguments, STDOUT_FILENO);
  return status_of(wait_for_child());
}

Answer ask_apart(const std::vector<std::string>& arguments) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    throw Failure(backend_broke, std::string("no pipe: ") + std::strerror(errno));
  }
  try {
    spawn_self(arguments, ends[1]);
  } catch (...) {
    ::close(ends[0]);
    ::close(ends[1]);
    throw;
  }
  ::close(ends[1]);
  Answer answer{};
  char buffer[4096];
  for (ssize_t got; (got = ::read(ends[0], buffer, sizeof buffer)) != 0;) {
    if (got > 0) answer.text.append(buffer, static_cast<std::size_t>(got));
    if (got < 0 && errno != EINTR) break;
  }
  ::close(ends[0]);
  answer.status = status_of(wait_for_child());
  return answer;
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
