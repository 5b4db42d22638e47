#include "options.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace lockstep::devices {
namespace {

[[noreturn]] void refuse_value(const char* name, const char* value, const char* rule) {
  std::fprintf(stderr, "lockstep: %s is '%s'; it must be %s\n", name, value, rule);
  std::fflush(nullptr);
  ::_exit(2);
}

std::uint64_t number(const char* name, std::uint64_t otherwise, std::uint64_t least,
                     std::uint64_t most, const char* rule) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return otherwise;
  char* end = nullptr;
  errno = 0;
  const unsigned long long value = std::strtoull(text, &end, 10);
  if (errno != 0 || *end != '\0' || *text < '0' || *text > '9' || value < least || value > most) {
    refuse_value(name, text, rule);
  }
  return value;
}

bool flag(const char* name, bool otherwise) {
  return number(name, otherwise ? 1 : 0, 0, 1, "0 or 1") != 0;
}

// Found out now rather than at the first finding, which would then be lost.
std::string file_to_write(const char* name) {
  const char* path = std::getenv(name);
  if (path == nullptr || *path == '\0') return {};
  const int file = ::open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file < 0) {
    const std::string rule = std::string("a file that can be written: ") + std::strerror(errno);
    refuse_value(name, path, rule.c_str());
  }
  ::close(file);
  return path;
}

}  // namespace

Options read_options() {
  Options options;
  options.devices = static_cast<int>(
      number("LOCKSTEP_SIM_DEVICES", 8, 1, 1024, "a number of devices from 1 to 1024"));
  options.seed = number("LOCKSTEP_SIM_SEED", 0, 0, UINT64_MAX, "a number of 64 bits");
  options.memory = number("LOCKSTEP_SIM_MEMORY", options.memory, std::size_t{1} << 20,
                          std::size_t{1} << 40, "a number of bytes from 1048576 to 2^40");
  options.timeout = std::chrono::seconds(
      number("LOCKSTEP_SIM_TIMEOUT", 30, 1, 1'000'000, "a number of seconds from 1 on"));
  options.abort = flag("LOCKSTEP_SIM_ABORT", false);
  options.guard = flag("LOCKSTEP_SIM_GUARD", true);
  options.uninitialized = flag("LOCKSTEP_SIM_UNINITIALIZED", true);
  options.report = file_to_write("LOCKSTEP_SIM_REPORT");
  return options;
}

}  // namespace lockstep::devices
