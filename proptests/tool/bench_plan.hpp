// What a benchmark is to measure: the command line, checked.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench_measure.hpp"
#include "bench_report.hpp"

namespace lockstep::bench {

// As on the command line.
struct Arguments {
  std::string ranks = "8";
  std::string bytes = "64,16Mi";
  std::optional<std::string> operations;  // all when absent
  std::string dtypes = "f32,i32";
  std::string data = "normal";
  std::string runs = "5";
  std::string seconds = "0.2";
};

struct Plan {
  std::vector<Cell> cells;  // those of one world size after one another
  Method method;
};

// Every operation with every dtype of its family, in every world, with every size. Sizes are
// rounded up to whole elements, and to equal parts for every rank where an operation divides the
// rows. Throws Failure, status 2, for nonsense and when nothing is left to measure.
Plan plan(const Arguments& arguments);

}  // namespace lockstep::bench
