// NCCL programs on simulated devices: each classic mistake is found and told, and programs without
// mistakes get right results, whatever the seed.

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>

namespace {

struct Outcome {
  int status = -1;
  std::string text;  // both outputs
};

// Runs a command line in a shell; `LOCKSTEP_...=` settings may come first.
Outcome run(const std::string& command) {
  Outcome outcome;
  std::FILE* const pipe = ::popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return outcome;
  char piece[4096];
  while (const std::size_t got = std::fread(piece, 1, sizeof piece, pipe)) {
    outcome.text.append(piece, got);
  }
  const int status = ::pclose(pipe);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  return outcome;
}

std::string program(const char* variable) {
  const char* const path = std::getenv(variable);
  return path == nullptr ? "false" : path;
}

struct Mistake {
  const char* name;
  const char* rule;
  const char* told;  // somewhere in the finding: who, what, where
};

class MistakeIsFound : public testing::TestWithParam<Mistake> {};

TEST_P(MistakeIsFound, AndTold) {
  const Mistake& mistake = GetParam();
  const Outcome outcome =
      run("LOCKSTEP_SIM_TIMEOUT=1 " + program("LOCKSTEP_NCCL_MISTAKES") + " " + mistake.name);
  EXPECT_EQ(outcome.status, 86) << outcome.text;
  // The first finding is the mistake; others may follow from it.
  const std::string header = std::string("== lockstep: ") + mistake.rule + " ==";
  EXPECT_EQ(outcome.text.find("== lockstep: "), outcome.text.find(header)) << outcome.text;
  EXPECT_NE(outcome.text.find(header), std::string::npos) << outcome.text;
  EXPECT_NE(outcome.text.find(mistake.told), std::string::npos) << outcome.text;
}

INSTANTIATE_TEST_SUITE_P(
    Classic, MistakeIsFound,
    testing::Values(
        Mistake{"different_counts", "mismatched-collective",
                "rank 1 (device 1): ncclAllReduce of 3 float32, sum, its call 0, on stream 2"},
        Mistake{"different_datatypes", "mismatched-collective", "disagree on the datatype"},
        Mistake{"different_roots", "mismatched-collective", "disagree on the root"},
        Mistake{"different_operators", "mismatched-collective",
                "disagree on the reduction operator"},
        Mistake{"different_order", "mismatched-collective", "disagree on the operation"},
        Mistake{"a_rank_without_elements", "never-completes",
                "waits for rank 0 (device 0), which has not called it"},
        Mistake{"a_send_without_its_receive", "never-completes",
                "waits for rank 1 (device 1), which has not called ncclRecv for rank 0"},
        Mistake{"a_longer_receive", "mismatched-transfer",
                "disagree on the count of a transfer from rank 0 to rank 1"},
        Mistake{"transfers_in_a_circle", "deadlock", "wait for each other's later calls"},
        Mistake{"no_group", "missing-group", "between ncclGroupStart and ncclGroupEnd"},
        Mistake{"a_rank_that_stays_away", "never-completes",
                "waits for rank 1 (device 1), which has not called it"},
        Mistake{"a_buffer_of_another_device", "wrong-device", "ncclAllReduce, rank 1 of 2"},
        Mistake{"beyond_the_allocation", "out-of-range", "ncclAllGather, rank 0 of 2"},
        Mistake{"a_freed_buffer", "use-after-free", "ncclAllReduce, rank 1 of 2"},
        Mistake{"freed_while_in_use", "freed-while-in-use", "ncclAllReduce by rank 0 of 2"},
        Mistake{"nothing_written", "uninitialized-read", "ncclAllReduce, rank 1 of 2"},
        Mistake{"overlapping_buffers", "overlapping-buffers", "ncclAllGather, rank 1 of 2"},
        Mistake{"overlap_in_a_group", "overlap-in-group", "ncclRecv of 4 float32 from rank 0"},
        Mistake{"polling_for_ever", "never-completes", "which has not called ncclSend for rank 1"},
        Mistake{"polling_for_a_rank_that_never_joins", "never-completes",
                "waited for rank 1 of 2 to call"},
        Mistake{"a_stream_of_another_device", "stream-of-another-device",
                "ncclAllReduce, rank 1 of 2"},
        Mistake{"after_abort", "communicator-after-abort", "was aborted before"},
        Mistake{"after_destroy", "communicator-after-destroy", "was destroyed before"},
        Mistake{"after_finalize", "communicator-after-finalize", "ncclAllReduce, rank 0 of 1"},
        Mistake{"two_threads", "two-threads", "calls with it in an open group"},
        Mistake{"not_waiting_for_progress", "communicator-in-progress", "returned ncclInProgress"},
        Mistake{"one_device_twice", "duplicate-device", "rank 1 of 2 (device 0)"},
        Mistake{"one_id_twice", "unique-id-reused", "rank 0 of 1"},
        Mistake{"an_id_that_nobody_sent", "not-a-unique-id", "ncclCommInitRank"},
        Mistake{"joining_one_by_one", "never-completes", "waits for rank 1 of 2 to call"},
        Mistake{"a_root_that_is_none", "no-such-rank", "root 2 is no rank"},
        Mistake{"a_destroyed_operator", "not-an-operator", "ncclAllReduce, rank 0 of 1"},
        Mistake{"a_process_that_dies", "rank-died", "which died: its process ended"},
        Mistake{"a_process_that_ends_early", "rank-left",
                "which ended its process without destroying the communicator"},
        Mistake{"processes_with_different_counts", "mismatched-collective",
                "rank 1 (device 1, process "}),
    [](const auto& info) { return std::string(info.param.name); });

class RightPrograms : public testing::TestWithParam<int> {};

TEST_P(RightPrograms, AreClean) {
  const std::string seed = "LOCKSTEP_SIM_SEED=" + std::to_string(GetParam()) + " ";
  const Outcome outcome = run(seed + program("LOCKSTEP_NCCL_MISTAKES") + " --right");
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_EQ(outcome.text.find("== lockstep"), std::string::npos) << outcome.text;
}

TEST_P(RightPrograms, GetRightResults) {
  const std::string seed = "LOCKSTEP_SIM_SEED=" + std::to_string(GetParam()) + " ";
  for (const char* mode : {" group 1", " group 4", " threads 3", " split 4", " abort 3"}) {
    const Outcome outcome = run(seed + program("LOCKSTEP_NCCL_RESULTS") + mode);
    EXPECT_EQ(outcome.status, 0) << mode << "\n" << outcome.text;
    EXPECT_EQ(outcome.text, "0 failures\n") << mode;
  }
}

TEST(Sums, FollowTheDocumentedRing) {
  const Outcome outcome = run(program("LOCKSTEP_NCCL_RESULTS") + " order");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.text,
            "all-reduce 0 0 0 0 1 1 1 1 0 0 0 0\n"
            "reduce 0\n"
            "reduce 1\n"
            "reduce 0\n"
            "reduce-scatter 0 0 0 0\n"
            "reduce-scatter 1 1 1 1\n"
            "reduce-scatter 0 0 0 0\n"
            "0 failures\n");
}

TEST(Sums, DifferWithTheSeed) {
  std::set<std::string> seen;
  for (int seed = 0; seed < 6; ++seed) {
    seen.insert(run("LOCKSTEP_SIM_SEED=" + std::to_string(seed) + " " +
                    program("LOCKSTEP_NCCL_RESULTS") + " order")
                    .text);
  }
  EXPECT_GT(seen.size(), 2u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, RightPrograms, testing::Values(0, 1, 2, 3));

}  // namespace
