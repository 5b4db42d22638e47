#include <algorithm>
#include <iostream>

#include "backend_library.hpp"
#include "commands.hpp"
#include "exit_status.hpp"

namespace lockstep::tool {

int backends_command() {
  struct Row {
    std::string name, sums, state, file;
  };
  std::vector<Row> rows = {{"name", "sums", "here", "loaded from"}};
  for (const FoundBackend& found : find_backends()) {
    try {
      const kit::BackendInfo info = ask_backend(found.file);
      rows.push_back({found.name, std::string(name(info.sum_rule)),
                      info.unavailable.empty() ? "can run: " + info.description
                                               : "cannot run: " + info.unavailable,
                      found.file.string()});
    } catch (const Failure& failure) {
      rows.push_back(
          {found.name, "", std::string("cannot run: ") + failure.what(), found.file.string()});
    }
  }
  if (rows.size() == 1) {
    std::cout << "No backend was found. They are looked for in the directories of "
                 "LOCKSTEP_BACKEND_PATH,\nbeside the tool, and in " LOCKSTEP_BACKEND_DIRECTORY
                 ".\n";
    return all_held;
  }
  std::size_t widths[3] = {};
  for (const Row& row : rows) {
    widths[0] = std::max(widths[0], row.name.size());
    widths[1] = std::max(widths[1], row.sums.size());
    widths[2] = std::max(widths[2], row.state.size());
  }
  for (const Row& row : rows) {
    const std::string* columns[3] = {&row.name, &row.sums, &row.state};
    for (std::size_t i = 0; i < 3; ++i) {
      std::cout << *columns[i] << std::string(widths[i] - columns[i]->size() + 2, ' ');
    }
    std::cout << row.file << "\n";
  }
  return all_held;
}

}  // namespace lockstep::tool
