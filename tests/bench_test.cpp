// `lockstep bench`: what it plans, what it makes of the times, and its JSON.
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "bench_measure.hpp"
#include "bench_plan.hpp"
#include "bench_report.hpp"
#include "exit_status.hpp"

namespace lockstep::bench {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// --- The plan

TEST(BenchPlan, RoundsSizesUpToWhatTheOperationCanDivide) {
  Arguments arguments;
  arguments.ranks = "3";
  arguments.bytes = "0,1,64,1Ki";
  const auto sizes = [&](const char* operation, const char* dtype) {
    arguments.operations = operation;
    arguments.dtypes = dtype;
    std::vector<std::int64_t> bytes;
    for (const Cell& cell : plan(arguments).cells) bytes.push_back(cell.bytes_per_rank);
    return bytes;
  };
  EXPECT_EQ(sizes("all_gather_float", "f32"), (std::vector<std::int64_t>{0, 4, 64, 1024}));
  EXPECT_EQ(sizes("reduce_scatter_sum", "f16"), (std::vector<std::int64_t>{0, 6, 66, 1026}));
  EXPECT_EQ(sizes("all_to_all_v_int", "i64"), (std::vector<std::int64_t>{0, 24, 72, 1032}));
}

TEST(BenchPlan, GivesEachOperationTheDtypesOfItsFamily) {
  Arguments arguments;
  arguments.ranks = "4,1..2";
  arguments.bytes = "8";
  arguments.operations = "all_gather_int,all_reduce_sum";
  arguments.dtypes = "f64,u8,bf16";
  std::vector<std::string> cells;
  for (const Cell& cell : plan(arguments).cells) {
    cells.push_back(std::to_string(cell.ranks) + " " + std::string(name(cell.operation)) + " " +
                    std::string(name(cell.dtype)));
  }
  EXPECT_EQ(cells, (std::vector<std::string>{
                       "4 all_gather_int u8", "4 all_reduce_sum f64", "4 all_reduce_sum bf16",
                       "1 all_gather_int u8", "1 all_reduce_sum f64", "1 all_reduce_sum bf16",
                       "2 all_gather_int u8", "2 all_reduce_sum f64", "2 all_reduce_sum bf16"}));
}

TEST(BenchPlan, MeasuresEveryOperationUnlessTold) {
  std::set<Operation> planned;
  for (const Cell& cell : plan({}).cells) planned.insert(cell.operation);
  EXPECT_EQ(planned.size(), std::size(tensor_operations));
}

TEST(BenchPlan, RefusesNonsense) {
  const auto refused = [](auto Arguments::*member, const char* text, const char* message) {
    Arguments arguments;
    arguments.*member = text;
    try {
      plan(arguments);
      ADD_FAILURE() << text;
    } catch (const tool::Failure& failure) {
      EXPECT_EQ(failure.status(), tool::bad_usage);
      EXPECT_STREQ(failure.what(), message);
    }
  };
  refused(&Arguments::bytes, "64,", "--bytes: '64,': not a list such as A,B: an entry is empty");
  refused(&Arguments::bytes, "1e3", "--bytes: '1e3': not a list of sizes in bytes such as 64,16Mi");
  refused(&Arguments::bytes, "-1", "--bytes: '-1': not a list of sizes in bytes such as 64,16Mi");
  refused(&Arguments::bytes, "8388608Ti",
          "--bytes: '8388608Ti': not a list of sizes in bytes such as 64,16Mi");
  refused(&Arguments::ranks, "2,0", "--ranks: '0': a world has at least one rank");
  refused(&Arguments::operations, "all_gather", "--op: 'all_gather': no such operation");
  refused(&Arguments::dtypes, "f8", "--dtype: 'f8': no such dtype");
  refused(&Arguments::data, "zeros", "--data: 'zeros': not one of normal, adversarial");
  refused(&Arguments::runs, "0", "--runs: '0': not a whole number of 1 or more");
  refused(&Arguments::seconds, "0", "--seconds: '0': not a number of seconds above 0");
  Arguments arguments;
  arguments.operations = "all_gather_int";
  arguments.dtypes = "f32";
  EXPECT_THROW(plan(arguments), tool::Failure);
}

// --- The data

template <class T>
std::vector<T> data(Data kind, int rank, std::size_t elements) {
  std::vector<T> values(elements);
  fill(*dtype_of<T>, std::as_writable_bytes(std::span(values)), kind, rank, 8);
  return values;
}

TEST(BenchData, IsNormalUnlessItIsAdversarial) {
  double sum = 0, squares = 0;
  for (float x : data<float>(Data::normal, 3, 10000)) {
    sum += static_cast<double>(x);
    squares += static_cast<double>(x) * static_cast<double>(x);
  }
  EXPECT_NEAR(sum / 10000, 0, 0.05);
  EXPECT_NEAR(squares / 10000, 1, 0.05);

  int smallest = 1000, largest = -1000;
  for (float x : data<float>(Data::adversarial, 3, 10000)) {
    smallest = std::min(smallest, std::ilogb(x));
    largest = std::max(largest, std::ilogb(x));
    ASSERT_TRUE(std::isfinite(8 * x)) << x;
  }
  EXPECT_EQ(smallest, -126);
  EXPECT_EQ(largest, 123);
}

TEST(BenchData, DiffersBetweenRanks) {
  EXPECT_NE(data<double>(Data::normal, 0, 10), data<double>(Data::normal, 1, 10));
  EXPECT_NE(data<std::int64_t>(Data::normal, 0, 10), data<std::int64_t>(Data::normal, 1, 10));
}

// --- The measurement

TEST(BenchMeasurement, TakesTheSlowestRankAndDividesByTheCalls) {
  std::int64_t calls = 0;
  int runs = 0;
  const auto slowest = [&](double seconds) {
    if (seconds == 0.0) {
      calls = 0;
      return 0.0;
    }
    // A slow peer: two milliseconds for each call of ours.
    ++runs;
    return static_cast<double>(calls) * 0.002;
  };
  const Method method{3, 0.01, Data::normal};
  const std::vector<double> seconds = measure(
      method, [&] { ++calls; }, slowest);
  ASSERT_EQ(seconds.size(), 3u);
  for (double one : seconds) EXPECT_DOUBLE_EQ(one, 0.002);
  EXPECT_GE(calls, 5);
  EXPECT_GT(runs, 3) << "the first, which find the number of calls, do not count";
}

// --- The report

Report small_report() {
  Report report;
  report.copy_bandwidth = 8e9;
  report.thread_switch = 1.5e-6;
  report.core_meeting = 0.25e-6;
  report.peak_rss_bytes = 3 << 20;
  report.measurements = {
      {{Operation::all_reduce_sum, 8, 16 << 20, DType::f32},
       SumRule::rank_order,
       "sim",
       {0.016, 0.02, 0.018, 0.017}},
      {{Operation::all_gather_int, 2, 64, DType::u8}, std::nullopt, "my \"own\" one", {4e-6}}};
  return report;
}

TEST(BenchReport, IsTheMedianAndWhatFollowsFromIt) {
  const Measurement m = small_report().measurements[0];
  EXPECT_DOUBLE_EQ(m.median(), 0.0175);
  EXPECT_DOUBLE_EQ(m.least(), 0.016);
  EXPECT_DOUBLE_EQ(m.most(), 0.02);
  EXPECT_DOUBLE_EQ(m.rate(), 134217728 / 0.0175);
}

TEST(BenchReport, IsJsonWithOneObjectForEachMeasurement) {
  const json expected = json::parse(R"({
    "copy_gigabytes_per_second": 8, "thread_switch_us": 1.5, "core_meeting_us": 0.25,
    "peak_rss_bytes": 3145728,
    "results": [
      {"op": "all_reduce_sum", "ranks": 8, "bytes_per_rank": 16777216, "dtype": "f32",
       "sum_rule": "rank_order", "backend": "sim", "runs": 4, "median_us": 17500, "min_us": 16000,
       "max_us": 20000, "gigabytes_per_second": 7.66958, "fraction_of_copy_bandwidth": 0.958698},
      {"op": "all_gather_int", "ranks": 2, "bytes_per_rank": 64, "dtype": "u8", "sum_rule": null,
       "backend": "my \"own\" one", "runs": 1, "median_us": 4, "min_us": 4, "max_us": 4,
       "gigabytes_per_second": 0.032, "fraction_of_copy_bandwidth": 0.004}]})");
  EXPECT_EQ(json::parse(bench_json(small_report())), expected);

