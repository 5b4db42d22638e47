#include <iostream>
#include <sstream>

#include "backend_library.hpp"
#include "exit_status.hpp"
#include "launch.hpp"

namespace lockstep::tool {
namespace {

// Marks the tool's own lines: a library may greet on standard output.
constexpr std::string_view marker = "lockstep probe: ";

}  // namespace

// Five lines: why it is no backend, its name, sum rule, description, and why it cannot run here.
int probe_command(const std::string& file) {
  kit::BackendInfo info;
  std::string failure;
  try {
    info = load_backend(file)->info();
  } catch (const Failure& error) {
    failure = error.what();
  }
  for (const std::string& line :
       {failure, info.name, std::string(name(info.sum_rule)), info.description, info.unavailable}) {
    std::cout << marker << line << "\n";
  }
  return all_held;
}

kit::BackendInfo ask_backend(const std::filesystem::path& file) {
  const Answer answer = ask_apart({"probe", file.string()});
  std::istringstream text(answer.text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with(marker)) lines.push_back(line.substr(marker.size()));
  }
  if (lines.size() != 5) throw Failure(backend_broke, "it gave no answer");
  if (!lines[0].empty()) throw Failure(bad_usage, lines[0]);
  kit::BackendInfo info;
  info.name = lines[1];
  info.sum_rule = *sum_rule_named(lines[2]);
  info.description = lines[3];
  info.unavailable = lines[4];
  return info;
}

}  // namespace lockstep::tool
