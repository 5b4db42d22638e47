// Verification inside a test suite of one's own, whichever framework it uses:
//
//   TEST(MyBackend, KeepsTheContract) {                        // GoogleTest
//     MyBackend backend;
//     const auto result = lockstep::kit::check(backend, {.verify = {.seed = 1, .cases = 2000}});
//     EXPECT_TRUE(result.holds) << result.report;
//   }
//
//   TEST_CASE("my backend keeps the contract") {               // Catch2
//     MyBackend backend;
//     const auto result = lockstep::kit::check(backend);
//     INFO(result.report);
//     REQUIRE(result.holds);
//   }
#pragma once

#include <string>
#include <vector>

#include <lockstep/kit/verification.hpp>

namespace lockstep::kit {

struct CheckOptions {
  VerifyOptions verify = {};
  // Where cases that broke something go; the directory exists.
  std::string directory = ".";
  // The backend as a shared library, if it is one as well: then the report also says how the tool
  // runs a case on it again.
  std::string library = {};
  // After so many seconds in one case the backend counts as hanging. Its threads cannot be stopped,
  // so the process says what hung, writes the case, and ends with status 3.
  double timeout = 60;
};

struct CheckResult {
  bool holds = false;
  // For a person: what holds and what is broken, and for each broken clause the smallest case,
  // what was expected and what was received, the file, and the commands that show it again.
  std::string report;
  std::vector<std::string> files;  // that were written
};

// Generated cases, as `lockstep verify` runs them; or, where the environment variable LOCKSTEP_CASE
// names a case file, that one alone. The files hold what was received, so that `lockstep replay
// FILE` judges them without the backend. Throws what verify() throws, and Error for a file that
// cannot be read or written.
CheckResult check(Backend& backend, const CheckOptions& options = {});

}  // namespace lockstep::kit
