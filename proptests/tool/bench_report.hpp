// What a benchmark found, for a person and for machines.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/dtype.hpp>
#include <lockstep/operation.hpp>
#include <lockstep/sum_rule.hpp>

namespace lockstep::bench {

// One kind of call.
struct Cell {
  Operation operation{};
  int ranks = 1;
  // Of the tensor that each rank passes, and, for an exchange, sends in equal parts to all.
  std::int64_t bytes_per_rank = 0;
  DType dtype = DType::f32;
};

// How long it took.
struct Measurement {
  Cell cell;
  std::optional<SumRule> sum_rule;  // of operations that sum
  std::string backend;
  std::vector<double> seconds;  // of one call, once per run; at least one

  double median() const;
  double least() const;
  double most() const;
  // ranks * bytes_per_rank over the median time: of an all-gather and an exchange what a backend
  // with one memory must move, of a sum what it must read, of a broadcast what the ranks hold in
  // the end. In bytes a second.
  double rate() const;
};

struct Report {
  std::optional<double> copy_bandwidth;  // bytes a second
  std::optional<double> thread_switch;   // seconds; see meeting_limits.hpp
  std::optional<double> core_meeting;    // seconds
  std::int64_t peak_rss_bytes = 0;       // of the process that played rank 0
  std::vector<Measurement> measurements;
};

// One line for each measurement, under a heading.
std::string table(const Report& report);

// One object: `copy_gigabytes_per_second`, `thread_switch_us`, `core_meeting_us` (each null when it
// was not measured), `peak_rss_bytes`, and `results`, a list of `op`, `ranks`, `bytes_per_rank`,
// `dtype`, `sum_rule` (null for what does not sum), `backend`, `runs`, `median_us`, `min_us`,
// `max_us`, `gigabytes_per_second` (10^9 bytes) and `fraction_of_copy_bandwidth` (null when it was
// not measured).
std::string bench_json(const Report& report);

// For the way from launched processes to the one that launched them: one measurement per line.
std::string write_lines(const Report& report);
// Adds what write_lines wrote.
void read_lines(const std::string& text, Report& report);

// The largest resident set that this process has had, in bytes.
std::int64_t peak_rss_bytes();

}  // namespace lockstep::bench