  Report nothing;
  EXPECT_EQ(json::parse(bench_json(nothing)),
            json::parse(R"({"copy_gigabytes_per_second": null, "thread_switch_us": null,
                      "core_meeting_us": null, "peak_rss_bytes": 0, "results": []})"));
}

TEST(BenchReport, IsATableOfOneLineForEachMeasurement) {
  EXPECT_EQ(table(small_report()),
            "operation       ranks  bytes  dtype  sums        backend       median us    min us  "
            "  max us   GB/s  of copy\n"
            "all_reduce_sum      8   16Mi  f32    rank_order  sim            17500.00  16000.00  "
            "20000.00  7.670    0.959\n"
            "all_gather_int      2     64  u8     -           my \"own\" one       4.00      4.00  "
            "    4.00  0.032    0.004\n"
            "\ncopy bandwidth 8.00 GB/s (all cores, streaming stores)"
            "\nthread switch 1.50 us (to another thread of the same core)"
            "\nmeeting of two cores 0.25 us\npeak memory 3 MiB\n");
}

TEST(BenchReport, ComesBackFromLines) {
  Report report;
  report.peak_rss_bytes = 1;
  read_lines(write_lines(small_report()), report);
  report.copy_bandwidth = 8e9;
  report.thread_switch = 1.5e-6;
  report.core_meeting = 0.25e-6;
  EXPECT_EQ(bench_json(report), bench_json(small_report()));
}

