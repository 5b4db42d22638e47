#include <algorithm>
#include <exception>
#include <iostream>
#include <iterator>
#include <mutex>
#include <optional>

#include "arguments.hpp"
#include "bench_plan.hpp"
#include "bench_rank.hpp"
#include "commands.hpp"
#include "copy_bandwidth.hpp"
#include "exit_status.hpp"
#include "files.hpp"
#include "launch.hpp"
#include "meeting_limits.hpp"
#include "memory_limit.hpp"
#include "progress.hpp"
#include "session.hpp"

namespace lockstep::tool {
namespace {

using bench::Cell;
using bench::Report;

// Cells that one process, or one launch of processes, measures: of one world size, since processes
// beyond the world would take the cores from it, and of one sum rule.
struct Batch {
  std::vector<Cell> cells;
  std::optional<std::string> sum_rule;  // the backend's own where absent

  int ranks() const { return cells.front().ranks; }
};

std::vector<Batch> batches(const BenchArguments& arguments, const bench::Plan& plan) {
  std::vector<std::optional<std::string>> rules = {std::nullopt};
  if (arguments.sum_rules) {
    const std::vector<std::string> given = parse_list("--sum-rule", *arguments.sum_rules);
    rules.assign(given.begin(), given.end());
  }
  std::vector<Batch> list;
  for (auto first = plan.cells.begin(); first != plan.cells.end();) {
    const auto last = std::find_if(first, plan.cells.end(),
                                   [&](const Cell& cell) { return cell.ranks != first->ranks; });
    for (const std::optional<std::string>& rule : rules) {
      Batch batch{{}, rule};
      // What does not sum is the same under every rule.
      std::copy_if(first, last, std::back_inserter(batch.cells), [&](const Cell& cell) {
        return is_sum(cell.operation) || rule == rules.front();
      });
      if (!batch.cells.empty()) list.push_back(std::move(batch));
    }
    first = last;
  }
  return list;
}

// Measures a cell; nothing where this process does not play rank 0.
std::optional<std::vector<double>> measure(const Cell& cell, const bench::Method& method,
                                           kit::Backend& backend) {
  std::optional<std::vector<double>> seconds;
  std::mutex mutex;
  std::exception_ptr failure;
  backend.run_ranks(cell.ranks, [&](int rank, kit::Subject& world) {
    try {
      std::vector<double> measured = bench::measure_rank(cell, method, rank, world);
      if (rank == 0) seconds = std::move(measured);
    } catch (const std::exception&) {
      std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
    }
  });
  if (!failure) return seconds;
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {  // of a call that fits together: not the user's fault
    throw kit::BackendBroken(error.what());
  }
}

// Measures in this process. Returns whether it played rank 0, and so has anything to tell.
bool measure_here(const BenchArguments& arguments, const bench::Plan& plan, const Batch& batch,
                  Session& session, Report& report) {
  require_ranks(session, batch.ranks());
  const kit::BackendInfo info = session.info();
  Progress progress(arguments.backend, static_cast<std::int64_t>(batch.cells.size()));
  bool told = false;
  for (const Cell& cell : batch.cells) {
    progress.note(std::string(name(cell.operation)) + ", " + std::to_string(cell.bytes_per_rank) +
                  " bytes on each of " + std::to_string(cell.ranks) + " ranks");
    std::optional<std::vector<double>> seconds = measure(cell, plan.method, *session.backend);
    if (!seconds) continue;
    told = true;
    const auto rule = is_sum(cell.operation) ? std::optional(info.sum_rule) : std::nullopt;
    report.measurements.push_back({cell, rule, info.name, std::move(*seconds)});
  }
  report.peak_rss_bytes = std::max(report.peak_rss_bytes, bench::peak_rss_bytes());
  return told;
}

int measure_launched(const BenchArguments& arguments, const Batch& batch, const Session& session,
                     Report& report) {
  require_ranks(session, batch.ranks());
  const TemporaryDirectory directory;
  const std::string lines = directory.file("measurements");
  std::vector<std::string> words = {"bench",
                                    "--backend",
                                    arguments.backend,
                                    "--ranks",
                                    std::to_string(batch.ranks()),
                                    "--bytes",
                                    arguments.plan.bytes,
                                    "--dtype",
                                    arguments.plan.dtypes,
                                    "--data",
                                    arguments.plan.data,
                                    "--runs",
                                    arguments.plan.runs,
                                    "--seconds",
                                    arguments.plan.seconds,
                                    "--lines",
                                    lines,
                                    "--op"};
  std::string operations;
  for (const Cell& cell : batch.cells) {
    const std::string_view operation = name(cell.operation);
    if (operations.ends_with(operation)) continue;
    operations += (operations.empty() ? "" : ",") + std::string(operation);
  }
  words.push_back(operations);
  if (batch.sum_rule) words.insert(words.end(), {"--sum-rule", *batch.sum_rule});
  const int status = launch(session.backend->launcher(batch.ranks()), words);
  if (status == all_held) bench::read_lines(read_file(lines), report);
  return status;
}

}  // namespace

int bench_command(const BenchArguments& arguments) {
  limit_memory();
  const bench::Plan plan = bench::plan(arguments.plan);
  if (arguments.json) require_parent_directory(*arguments.json);

  Report report;
  const std::vector<Batch> list = batches(arguments, plan);
  // A launched process answers to the one that launched it.
  if (arguments.lines) {
    Session session = open_session(arguments.backend, list.front().sum_rule);
    if (measure_here(arguments, plan, list.front(), session, report)) {
      write_file(*arguments.lines, bench::write_lines(report));
    } else {
      leave_verdict_to_others();
    }
    return all_held;
  }

  // Before and after: a limit is the better of the two, whatever disturbed the other.
  report.copy_bandwidth = bench::copy_bandwidth();
  report.thread_switch = bench::thread_switch();
  report.core_meeting = bench::core_meeting();
  for (const Batch& batch : list) {
    Session session = open_session(arguments.backend, batch.sum_rule);
    if (session.needs_launcher()) {
      const int status = measure_launched(arguments, batch, session, report);
      if (status != all_held) return status;
    } else {
      measure_here(arguments, plan, batch, session, report);
    }
  }
  report.copy_bandwidth = std::max(*report.copy_bandwidth, bench::copy_bandwidth());
  report.thread_switch = std::min(report.thread_switch, bench::thread_switch());
  report.core_meeting = std::min(report.core_meeting, bench::core_meeting());
  std::cout << bench::table(report) << std::flush;
  if (arguments.json) write_file(*arguments.json, bench::bench_json(report));
  return all_held;
}

}  // namespace lockstep::tool
