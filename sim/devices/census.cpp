#include "census.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <unordered_set>

namespace lockstep::devices {
namespace {

struct Exempt {
  std::mutex mutex;
  std::unordered_set<int> threads;
};

Exempt& exempt() {
  static Exempt& one = *new Exempt;
  return one;
}

// The first line of a file about a thread; empty when there is none.
std::string_view first_line(int thread, const char* name, char (&buffer)[512]) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/%s", thread, name);
  const int file = ::open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return {};
  const ssize_t n = ::read(file, buffer, sizeof buffer);
  ::close(file);
  return n > 0 ? std::string_view(buffer, static_cast<std::size_t>(n)) : std::string_view();
}

// The state letter of a thread: R, S, D, ... It follows the name, which is in parentheses.
char state_of(int thread) {
  char buffer[512];
  const std::string_view line = first_line(thread, "stat", buffer);
  const std::size_t name_end = line.rfind(')');
  return name_end == std::string_view::npos || name_end + 2 >= line.size() ? 'X'
                                                                           : line[name_end + 2];
}

// "202 0x<address> 0x<operation> 0x<value> 0x<timeout> ..." in a system call, "running" outside.
Idleness idleness_of(int thread) {
  const char state = state_of(thread);
  if (state == 'X' || state == 'Z') return Idleness::asleep;  // on its way out
  if (state != 'S') return Idleness::busy;
  char buffer[512];
  const std::string_view line = first_line(thread, "syscall", buffer);
  if (line.empty() || line.starts_with("running")) return Idleness::busy;
  const std::string text(line);
  long number = -1;
  unsigned long long arguments[4] = {};
  if (std::sscanf(text.c_str(), "%ld %llx %llx %llx %llx", &number, &arguments[0], &arguments[1],
                  &arguments[2], &arguments[3]) < 5) {
    return Idleness::busy;
  }
  return number == SYS_futex && arguments[3] == 0 ? Idleness::asleep : Idleness::resting;
}

// Threads that are older than the program's own.
[[gnu::constructor]] void note_early_threads() {
  for (const int thread : threads_of_process()) {
    if (thread != ::getpid()) exempt_thread(thread);
  }
}

}  // namespace

std::vector<int> threads_of_process() {
  std::vector<int> threads;
  DIR* directory = ::opendir("/proc/self/task");
  if (directory == nullptr) return threads;
  while (const dirent* entry = ::readdir(directory)) {
    if (const int thread = std::atoi(entry->d_name); thread > 0) threads.push_back(thread);
  }
  ::closedir(directory);
  return threads;
}

void exempt_others_than(const std::vector<int>& threads) {
  for (const int thread : threads_of_process()) {
    if (std::find(threads.begin(), threads.end(), thread) == threads.end()) exempt_thread(thread);
  }
}

int thread_id() {
  thread_local const int id = static_cast<int>(::syscall(SYS_gettid));
  return id;
}

void exempt_thread(int thread) {
  std::lock_guard lock(exempt().mutex);
  exempt().threads.insert(thread);
}

Idleness others_idle(const std::vector<int>& known) {
  Idleness all = Idleness::asleep;
  const std::vector<int> threads = threads_of_process();
  if (threads.empty()) return Idleness::busy;
  for (const int thread : threads) {
    if (std::find(known.begin(), known.end(), thread) != known.end()) continue;
    {
      std::lock_guard lock(exempt().mutex);
      if (exempt().threads.contains(thread)) continue;
    }
    all = std::max(all, idleness_of(thread));
    if (all == Idleness::busy) break;
  }
  return all;
}

}  // namespace lockstep::devices
