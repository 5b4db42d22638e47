// The `lockstep` tool as a user meets it: command lines in, messages and exit statuses out.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace {

namespace fs = std::filesystem;

std::string setting(const char* variable) {
  const char* value = std::getenv(variable);
  if (value == nullptr) throw std::runtime_error(std::string(variable) + " is not set");
  return value;
}

std::string content_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

struct Ended {
  int status;
  std::string out;
  std::string err;
};

class Tool : public testing::Test {
 protected:
  void SetUp() override {
    std::string path = (fs::temp_directory_path() / "lockstep-test-XXXXXX").string();
    ASSERT_NE(::mkdtemp(path.data()), nullptr);
    directory_ = path;
  }
  void TearDown() override { fs::remove_all(directory_); }

  // Runs a shell line in an empty directory, with `lockstep` for the tool. No line here is meant to
  // take long; one that hangs is ended and fails.
  Ended shell(const std::string& line) const {
    const std::string script = "cd '" + directory_.string() + "' && lockstep() { timeout 120 '" +
                               setting("LOCKSTEP_TOOL") + "' \"$@\"; }; broken='" +
                               setting("LOCKSTEP_BROKEN_BACKEND") + "'; ( " + line +
                               " ) >.out 2>.err";
    const int ended = std::system(script.c_str());
    return {WIFEXITED(ended) ? WEXITSTATUS(ended) : -1, content_of(directory_ / ".out"),
            content_of(directory_ / ".err")};
  }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(directory_ / name, std::ios::binary) << text;
  }
  // Files that stand in the directory, but for the captured output.
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(directory_)) {
      const std::string name = entry.path().filename().string();
      if (!name.starts_with('.')) names.push_back(name);
    }
    return names;
  }

  fs::path directory_;
};

// Everything but the times.
std::string without_seconds(const std::string& json) {
  return std::regex_replace(json, std::regex("\"seconds\": [0-9.]+"), "\"seconds\": 0");
}

const std::string gather_case =
    R"({"lockstep_case": 1, "world": 2, "steps": [{"op": "all_gather_int", "inputs": [
      {"dtype": "i32", "shape": [1], "values": [7]},
      {"dtype": "i32", "shape": [1], "values": [-8]}]}]})";

// --- Usage

TEST_F(Tool, RefusesAWorldWithoutRanks) {
  const Ended ended = shell("lockstep verify --backend sim --ranks 0..3");
  EXPECT_EQ(ended.status, 2);
  EXPECT_EQ(ended.err, "lockstep: --ranks: '0..3': a world has at least one rank\n");
  EXPECT_EQ(ended.out, "");
}

TEST_F(Tool, RefusesOtherNonsenseOnTheCommandLine) {
  const auto refused = [&](const std::string& line, const std::string& message) {
    const Ended ended = shell(line);
    EXPECT_EQ(ended.status, 2) << line;
    EXPECT_NE(ended.err.find(message), std::string::npos) << line << "\n" << ended.err;
  };
  refused("lockstep verify --ranks 5..2", "--ranks: '5..2': the range is empty");
  refused("lockstep verify --ranks many", "--ranks: 'many': not a range of world sizes");
  refused("lockstep verify --ranks 1..", "--ranks: '1..': not a range of world sizes");
  refused("lockstep verify --cases -1", "--cases: '-1': not a whole number of 1 or more");
  refused("lockstep verify --cases 1e3", "--cases: '1e3': not a whole number of 1 or more");
  refused("lockstep verify --seed x", "--seed: 'x': not a whole number");
  refused("lockstep verify --timeout 0", "--timeout: '0': not a number of seconds above 0");
  refused("lockstep verify --property gather",
          "no property is named 'gather'; there are all_gather_float, all_gather_int");
  refused("lockstep verify --backend gossip", "--backend: 'gossip': no such backend; there is sim");
  refused("lockstep verify --backend sim --sum-rule fast", "--sum-rule: 'fast': not one of exact");
  refused("lockstep verify --backend sim --sum-rule unspecified", "sums are exact or rank_order");
  refused("lockstep verify --json no/such/place.json", "no/such is not a directory");
  refused("lockstep verify --frobnicate", "--frobnicate");
  refused("lockstep", "a command is needed: verify, replay, oracle, mutants, bench, backends");
  refused("lockstep fly",
          "there is no command 'fly': verify, replay, oracle, mutants, bench, backends");
  refused("lockstep replay", "CASE is required");
  refused("lockstep replay absent.json", "cannot read absent.json: No such file or directory");
  refused("lockstep replay .", "cannot read .: it is a directory");
  refused("lockstep verify --backend \"$broken\" --ranks 1..9",
          "has worlds of 6 ranks at most here, not the 9 asked for");
}

