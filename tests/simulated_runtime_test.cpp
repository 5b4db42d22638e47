// The simulated CUDA runtime as a program meets it: cuda_mistakes.cpp, which is linked to the real
// library, under `lockstep simulate`.

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

namespace {

std::string setting(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr ? value : std::string(variable) + " is not set";
}

struct Ended {
  int status;
  std::string said;
};

Ended simulate(const std::string& options, const std::string& program) {
  const std::string line = "timeout 120 '" + setting("LOCKSTEP_TOOL") + "' simulate " + options +
                           " -- '" + setting("LOCKSTEP_MISTAKES") + "' " + program + " 2>&1";
  FILE* const pipe = ::popen(line.c_str(), "r");
  std::string said;
  char buffer[4096];
  for (std::size_t n = 0; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) {
    said.append(buffer, n);
  }
  const int ended = ::pclose(pipe);
  return {WIFEXITED(ended) ? WEXITSTATUS(ended) : -1, said};
}

struct Mistake {
  const char* program;
  const char* rule;  // of the finding; where the order decides, one of two
  const char* other_rule;
  const char* said;  // in the report
  int status;
};

class SimulatedRuntime : public testing::TestWithParam<Mistake> {};

TEST_P(SimulatedRuntime, catches_the_mistake_in_every_order) {
  const Mistake& mistake = GetParam();
  for (const char* seed : {"0", "1", "2", "5"}) {
    SCOPED_TRACE(std::string("--seed ") + seed);
    const Ended ended = simulate(std::string("--devices 2 --seed ") + seed, mistake.program);
    EXPECT_EQ(ended.status, mistake.status);
    const auto found = [&](const char* rule) {
      return ended.said.find(std::string("== lockstep: ") + rule + " =") != std::string::npos;
    };
    EXPECT_TRUE(found(mistake.rule) || found(mistake.other_rule)) << ended.said;
    EXPECT_NE(ended.said.find(mistake.said), std::string::npos) << ended.said;
  }
}

constexpr Mistake mistakes[] = {
    {"read-early", "host-access-before-synchronization", "",
     "the work: cudaMemcpyAsync on stream 2 of device 0", 86},
    {"read-early-pageable", "never-awaited", "", "4000 bytes", 86},
    {"overwrite-early", "host-write-before-synchronization", "", "which pending work still reads",
     86},
    {"free-in-use", "freed-while-in-use", "", "used by: cudaMemsetAsync on stream 1 of device 0",
     86},
    {"free-on-another-stream", "unordered-access", "use-before-allocation",
     "cudaFreeAsync, stream 2 of device 0", 86},
    {"two-streams", "unordered-access", "", "the other: cudaM", 86},
    {"staged-copy", "unordered-access", "", "cudaMemcpy", 86},
    {"wrong-device", "wrong-device", "", "is memory of device 1; the call is for device 0", 86},
    {"past-the-end", "out-of-range", "", "4004 bytes at 0x", 86},
    {"uninitialized", "uninitialized-read", "",
     "nothing has written 2000 bytes, the first at offset 2000", 86},
    {"device-memory-on-host", "device-memory-on-host", "", "the allocation: 4000 bytes at 0x",
     128 + 11},
    {"double-free", "double-free", "", "freed by: cudaFree", 86},
    {"wrong-free", "wrong-free", "", "Free page-locked memory with cudaFreeHost", 86},
    {"destroyed-stream", "use-after-destroy", "", "its stream was destroyed before", 86},
    {"calling-host-function", "call-from-host-function", "", "cudaMalloc", 86},
    {"kernel", "kernel-launch", "", "cudaLaunchKernel, stream 1 of device 0", 86},
};

INSTANTIATE_TEST_SUITE_P(Mistakes, SimulatedRuntime, testing::ValuesIn(mistakes),
                         [](const auto& info) {
                           std::string name = info.param.program;
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

TEST(SimulatedRuntime, says_nothing_about_the_corrected_programs_in_any_order) {
  for (int seed = 0; seed < 24; ++seed) {
    const Ended ended = simulate("--devices 2 --seed " + std::to_string(seed), "all-right");
    EXPECT_EQ(ended.status, 0) << "--seed " << seed;
    EXPECT_EQ(ended.said, "");
  }
}

TEST(SimulatedRuntime, refuses_settings_that_it_cannot_follow) {
  const struct {
    const char* variable;
    const char* value;
    const char* said;
  } settings[] = {
      {"LOCKSTEP_SIM_DEVICES", "0",
       "lockstep: LOCKSTEP_SIM_DEVICES is '0'; it must be a number of devices from 1 to 1024"},
      {"LOCKSTEP_SIM_DEVICES", "8x",
       "lockstep: LOCKSTEP_SIM_DEVICES is '8x'; it must be a number of devices from 1 to 1024"},
      {"LOCKSTEP_SIM_SEED", "-1",
       "lockstep: LOCKSTEP_SIM_SEED is '-1'; it must be a number of 64 bits"},
      {"LOCKSTEP_SIM_SEED", "18446744073709551616", "it must be a number of 64 bits"},
      {"LOCKSTEP_SIM_MEMORY", "16Gi",
       "lockstep: LOCKSTEP_SIM_MEMORY is '16Gi'; it must be a number of bytes"},
      {"LOCKSTEP_SIM_TIMEOUT", "0",
       "lockstep: LOCKSTEP_SIM_TIMEOUT is '0'; it must be a number of seconds from 1 on"},
      {"LOCKSTEP_SIM_ABORT", "yes", "lockstep: LOCKSTEP_SIM_ABORT is 'yes'; it must be 0 or 1"},
      {"LOCKSTEP_SIM_GUARD", "2", "lockstep: LOCKSTEP_SIM_GUARD is '2'; it must be 0 or 1"},
      {"LOCKSTEP_SIM_REPORT", "/no/such/folder/report",
       "lockstep: cannot write /no/such/folder/report"},
  };
  for (const auto& setting : settings) {
    SCOPED_TRACE(std::string(setting.variable) + "=" + setting.value);
    ::setenv(setting.variable, setting.value, 1);
    const Ended ended = simulate("", "right-read-early");
    ::unsetenv(setting.variable);
    EXPECT_EQ(ended.status, 2);
    EXPECT_NE(ended.said.find(setting.said), std::string::npos) << ended.said;
  }
}

TEST(SimulatedRuntime, writes_its_findings_to_the_file_that_the_environment_names) {
  const std::string file = testing::TempDir() + "lockstep-findings-" + std::to_string(::getpid());
  ::setenv("LOCKSTEP_SIM_REPORT", file.c_str(), 1);
  const Ended ended = simulate("", "destroyed-stream");
  ::unsetenv("LOCKSTEP_SIM_REPORT");
  EXPECT_EQ(ended.status, 86);
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  EXPECT_EQ(line.rfind("{\"rule\": \"use-after-destroy\"", 0), 0u) << line;
  std::remove(file.c_str());
}

TEST(SimulatedRuntime, ends_a_program_whose_host_function_waits_for_whoever_waits_for_it) {
  const Ended ended = simulate("--timeout 1", "waiting-host-function");
  EXPECT_EQ(ended.status, 86);
  EXPECT_NE(ended.said.find("== lockstep: never-completes ="), std::string::npos) << ended.said;
  EXPECT_NE(ended.said.find("cudaLaunchHostFunc, stream 1 of device 0"), std::string::npos)
      << ended.said;
  EXPECT_NE(ended.said.find("is in cudaStreamSynchronize and waits for"), std::string::npos)
      << ended.said;
}

TEST(SimulatedRuntime, ends_the_program_at_the_first_finding_if_it_should) {
  const Ended ended = simulate("--abort", "destroyed-stream");
  EXPECT_EQ(ended.status, 86);
  const std::size_t first = ended.said.find("use-after-destroy");
  EXPECT_NE(first, std::string::npos);
  EXPECT_EQ(ended.said.find("use-after-destroy", first + 1), std::string::npos) << ended.said;
}

}  // namespace
