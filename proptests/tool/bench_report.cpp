#include "bench_report.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <iomanip>
#include <limits>
#include <numeric>
#include <sstream>

#include "report_json.hpp"

namespace lockstep::bench {
namespace {

constexpr double micro = 1e6;
constexpr double giga = 1e9;

template <class... Values>
std::string formatted(const char* format, Values... values) {
  char text[64];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

std::string size_text(std::int64_t bytes) {
  constexpr const char* suffixes[] = {"", "Ki", "Mi", "Gi"};
  std::size_t i = 0;
  while (i < 3 && bytes >= 1024 && bytes % 1024 == 0) {
    bytes /= 1024;
    ++i;
  }
  return std::to_string(bytes) + suffixes[i];
}

std::string rule_text(const std::optional<SumRule>& rule) {
  return rule ? std::string(name(*rule)) : "-";
}

}  // namespace

double Measurement::median() const {
  std::vector<double> sorted = seconds;
  std::ranges::sort(sorted);
  return std::midpoint(sorted[(sorted.size() - 1) / 2], sorted[sorted.size() / 2]);
}
double Measurement::least() const {
  return *std::ranges::min_element(seconds);
}
double Measurement::most() const {
  return *std::ranges::max_element(seconds);
}
double Measurement::rate() const {
  return static_cast<double>(cell.ranks) * static_cast<double>(cell.bytes_per_rank) / median();
}

std::string table(const Report& report) {
  using Line = std::array<std::string, 11>;
  std::vector<Line> lines = {{"operation", "ranks", "bytes", "dtype", "sums", "backend",
                              "median us", "min us", "max us", "GB/s", "of copy"}};
  for (const Measurement& m : report.measurements) {
    lines.push_back(
        {std::string(name(m.cell.operation)), std::to_string(m.cell.ranks),
         size_text(m.cell.bytes_per_rank), std::string(name(m.cell.dtype)), rule_text(m.sum_rule),
         m.backend, formatted("%.2f", m.median() * micro), formatted("%.2f", m.least() * micro),
         formatted("%.2f", m.most() * micro), formatted("%.3f", m.rate() / giga),
         report.copy_bandwidth ? formatted("%.3f", m.rate() / *report.copy_bandwidth) : "-"});
  }
  std::array<std::size_t, 11> widths{};
  for (const Line& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  constexpr std::array<bool, 11> to_the_left = {true, false, false, true, true, true};
  std::string text;
  for (const Line& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i) {
      const std::string space(widths[i] - line[i].size(), ' ');
      text += (i > 0 ? "  " : "") + (to_the_left[i] ? line[i] + space : space + line[i]);
    }
    text += "\n";
  }
  if (report.copy_bandwidth) {
    text += "\ncopy bandwidth " + formatted("%.2f", *report.copy_bandwidth / giga) +
            " GB/s (all cores, streaming stores)";
  }
  if (report.thread_switch) {
    text += "\nthread switch " + formatted("%.2f", *report.thread_switch * micro) +
            " us (to another thread of the same core)";
  }
  if (report.core_meeting) {
    text += "\nmeeting of two cores " + formatted("%.2f", *report.core_meeting * micro) + " us";
  }
  return text + "\npeak memory " +
         formatted("%.0f", static_cast<double>(report.peak_rss_bytes) / (1 << 20)) + " MiB\n";
}

std::string bench_json(const Report& report) {
  const auto number = [](double value) { return formatted("%.6g", value); };
  const auto limit = [&](const char* name, const std::optional<double>& value, double scale) {
    return "\n  " + tool::json_string(name) + ": " + (value ? number(*value * scale) : "null") +
           ",";
  };
  std::string text = "{";
  text += limit("copy_gigabytes_per_second", report.copy_bandwidth, 1 / giga);
  text += limit("thread_switch_us", report.thread_switch, micro);
  text += limit("core_meeting_us", report.core_meeting, micro);
  text += "\n  \"peak_rss_bytes\": " + std::to_string(report.peak_rss_bytes);
  text += ",\n  \"results\": [";
  for (std::size_t i = 0; i < report.measurements.size(); ++i) {
    const Measurement& m = report.measurements[i];
    text += i > 0 ? ",\n    {" : "\n    {";
    text += "\"op\": " + tool::json_string(name(m.cell.operation));
    text += ", \"ranks\": " + std::to_string(m.cell.ranks);
    text += ", \"bytes_per_rank\": " + std::to_string(m.cell.bytes_per_rank);
    text += ", \"dtype\": " + tool::json_string(name(m.cell.dtype));
    text += ", \"sum_rule\": " + (m.sum_rule ? tool::json_string(name(*m.sum_rule)) : "null");
    text += ", \"backend\": " + tool::json_string(m.backend);
    text += ", \"runs\": " + std::to_string(m.seconds.size());
    text += ", \"median_us\": " + number(m.median() * micro);
    text += ", \"min_us\": " + number(m.least() * micro);
    text += ", \"max_us\": " + number(m.most() * micro);
    text += ", \"gigabytes_per_second\": " + number(m.rate() / giga);
    text += ", \"fraction_of_copy_bandwidth\": " +
            (report.copy_bandwidth ? number(m.rate() / *report.copy_bandwidth) : "null");
    text += "}";
  }
  return text + "\n  ]\n}\n";
}

std::string write_lines(const Report& report) {
  std::ostringstream out;
  out << std::setprecision(std::numeric_limits<double>::max_digits10);
  out << report.peak_rss_bytes << "\n";
  for (const Measurement& m : report.measurements) {
    out << name(m.cell.operation) << ' ' << m.cell.ranks << ' ' << m.cell.bytes_per_rank << ' '
        << name(m.cell.dtype) << ' ' << rule_text(m.sum_rule) << ' ' << m.seconds.size();
    for (double seconds : m.seconds) out << ' ' << seconds;
    out << ' ' << m.backend << "\n";  // last, since it may hold spaces
  }
  return out.str();
}

void read_lines(const std::string& text, Report& report) {
  std::istringstream in(text);
  std::int64_t peak = 0;
  in >> peak;
  report.peak_rss_bytes = std::max(report.peak_rss_bytes, peak);
  std::string operation, dtype, rule;
  std::size_t runs = 0;
  for (Measurement m;
       in >> operation >> m.cell.ranks >> m.cell.bytes_per_rank >> dtype >> rule >> runs;) {
    m.cell.operation = operation_named(operation).value();
    m.cell.dtype = dtype_named(dtype).value();
    m.sum_rule = sum_rule_named(rule);
    m.seconds.resize(runs);
    for (double& seconds : m.seconds) in >> seconds;
    std::getline(in >> std::ws, m.backend);
    report.measurements.push_back(m);
  }
}

std::int64_t peak_rss_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return std::int64_t{usage.ru_maxrss} * 1024;
}

}  // namespace lockstep::bench