TEST_F(Tool, HelpsWhenAsked) {
  const Ended ended = shell("lockstep verify --help");
  EXPECT_EQ(ended.status, 0);
  EXPECT_NE(ended.out.find("--property"), std::string::npos);
}

TEST_F(Tool, NamesWhatIsNoBackend) {
  write("text.so", "not a library");
  Ended ended = shell("lockstep verify --backend ./text.so");
  EXPECT_EQ(ended.status, 2);
  EXPECT_NE(ended.err.find("./text.so is not a backend: it cannot be loaded"), std::string::npos)
      << ended.err;

  ended = shell("lockstep verify --backend ./absent.so");
  EXPECT_EQ(ended.status, 2);
  EXPECT_NE(ended.err.find("./absent.so is not a backend: there is no such file"),
            std::string::npos);

  // A library, but of something else.
  ended = shell(
      "cp \"$(ldd \"$broken\" | awk '/lockstep-sim/ {print $3}')\" other.so && "
      "lockstep verify --backend ./other.so");
  EXPECT_EQ(ended.status, 2);
  EXPECT_NE(ended.err.find("./other.so is not a backend: it has no symbol `lockstep_backend`"),
            std::string::npos)
      << ended.err;
}

TEST_F(Tool, SaysWhyABackendCannotRun) {
  const Ended ended = shell(
      "LOCKSTEP_FAULT=unavailable; export LOCKSTEP_FAULT; "
      "lockstep verify --backend \"$broken\"");
  EXPECT_EQ(ended.status, 77);
  EXPECT_NE(ended.err.find("cannot run here: this test says so"), std::string::npos) << ended.err;
}

TEST_F(Tool, ListsBackends) {
  const Ended ended = shell("LOCKSTEP_BACKEND_PATH=. lockstep backends");
  EXPECT_EQ(ended.status, 0);
  EXPECT_NE(ended.out.find("sim"), std::string::npos);
  EXPECT_NE(ended.out.find("lockstep-backend-sim.so"), std::string::npos);
}

TEST_F(Tool, FindsBackendsWhereItIsTold) {
  const Ended ended = shell(
      "cp \"$broken\" lockstep-backend-mine.so && "
      "LOCKSTEP_BACKEND_PATH=. lockstep verify --backend mine --cases 50");
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_NE(ended.out.find("not offered  sub-communicators"), std::string::npos) << ended.out;
}

// --- verify

TEST_F(Tool, FindsNoFaultInTheSimulator) {
  const Ended ended = shell("lockstep verify --backend sim --cases 500 --seed 5 --json r.json");
  EXPECT_EQ(ended.status, 0) << ended.out << ended.err;
  EXPECT_EQ(ended.err, "") << "quiet in a pipe";
  EXPECT_NE(ended.out.find("Conformance of sim: sums exact, seed 5"), std::string::npos);
  const std::string json = content_of(directory_ / "r.json");
  EXPECT_TRUE(
      without_seconds(json).starts_with("{\n"
                                        "  \"backend\": \"sim\",\n"
                                        "  \"sum_rule\": \"exact\",\n"
                                        "  \"seed\": 5,\n"
                                        "  \"ranks\": [1, 64],\n"
                                        "  \"cases\": 500,\n"
                                        "  \"seconds\": 0,\n"
                                        "  \"verdict\": \"holds\",\n"
                                        "  \"properties\": [\n"
                                        "    {"))
      << json;
  EXPECT_EQ(files(), std::vector<std::string>{"r.json"});
}

TEST_F(Tool, GivesTheSameReportForTheSameSeed) {
  shell("lockstep verify --backend sim --cases 300 --seed 11 --json a.json");
  shell("lockstep verify --backend sim --cases 300 --seed 11 --json b.json");
  shell("lockstep verify --backend sim --cases 300 --seed 12 --json c.json");
  const std::string a = without_seconds(content_of(directory_ / "a.json"));
  EXPECT_FALSE(a.empty());
  EXPECT_EQ(a, without_seconds(content_of(directory_ / "b.json")));
  EXPECT_NE(a, without_seconds(content_of(directory_ / "c.json")));
}

