#include <iostream>
#include <new>

#include <lockstep/kit/case_file.hpp>
#include <lockstep/kit/program_oracle.hpp>

#include "commands.hpp"
#include "exit_status.hpp"
#include "files.hpp"
#include "memory_limit.hpp"
#include "report_json.hpp"

namespace lockstep::tool {
namespace {

// One case per line in, one per line out: also for a bad line, so that lines stay aligned for a
// program that asks; each is flushed, so that it may wait for the answer before it asks again.
int answer_lines() {
  int status = all_held;
  std::string line;
  for (std::size_t number = 1; std::getline(std::cin, line); ++number) {
    const std::string name = "line " + std::to_string(number);
    try {
      std::cout << kit::write_case(kit::with_expected(kit::read_case(line, name)),
                                   kit::Layout::one_line)
                << std::endl;
      continue;
    } catch (const std::bad_alloc&) {
      line = name + ": out of memory";
    } catch (const std::exception& error) {
      line = error.what();
      if (!line.starts_with(name)) line.insert(0, name + ": ");
    }
    std::cerr << "lockstep: " << line << std::endl;
    std::cout << "{\"error\": " << json_string(line) << "}" << std::endl;
    status = bad_usage;
  }
  return status;
}

}  // namespace

int oracle_command(const OracleArguments& arguments) {
  limit_memory();
  if (arguments.file == "-") return answer_lines();
  const kit::Case c = kit::read_case(read_file(arguments.file), arguments.file);
  try {
    std::cout << kit::write_case(kit::with_expected(c)) << std::flush;
  } catch (const Error& error) {
    throw Failure(bad_usage, arguments.file + ": " + error.what());
  }
  return all_held;
}

}  // namespace lockstep::tool
