// Every case file of tests/cases/ on the oracle and on simulated ranks. Each is a fault that some
// collective library shipped; docs/reports.md says which.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <lockstep/kit/case_file.hpp>
#include <lockstep/kit/judge.hpp>
#include <lockstep/kit/program_oracle.hpp>
#include <lockstep/kit/verification.hpp>

#include "simulated_backend.hpp"

namespace lockstep::kit {
namespace {

// The names of the files, in order, without ".json"; none when the directory cannot be read.
std::vector<std::string> case_names() {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(LOCKSTEP_CASES_DIR, ignored)) {
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
  }
  std::ranges::sort(names);
  return names;
}

std::string text_of(const std::string& name) {
  const auto path = std::filesystem::path(LOCKSTEP_CASES_DIR) / (name + ".json");
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

class CaseFiles : public ::testing::TestWithParam<std::string> {
 protected:
  const std::string text_ = text_of(GetParam());
  const Case case_ = read_case(text_, GetParam() + ".json");
};

// `lockstep oracle` brings a file into this form.
TEST_P(CaseFiles, ReadBackToWhatWasWritten) {
  EXPECT_EQ(write_case(case_), text_);
}

TEST_P(CaseFiles, StateOnOneLineWhatTheyStateOnMany) {
  EXPECT_EQ(write_case(read_case(write_case(case_, Layout::one_line))), text_);
}

TEST_P(CaseFiles, ExpectWhatTheOracleGives) {
  ASSERT_FALSE(case_.steps.empty());
  for (const Step& step : case_.steps) EXPECT_EQ(step.expected.size(), step.members());
  const auto divergence = judge_expected(case_);
  EXPECT_FALSE(divergence.has_value()) << divergence->explanation;
}

// By each rule that simulated ranks can follow. What is right by either is also right where the
// order of a sum is left open.
TEST_P(CaseFiles, HoldOnSimulatedRanks) {
  for (SumRule rule : {SumRule::exact, SumRule::rank_order}) {
    testing::SimulatedBackend backend(rule);
    const Transcript transcript = run_case(backend, case_);
    for (SumRule judged_by : {rule, SumRule::unspecified}) {
      const auto divergence = judge(case_, transcript, judged_by);
      EXPECT_FALSE(divergence.has_value()) << "sums by the rule " << rule << ", judged by "
                                           << judged_by << ": " << divergence->explanation;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Reports, CaseFiles, ::testing::ValuesIn(case_names()),
                         [](const ::testing::TestParamInfo<std::string>& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST(CasesDirectory, HoldsCases) {
  EXPECT_GE(case_names().size(), 70u) << LOCKSTEP_CASES_DIR;
}

}  // namespace
}  // namespace lockstep::kit