TEST_F(Tool, CatchesWrongBackendsInTheSameWayForTheSameSeed) {
  const std::string mutants =
      "lockstep mutants --mutant mean --mutant loss_hangs --mutant every_100th_call "
      "--mutant group_sorted --json ";
  shell(mutants + "a.json --seed 11");
  shell(mutants + "b.json --seed 11");
  shell(mutants + "c.json --seed 12");
  const std::string a = without_seconds(content_of(directory_ / "a.json"));
  EXPECT_NE(a.find("\"killed\": 4,\n  \"total\": 4"), std::string::npos) << a;
  EXPECT_EQ(a, without_seconds(content_of(directory_ / "b.json")));
  EXPECT_NE(a, without_seconds(content_of(directory_ / "c.json")));
}

TEST_F(Tool, RunsOnlyThePropertiesAskedFor) {
  const Ended ended = shell(
      "lockstep verify --backend sim --cases 40 --json r.json "
      "--property broadcast_float --property groups");
  EXPECT_EQ(ended.status, 0);
  const std::string json = content_of(directory_ / "r.json");
  EXPECT_NE(json.find(R"({"name": "broadcast_float", "cases": 20, "verdict": "holds"})"),
            std::string::npos)
      << json;
  EXPECT_NE(json.find(R"({"name": "groups", "cases": 20, "verdict": "holds"})"), std::string::npos);
  EXPECT_EQ(json.find("all_reduce_sum"), std::string::npos);
}

TEST_F(Tool, FollowsTheSumRuleAskedFor) {
  const Ended ended = shell(
      "lockstep verify --backend sim --sum-rule rank_order --cases 300 "
      "--property all_reduce_sum --json r.json");
  EXPECT_EQ(ended.status, 0) << ended.out;
  EXPECT_NE(content_of(directory_ / "r.json").find("\"sum_rule\": \"rank_order\""),
            std::string::npos);
}

TEST_F(Tool, CatchesAWrongBackendWithASmallCaseThatReplays) {
  const std::string fault = "export LOCKSTEP_FAULT=own_part; ";
  const Ended ended = shell(fault +
                            "lockstep verify --backend \"$broken\" --cases 600 --ranks 1..6 "
                            "--seed 42 --out found --json r.json");
  ASSERT_EQ(ended.status, 1) << ended.out << ended.err;
  EXPECT_NE(ended.out.find("broken       reduce_scatter_sum gives each rank its rows"),
            std::string::npos)
      << ended.out;
  EXPECT_NE(ended.out.find("holds        all_reduce_sum"), std::string::npos);

  // A world of one leaves out everything it has: one rank, one element.
  std::string found;
  for (const auto& entry : fs::directory_iterator(directory_ / "found")) {
    if (entry.path().filename().string().starts_with("lockstep-reduce_scatter_sum-seed42-")) {
      found = "found/" + entry.path().filename().string();
    }
  }
  ASSERT_NE(found, "");
  EXPECT_EQ(content_of(directory_ / found),
            "{\n"
            "  \"lockstep_case\": 1,\n"
            "  \"world\": 1,\n"
            "  \"steps\": [\n"
            "    { \"op\": \"reduce_scatter_sum\",\n"
            "      \"inputs\": [\n"
            "        { \"dtype\": \"f32\", \"shape\": [1], \"values\": [1] } ],\n"
            "      \"expected\": [\n"
            "        { \"dtype\": \"f32\", \"shape\": [1], \"values\": [1] } ] } ]\n"
            "}\n");
  EXPECT_NE(content_of(directory_ / "r.json").find("\"counterexample\": \"" + found + "\""),
            std::string::npos);

  // The last line is the command that shows it again.
  const std::string last = ended.out.substr(ended.out.rfind('\n', ended.out.size() - 2) + 1);
  const Ended again = shell(fault + last.substr(0, last.size() - 1));
  EXPECT_EQ(again.status, 1) << last << again.err;
  EXPECT_NE(again.out.find("broken differs from the oracle (sum)"), std::string::npos) << again.out;
  // The case is not to blame.
  EXPECT_EQ(shell("lockstep replay --backend sim " + found).status, 0);
}