// --- The tool

class BenchTool : public testing::Test {
 protected:
  void SetUp() override {
    std::string path = (fs::temp_directory_path() / "lockstep-bench-XXXXXX").string();
    ASSERT_NE(::mkdtemp(path.data()), nullptr);
    directory_ = path;
  }
  void TearDown() override { fs::remove_all(directory_); }

  int run(const std::string& arguments) const {
    const char* tool = std::getenv("LOCKSTEP_TOOL");
    if (tool == nullptr) throw std::runtime_error("LOCKSTEP_TOOL is not set");
    const std::string line = "cd '" + directory_.string() + "' && timeout 120 '" + tool +
                             "' bench --seconds 0.001 --runs 2 --json out.json " + arguments +
                             " >out.txt 2>err.txt";
    const int ended = std::system(line.c_str());
    return WIFEXITED(ended) ? WEXITSTATUS(ended) : -1;
  }
  std::string text(const char* file) const {
    std::ifstream in(directory_ / file);
    return std::string(std::istreambuf_iterator<char>(in), {});
  }
  json results() const { return json::parse(text("out.json")).at("results"); }

  fs::path directory_;
};

TEST_F(BenchTool, MeasuresEveryOperationOnSimulatedRanks) {
  ASSERT_EQ(run("--ranks 1,3 --bytes 0,100 --sum-rule exact,rank_order"), 0) << text("err.txt");
  // Five operations once and two sums by two rules, each of two sizes in two worlds.
  ASSERT_EQ(results().size(), (5 + 2 * 2) * 2 * 2u);
  std::set<std::string> kinds;
  for (const json& result : results()) {
    const double least = result.at("min_us"), middle = result.at("median_us");
    EXPECT_GT(least, 0);
    EXPECT_GE(middle, least);
    EXPECT_EQ(result.at("backend"), "sim");
    EXPECT_EQ(result.at("runs"), 2);
    EXPECT_EQ(result.at("fraction_of_copy_bandwidth") == 0, result.at("bytes_per_rank") == 0);
    kinds.insert(result.at("op").get<std::string>() + " " + result.at("sum_rule").dump());
  }
  EXPECT_EQ(kinds, (std::set<std::string>{
                       "all_gather_float null", "all_gather_int null", "broadcast_float null",
                       "all_to_all_v_float null", "all_to_all_v_int null",
                       "all_reduce_sum \"exact\"", "all_reduce_sum \"rank_order\"",
                       "reduce_scatter_sum \"exact\"", "reduce_scatter_sum \"rank_order\""}));
  EXPECT_NE(text("out.txt").find("all_reduce_sum"), std::string::npos);
}

TEST_F(BenchTool, MeasuresProcesses) {
  const int status = run("--backend mpi --ranks 1..2 --bytes 8 --op all_reduce_sum");
  if (status == 77 || text("err.txt").find("no such backend") != std::string::npos) {
    GTEST_SKIP() << text("err.txt");
  }
  ASSERT_EQ(status, 0) << text("err.txt");
  ASSERT_EQ(results().size(), 2u);
  EXPECT_EQ(results()[1].at("ranks"), 2);
  EXPECT_EQ(results()[1].at("backend"), "mpi");
  EXPECT_EQ(results()[1].at("sum_rule"), "unspecified");
}

TEST_F(BenchTool, RefusesASumRuleThatTheBackendDoesNotFollow) {
  EXPECT_EQ(run("--sum-rule unspecified"), 2);
  EXPECT_EQ(text("err.txt"),
            "lockstep: backend sim: sums are exact or rank_order, never unspecified\n");
  EXPECT_FALSE(fs::exists(directory_ / "out.json"));
}

}  // namespace
}  // namespace lockstep::bench
