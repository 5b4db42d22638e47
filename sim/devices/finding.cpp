#include "finding.hpp"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <utility>

#include "options.hpp"

namespace lockstep::devices {
namespace {

std::atomic<int> count{0};
std::atomic<void (*)()> last_look{nullptr};
// Never destroyed: findings may come while the process ends.
std::mutex& mutex() {
  static std::mutex& one = *new std::mutex;
  return one;
}

const Options& settings() {
  static const Options& options = *new Options(read_options());
  return options;
}

std::string block(const Finding& finding) {
  constexpr std::size_t width = 80;
  std::string text = "== lockstep: " + finding.rule + " ";
  if (text.size() < width) text.append(width - text.size(), '=');
  text += "\n" + finding.call.function;
  if (!finding.call.rank.empty()) text += ", " + finding.call.rank;
  if (!finding.stream.empty()) {
    text += ", " + finding.stream;
  } else if (finding.device >= 0) {
    text += ", device " + std::to_string(finding.device);
  }
  text += "\n  " + finding.what + "\n";
  for (const std::string& detail : finding.details) text += "  " + detail + "\n";
  if (!finding.advice.empty()) text += "  What to do: " + finding.advice + "\n";
  return text + std::string(width, '=') + "\n";
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(c));
      out += escape;
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string json(const Finding& finding) {
  std::string line = "{\"rule\": " + quoted(finding.rule) +
                     ", \"function\": " + quoted(finding.call.function) +
                     ", \"rank\": " + quoted(finding.call.rank) +
                     ", \"device\": " + std::to_string(finding.device) +
                     ", \"stream\": " + quoted(finding.stream) +
                     ", \"what\": " + quoted(finding.what) + ", \"details\": [";
  for (std::size_t i = 0; i < finding.details.size(); ++i) {
    line += (i == 0 ? "" : ", ") + quoted(finding.details[i]);
  }
  return line + "], \"advice\": " + quoted(finding.advice) +
         ", \"process\": " + std::to_string(::getpid()) + "}\n";
}

void write_whole(int file, const std::string& text) {
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = ::write(file, text.data() + done, text.size() - done);
    if (n <= 0) return;
    done += static_cast<std::size_t>(n);
  }
}

// Runs first of all to be run last: after what the program itself registered.
[[gnu::constructor]] void watch_the_exit() {
  ::on_exit(
      [](int status, void*) {
        if (status != 0) return;
        if (void (*const look)() = last_look.load()) look();
        if (count.load() == 0) return;
        std::fflush(nullptr);
        write_whole(STDERR_FILENO, "lockstep: " + std::to_string(count.load()) +
                                       (count.load() == 1 ? " finding" : " findings") +
                                       "; the exit status is " + std::to_string(findings_status) +
                                       "\n");
        ::_exit(findings_status);
      },
      nullptr);
}

}  // namespace

void report(const Finding& finding) {
  constexpr int most_printed = 10;  // of one kind: a loop makes the same mistake in every round
  static auto& seen = *new std::map<std::pair<std::string, std::string>, int>;
  std::lock_guard lock(mutex());
  count.fetch_add(1);
  const int times = ++seen[{finding.rule, finding.call.function}];
  if (times <= most_printed) write_whole(STDERR_FILENO, block(finding));
  if (times == most_printed) {
    write_whole(STDERR_FILENO, "lockstep: further findings of " + finding.rule + " in " +
                                   finding.call.function + " are only counted\n");
  }
  if (!settings().report.empty()) {
    std::ofstream out(settings().report, std::ios::app);
    out << json(finding);
  }
  if (settings().abort) end_with_findings();
}

void end_with_findings() {
  std::fflush(nullptr);
  ::_exit(findings_status);
}

int findings() {
  return count.load();
}

int take_findings() {
  return count.exchange(0);
}

void at_the_very_end(void (*look)()) {
  last_look.store(look);
}

void refuse(const char* function, const char* reason) {
  write_whole(STDERR_FILENO, std::string("lockstep: ") + function + ": " + reason + "\n");
}

}  // namespace lockstep::devices