TEST_F(Tool, FindsTheSameCounterexampleAgain) {
  const std::string line =
      "export LOCKSTEP_FAULT=own_part; lockstep verify --backend \"$broken\" "
      "--cases 300 --ranks 2..6 --seed 9 --json r.json --out ";
  ASSERT_EQ(shell(line + "a").status, 1);
  const std::string first = content_of(directory_ / "r.json");
  ASSERT_EQ(shell(line + "b").status, 1);
  for (const auto& entry : fs::directory_iterator(directory_ / "a")) {
    EXPECT_EQ(content_of(entry.path()), content_of(directory_ / "b" / entry.path().filename()));
  }
  EXPECT_EQ(without_seconds(first),
            std::regex_replace(without_seconds(content_of(directory_ / "r.json")),
                               std::regex("\"b/lockstep"), "\"a/lockstep"));
}

TEST_F(Tool, EndsABackendThatHangs) {
  const Ended ended = shell(
      "export LOCKSTEP_FAULT=hang; lockstep verify --backend \"$broken\" "
      "--property all_gather_int --ranks 2 --seed 3 --timeout 0.5");
  EXPECT_EQ(ended.status, 3);
  EXPECT_NE(ended.err.find("did not finish case 0 of all_gather_int within 0.5 s"),
            std::string::npos)
      << ended.err;
  EXPECT_EQ(files(), std::vector<std::string>{"lockstep-all_gather_int-seed3-0.json"});
  EXPECT_EQ(shell("lockstep replay lockstep-all_gather_int-seed3-0.json").status, 0);
}

TEST_F(Tool, SavesTheCaseInWhichABackendEndsTheProcessOrCrashes) {
  const std::pair<std::string, std::string> faults[] = {{"exits", "ended the process in"},
                                                        {"crashes", "crashed (Aborted) in"}};
  for (const auto& [fault, said] : faults) {
    SCOPED_TRACE(fault);
    const Ended ended = shell("export LOCKSTEP_FAULT=" + fault +
                              "; lockstep verify --backend \"$broken\" --property all_reduce_sum "
                              "--ranks 2 --seed 3 --out " +
                              fault);
    EXPECT_EQ(ended.status, 3);
    EXPECT_NE(ended.err.find(said + " case 0 of all_reduce_sum;"), std::string::npos) << ended.err;
    const std::string file = fault + "/lockstep-all_reduce_sum-seed3-0.json";
    EXPECT_EQ(shell("lockstep replay " + file).status, 0);
    const Ended again =
        shell("export LOCKSTEP_FAULT=" + fault + "; lockstep replay --backend \"$broken\" " + file);
    EXPECT_EQ(again.status, 3);
    EXPECT_NE(again.err.find(said + " " + file), std::string::npos) << again.err;
  }
}

TEST_F(Tool, RefusesRanksThatABackendMadeUp) {
  const Ended ended =
      shell("export LOCKSTEP_FAULT=rank; lockstep verify --backend \"$broken\" --ranks 2..4");
  EXPECT_EQ(ended.status, 3);
  EXPECT_NE(ended.err.find("the backend broke: it ran rank "), std::string::npos) << ended.err;
}

TEST_F(Tool, DoesNotCheckAnotherSumRuleThanItWasAskedFor) {
  const Ended ended = shell("lockstep verify --backend \"$broken\" --sum-rule rank_order");
  EXPECT_EQ(ended.status, 2);
  EXPECT_NE(ended.err.find("its sums are exact, not rank_order as --sum-rule asks"),
            std::string::npos)
      << ended.err;
}

TEST_F(Tool, WritesThroughPipesAndLinksAndReplacesNeither) {
  const std::string verify = "lockstep verify --backend sim --cases 3 --seed 1 --json ";
  EXPECT_EQ(shell("mkfifo pipe; cat pipe > read & " + verify + "pipe; wait; test -p pipe").status,
            0);
  EXPECT_NE(content_of(directory_ / "read").find("\"verdict\": \"holds\""), std::string::npos);
  EXPECT_EQ(shell("touch there; ln -s there link; " + verify + "link; test -L link").status, 0);
  EXPECT_NE(content_of(directory_ / "there").find("\"verdict\": \"holds\""), std::string::npos);
}

