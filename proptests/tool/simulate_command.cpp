#include <spawn.h>
#include <sys/wait.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>

#include "arguments.hpp"
#include "commands.hpp"
#include "exit_status.hpp"
#include "files.hpp"
#include "launch.hpp"

extern char** environ;

namespace lockstep::tool {
namespace {

namespace fs = std::filesystem;

// What a program with findings ends with by itself, unless it ends with another failure.
constexpr int findings_status = 86;

// The library of this name: in a build tree where it was built, or where it is installed.
fs::path simulated_library(const char* folder, const char* name) {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  const fs::path built = self.parent_path().parent_path().parent_path() / "sim" / folder / name;
  if (fs::exists(built, error)) return built;
  const fs::path installed = fs::path(LOCKSTEP_SIMULATED_DIRECTORY) / name;
  if (fs::exists(installed, error)) return installed;
  throw Failure(cannot_run_here,
                std::string("there is no ") + name + " of simulated devices, neither " +
                    built.string() + " nor " + installed.string() +
                    "; a build without the headers of the CUDA toolkit 13 and of NCCL has none");
}

void put_in_front(const char* variable, const std::string& value, char separator) {
  const char* before = std::getenv(variable);
  const std::string all = before != nullptr && *before != '\0' ? value + separator + before : value;
  ::setenv(variable, all.c_str(), 1);
}

void choose(const char* variable, const std::optional<std::string>& value) {
  if (value) ::setenv(variable, value->c_str(), 1);
}

pid_t program = 0;
void pass_on(int signal) {
  if (program > 0) ::kill(program, signal);
}

// Runs it to its end; returns its exit status as a shell would.
int run(std::vector<std::string> words) {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const int failed = ::posix_spawnp(&program, argv[0], nullptr, nullptr, argv.data(), environ);
  if (failed != 0) {
    throw Failure(bad_usage, "cannot start " + words[0] + ": " + std::strerror(failed));
  }
  std::signal(SIGTERM, pass_on);
  std::signal(SIGINT, pass_on);
  int ended = 0;
  while (::waitpid(program, &ended, 0) < 0 && errno == EINTR) {
  }
  return WIFSIGNALED(ended) ? 128 + WTERMSIG(ended) : WEXITSTATUS(ended);
}

}  // namespace

int simulate_command(const SimulateArguments& arguments) {
  if (arguments.devices) parse_number("--devices", *arguments.devices, 1);
  if (arguments.timeout) parse_number("--timeout", *arguments.timeout, 1);
  if (arguments.seed) parse_seed(*arguments.seed);
  if (arguments.memory && parse_sizes("--memory", *arguments.memory).size() != 1) {
    throw Failure(bad_usage, "--memory: '" + *arguments.memory + "': one size such as 16Gi");
  }

  const std::string runtime = simulated_library("cudart", "libcudart.so.13").string();
  const std::string nccl = simulated_library("nccl", "libnccl.so.2").string();
  // Both ways: in front of a library that the program's own run path names, and for libraries that
  // are loaded while it runs.
  put_in_front("LD_PRELOAD", runtime + ":" + nccl, ':');
  put_in_front(
      "LD_LIBRARY_PATH",
      fs::path(runtime).parent_path().string() + ":" + fs::path(nccl).parent_path().string(), ':');
  choose("LOCKSTEP_SIM_DEVICES", arguments.devices);
  choose("LOCKSTEP_SIM_SEED", arguments.seed);
  choose("LOCKSTEP_SIM_TIMEOUT", arguments.timeout);
  if (arguments.memory) {
    choose("LOCKSTEP_SIM_MEMORY",
           std::to_string(parse_sizes("--memory", *arguments.memory).front()));
  }
  if (arguments.abort) ::setenv("LOCKSTEP_SIM_ABORT", "1", 1);

  // The findings of all processes that the program starts come together in one file.
  const TemporaryDirectory directory;
  const char* const named = std::getenv("LOCKSTEP_SIM_REPORT");
  const bool is_named = named != nullptr && *named != '\0';
  const std::string report = arguments.json ? fs::absolute(*arguments.json).string()
                             : is_named     ? fs::absolute(named).string()
                                            : directory.file("findings");
  write_file(report, "");
  ::setenv("LOCKSTEP_SIM_REPORT", report.c_str(), 1);

  const int status = run(arguments.program);
  if (status != 0) return status;
  return fs::file_size(report) != 0 ? findings_status : all_held;
}

}  // namespace lockstep::tool