TEST_F(Tool, SaysThatItsOutputWasLost) {
  write("gather.json", gather_case);
  if (!fs::is_character_file("/dev/full")) GTEST_SKIP() << "there is no /dev/full";
  for (const std::string command :
       {"verify --backend sim --cases 3", "oracle gather.json", "replay gather.json", "backends"}) {
    const Ended ended = shell("lockstep " + command + " > /dev/full");
    EXPECT_EQ(ended.status, 2) << command;
    EXPECT_NE(ended.err.find("the output was lost"), std::string::npos) << ended.err;
  }
}

TEST_F(Tool, TellsABackendThatBrokeFromOneThatIsWrong) {
  const Ended ended = shell("export LOCKSTEP_FAULT=dies; lockstep verify --backend \"$broken\"");
  EXPECT_EQ(ended.status, 3);
  EXPECT_EQ(ended.err, "lockstep: the backend broke: rank 1 died of a test\n");
}

TEST_F(Tool, VerifiesSeveralBackendsOneAfterTheOther) {
  const Ended ended = shell(
      "export LOCKSTEP_FAULT=own_part; lockstep verify --cases 200 --ranks 1..3 "
      "--backend sim --backend \"$broken\" --json r.json --out .");
  EXPECT_EQ(ended.status, 1) << ended.err;
  const std::string json = content_of(directory_ / "r.json");
  EXPECT_TRUE(json.starts_with("{\"backends\": [\n{\n  \"backend\": \"sim\"")) << json;
  EXPECT_NE(json.find("\"backend\": \"broken\""), std::string::npos);
}

// --- replay

TEST_F(Tool, ReplaysCasesOnTheSimulator) {
  write("gather.json", gather_case);
  const Ended ended = shell("lockstep replay gather.json gather.json");
  EXPECT_EQ(ended.status, 0);
  EXPECT_EQ(ended.out, "gather.json: holds on sim\ngather.json: holds on sim\n");
}

TEST_F(Tool, DisagreesWithAFileThatExpectsSomethingElse) {
  write("wrong.json", R"({"lockstep_case": 1, "world": 1, "steps": [{"op": "all_gather_int",
      "inputs": [{"dtype": "i32", "shape": [1], "values": [7]}],
      "expected": [{"dtype": "i32", "shape": [1], "values": [8]}]}]})");
  const Ended ended = shell("lockstep replay wrong.json");
  EXPECT_EQ(ended.status, 1);
  EXPECT_NE(ended.out.find("wrong.json: the file expects something else than the oracle"),
            std::string::npos)
      << ended.out;
}

TEST_F(Tool, JudgesWhatWasRecordedWithoutRunningAnything) {
  const auto recorded = [&](const std::string& name, const std::string& second) {
    write(name, R"({"lockstep_case": 1, "world": 2,
      "recorded": {"backend": "mine", "sum_rule": "exact"}, "steps": [{"op": "all_gather_int",
      "inputs": [{"dtype": "i32", "shape": [1], "values": [7]},
                 {"dtype": "i32", "shape": [1], "values": [-8]}],
      "received": [{"dtype": "i32", "shape": [2], "values": [7, -8]},
                   {"dtype": "i32", "shape": [2], "values": [7, )" +
                    second + "]}]}]}");
  };
  recorded("right.json", "-8");
  recorded("wrong.json", "8");
  EXPECT_EQ(shell("lockstep replay right.json").out, "right.json: holds, as recorded from mine\n");
  const Ended ended = shell("lockstep replay right.json wrong.json");
  EXPECT_EQ(ended.status, 1);
  EXPECT_NE(ended.out.find("wrong.json: mine differed from the oracle when it was recorded (bits)\n"
                           "step 0, all_gather_int, rank 1: element 1"),
            std::string::npos)
      << ended.out;
  EXPECT_EQ(shell("lockstep replay --backend sim wrong.json").out, "wrong.json: holds on sim\n");
}

TEST_F(Tool, RefusesAFileWithATrailingComma) {
  write("comma.json", "{\"lockstep_case\": 1, \"world\": 1,\n \"steps\": [],}");
  const Ended ended = shell("lockstep replay comma.json");
  EXPECT_EQ(ended.status, 2);
  EXPECT_NE(ended.err.find("comma.json"), std::string::npos);
  EXPECT_NE(ended.err.find("2"), std::string::npos) << "the line";
}

TEST_F(Tool, CannotReplayGroupsWithoutSubCommunicators) {
  write("group.json", R"({"lockstep_case": 1, "world": 2, "steps": [{"group": [1],
      "op": "all_gather_int", "inputs": [{"dtype": "i32", "shape": [1], "values": [7]}]}]})");
  EXPECT_EQ(shell("lockstep replay --backend sim group.json").status, 0);
  EXPECT_EQ(shell("lockstep replay --backend \"$broken\" group.json").status, 77);
}

// --- oracle

TEST_F(Tool, FillsInWhatMustComeBack) {
  write("gather.json", gather_case);
  const Ended ended = shell("lockstep oracle gather.json | tee answered.json");
  EXPECT_NE(ended.out.find("\"expected\": [\n"
                           "        { \"dtype\": \"i32\", \"shape\": [2], \"values\": [7, -8] },\n"
                           "        { \"dtype\": \"i32\", \"shape\": [2], \"values\": [7, -8] } ]"),
            std::string::npos)
      << ended.out;
  EXPECT_EQ(shell("lockstep replay answered.json").status, 0);
}

TEST_F(Tool, AnswersLineByLine) {
  std::string line = gather_case;
  std::erase(line, '\n');
  write("lines", line + "\n{\n" + line + "\n");
  const Ended ended = shell("lockstep oracle - <lines");
  EXPECT_EQ(ended.status, 2) << "one line was bad";
  EXPECT_EQ(std::ranges::count(ended.out, '\n'), 3) << "and every line has an answer";
  EXPECT_NE(ended.out.find("\n{\"error\": \"line 2:"), std::string::npos) << ended.out;
  EXPECT_TRUE(ended.err.starts_with("lockstep: line 2:")) << ended.err;
}

TEST_F(Tool, AnswersALineBeforeTheNextOneIsThere) {
  std::string line = gather_case;
  std::erase(line, '\n');
  write("line", line + "\n");
  // The second line is only sent when the answer to the first has come.
  const Ended ended = shell(
      "mkfifo ask answer; lockstep oracle - <ask >answer & exec 3>ask 4<answer; "
      "cat line >&3; read -r first <&4; cat line >&3; read -r second <&4; "
      "exec 3>&-; wait; test \"$first\" = \"$second\" && echo \"$second\"");
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_TRUE(ended.out.starts_with("{ \"lockstep_case\": 1")) << ended.out;
}

TEST_F(Tool, RefusesAReferenceToAValueThatIsAnError) {
  write("error.json", R"({"lockstep_case": 1, "world": 2, "steps": [
    {"op": "all_gather_int", "inputs": [
      {"dtype": "i32", "shape": [1], "values": [7]},
      {"dtype": "i64", "shape": [1], "values": [8]}]},
    {"op": "all_gather_int", "inputs": [{"from_step": 0}, {"from_step": 0}]}]})");
  const Ended ended = shell("lockstep oracle error.json");
  EXPECT_EQ(ended.status, 2);
  EXPECT_NE(ended.err.find("/steps/1/inputs/0/from_step"), std::string::npos) << ended.err;
  EXPECT_EQ(ended.out, "");
}

TEST_F(Tool, DoesNotDieOfACaseThatAsksForMoreThanThereIs) {
  std::string steps = R"({"op": "all_gather_int", "inputs": [)";
  for (int rank = 0; rank < 8; ++rank) {
    steps +=
        std::string(rank > 0 ? "," : "") + R"({"dtype": "i64", "shape": [4], "values": [1,2,3,4]})";
  }
  steps += "]}";
  for (int step = 0; step < 18; ++step) {
    steps += R"(,{"op": "all_gather_int", "inputs": [)";
    for (int rank = 0; rank < 8; ++rank) {
      steps += std::string(rank > 0 ? "," : "") + "{\"from_step\": " + std::to_string(step) + "}";
    }
    steps += "]}";
  }
  write("growing.json", "{\"lockstep_case\": 1, \"world\": 8, \"steps\": [" + steps + "]}");
  const Ended ended = shell("ulimit -v 4000000; lockstep oracle growing.json");
  EXPECT_EQ(ended.status, 2);
  EXPECT_NE(ended.err.find("memory"), std::string::npos) << ended.err;
}

}  // namespace
