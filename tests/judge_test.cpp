#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include <lockstep/half.hpp>
#include <lockstep/kit/case_file.hpp>
#include <lockstep/kit/judge.hpp>
#include <lockstep/kit/program_oracle.hpp>

namespace lockstep::kit {
namespace {

std::string world(int ranks, const std::string& steps) {
  return R"({"lockstep_case": 1, "world": )" + std::to_string(ranks) + R"(, "steps": [)" + steps +
         "]}";
}

// A divergence, or none; reading the words of none does no harm, so that a test that expects some
// fails instead of crashing.
struct Verdict : Divergence {
  bool diverges = false;
};
Verdict verdict(const std::optional<Divergence>& divergence) {
  if (divergence) return {*divergence, true};
  return {{0, 0, 0, "holds", "holds"}, false};
}

// What the judge says of a backend that does everything right but for one thing.
Verdict judge_with(const std::string& text, const std::function<void(Transcript&)>& wrong,
                   SumRule rule = SumRule::exact) {
  const Case c = read_case(text);
  Transcript transcript =
      expected_transcript(c, rule == SumRule::unspecified ? SumRule::exact : rule);
  EXPECT_FALSE(judge(c, transcript, rule).has_value());
  wrong(transcript);
  return verdict(judge(c, transcript, rule));
}

FloatTensor floats(std::vector<float> values) {
  const auto size = static_cast<std::int64_t>(values.size());
  return FloatTensor::of<float>({size}, values);
}
FloatTensor float_bits(std::initializer_list<std::uint32_t> bits) {
  std::vector<float> values;
  for (std::uint32_t one : bits) values.push_back(from_bits<float>(one));
  return floats(values);
}

const std::string gather = world(2, R"({"op": "all_gather_float", "inputs": [
    {"dtype": "f32", "shape": [1, 2], "values": [1, 2]},
    {"dtype": "f32", "shape": [1, 2], "values": [3, 4]}]})");
const std::string reduce = world(3, R"({"op": "all_reduce_sum", "inputs": [
    {"dtype": "f32", "shape": [2], "values": [1, 0.25]},
    {"dtype": "f32", "shape": [2], "values": [2, 0.5]},
    {"dtype": "f32", "shape": [2], "values": [4, 16777216]}]})");
const std::string exchange = world(2, R"({"op": "all_to_all_v_int", "inputs": [
    {"dtype": "i32", "shape": [2, 1], "values": [1, 2], "send_counts": [1, 1]},
    {"dtype": "i32", "shape": [1, 1], "values": [3], "send_counts": [0, 1]}]})");
const std::string broken_call = world(2, R"({"op": "all_reduce_sum", "inputs": [
    {"dtype": "f32", "shape": [1], "values": [1]}, {"dtype": "f16", "shape": [1], "values": [1]}]})");
const std::string departure = world(3, R"({"op": "all_reduce_sum", "inputs": [null,
    {"dtype": "f32", "shape": [1], "values": [1]}, {"dtype": "f32", "shape": [1], "values": [1]}]})");

TEST(Judge, NamesTheFirstWrongElementWithItsBits) {
  const auto divergence = judge_with(gather, [](Transcript& transcript) {
    transcript[0][1].value = FloatTensor::of<float>({2, 2}, {1, 2, 5, 4});
  });
  ASSERT_TRUE(divergence.diverges);
  EXPECT_EQ(divergence.step, 0);
  EXPECT_EQ(divergence.member, 1);
  EXPECT_EQ(divergence.world_rank, 1);
  EXPECT_EQ(divergence.aspect, "bits");
  EXPECT_EQ(divergence.explanation,
            "step 0, all_gather_float, rank 1: row 1, element [1, 0] (number 2) of f32 [2, 2]\n"
            "  expected 3 (0x40400000)\n"
            "  received 5 (0x40a00000)");
}

TEST(Judge, SeesTheSignOfZeroAndThePayloadOfANaNThatMoved) {
  const std::string text = world(2, R"({"op": "broadcast_float", "root": 0, "inputs": [
      {"dtype": "f32", "shape": [3], "values": ["-0", "0x7fc00001", 2]},
      {"dtype": "f32", "shape": [3], "values": [0, 0, 0]}]})");
  EXPECT_EQ(judge_with(text,
                       [](Transcript& transcript) {
                         transcript[0][0].value = float_bits({0, 0x7fc00000, 0x40000000});
                       })
                .explanation,
            "step 0, broadcast_float, rank 0: element 0 of f32 [3]\n"
            "  expected -0 (0x80000000)\n"
            "  received 0 (0x00000000)\n"
            "  2 elements are wrong");
}

TEST(Judge, TellsHowFarOffASumIs) {
  const auto divergence = judge_with(reduce, [](Transcript& transcript) {
    for (Outcome& outcome : transcript[0]) outcome.value = floats({7, 16777218});
  });
  EXPECT_EQ(divergence.aspect, "sum");
  EXPECT_EQ(divergence.explanation,
            "step 0, all_reduce_sum, rank 0: element 1 of f32 [2]\n"
            "  expected 16777216 (0x4b800000)\n"
            "  received 16777218 (0x4b800001), 1 unit in the last place away");
}

TEST(Judge, HoldsASumToTheRuleOfTheBackend) {
  const std::string text = world(3, R"({"op": "reduce_scatter_sum", "inputs": [
      {"dtype": "f16", "shape": [3], "values": [0, 2048, 0]},
      {"dtype": "f16", "shape": [3], "values": [0, 1, 0]},
      {"dtype": "f16", "shape": [3], "values": [0, 1, 0]}]})");
  const auto give = [](std::uint16_t bits) {
    return [bits](Transcript& transcript) {
      transcript[0][1].value = FloatTensor::of<f16>({1}, {f16{bits}});
    };
  };
  constexpr std::uint16_t sum_2048 = 0x6800;
  constexpr std::uint16_t sum_2050 = 0x6801;
  constexpr std::uint16_t sum_2052 = 0x6802;
  EXPECT_TRUE(judge_with(text, give(sum_2048), SumRule::exact).diverges);
  EXPECT_TRUE(judge_with(text, give(sum_2050), SumRule::rank_order).diverges);
  EXPECT_FALSE(judge_with(text, give(sum_2048), SumRule::unspecified).diverges);
  EXPECT_FALSE(judge_with(text, give(sum_2050), SumRule::unspecified).diverges);
  const auto divergence = judge_with(text, give(0x6803), SumRule::unspecified);
  EXPECT_EQ(divergence.aspect, "sum");
  EXPECT_EQ(divergence.explanation,
            "step 0, reduce_scatter_sum, rank 1: element 0 of f16 [1]\n"
            "  expected 2050 (0x6801)\n"
            "  received 2054 (0x6803), 2 units in the last place away\n"
            "  the exact sum is about 2050, and this is off by 4, beyond what any order of "
            "summation explains");
  EXPECT_FALSE(judge_with(text, give(sum_2052), SumRule::unspecified).diverges);
}

TEST(Judge, TakesAnyNaNOutOfASumButTheSameOnAllRanks) {
  const std::string text = world(2, R"({"op": "all_reduce_sum", "inputs": [
      {"dtype": "f32", "shape": [1], "values": ["inf"]}, {"dtype": "f32", "shape": [1], "values": ["-inf"]}]})");
  for (SumRule rule : {SumRule::exact, SumRule::rank_order, SumRule::unspecified}) {
    EXPECT_FALSE(judge_with(
                     text,
                     [](Transcript& transcript) {
                       for (Outcome& outcome : transcript[0])
                         outcome.value = float_bits({0xffc01234});
                     },
                     rule)
                     .diverges);
    const auto divergence = judge_with(
        text,
        [](Transcript& transcript) {
          for (Outcome& outcome : transcript[0]) outcome.value = float_bits({0xffc01234});
          transcript[0][1].value = float_bits({0x7fc01234});
        },
        rule);
    EXPECT_EQ(divergence.aspect, "agreement");
    EXPECT_EQ(divergence.explanation,
              "step 0, all_reduce_sum, rank 1: element 0 of f32 [1] is not the same on every rank\n"
              "  on rank 0 NaN (0xffc01234)\n"
              "  here      NaN (0x7fc01234)");
  }
}

TEST(Judge, HoldsRanksThatMayRoundDifferentlyToOneAnother) {
  const auto divergence = judge_with(
      reduce,
      [](Transcript& transcript) {
        transcript[0][2].value = floats({7, 16777218});
      },
      SumRule::unspecified);
  EXPECT_EQ(divergence.aspect, "agreement");
  EXPECT_EQ(divergence.member, 2);
}

TEST(Judge, LetsAWorldOfOneMoveItsTensorBitForBitUnderEveryRule) {
  const std::string text = world(1, R"({"op": "all_reduce_sum", "inputs": [
      {"dtype": "f32", "shape": [1], "values": ["0x7f800001"]}]})");
  for (SumRule rule : {SumRule::exact, SumRule::rank_order, SumRule::unspecified}) {
    EXPECT_TRUE(judge_with(
                    text,
                    [](Transcript& transcript) {
                      transcript[0][0].value = float_bits({0x7fc00001});  // made quiet
                    },
                    rule)
                    .diverges);
  }
}

TEST(Judge, ComparesALaterStepWithWhatTheBackendItselfReturned) {
  const std::string text = world(2, R"({"op": "all_reduce_sum", "inputs": [
      {"dtype": "f32", "shape": [1], "values": ["nan"]}, {"dtype": "f32", "shape": [1], "values": [1]}]},
      {"op": "all_gather_float", "inputs": [{"from_step": 0}, {"from_step": 0}]})");
  const auto payload_moved = [](Transcript& transcript) {
    for (Outcome& outcome : transcript[0]) outcome.value = float_bits({0x7fc00055});
    for (Outcome& outcome : transcript[1]) outcome.value = float_bits({0x7fc00055, 0x7fc00055});
  };
  EXPECT_FALSE(judge_with(text, payload_moved).diverges);
  const auto payload_lost = [](Transcript& transcript) {
    for (Outcome& outcome : transcript[0]) outcome.value = float_bits({0x7fc00055});
  };
  const auto divergence = judge_with(text, payload_lost);
  EXPECT_EQ(divergence.step, 1);
  EXPECT_EQ(divergence.aspect, "bits");
}

TEST(Judge, ComparesDtypeShapeAndReceiveCounts) {
  const auto wrong_dtype = judge_with(gather, [](Transcript& transcript) {
    transcript[0][0].value = FloatTensor::of<double>({2, 2}, {1, 2, 3, 4});
  });
  EXPECT_EQ(wrong_dtype.aspect, "dtype");
  EXPECT_EQ(wrong_dtype.explanation,
            "step 0, all_gather_float, rank 0: a result of another dtype\n"
            "  expected f32 [2, 2]\n"
            "  received f64 [2, 2]");
  const auto wrong_shape = judge_with(gather, [](Transcript& transcript) {
    transcript[0][0].value = FloatTensor::of<float>({4}, {1, 2, 3, 4});
  });
  EXPECT_EQ(wrong_shape.aspect, "shape");
  const auto wrong_counts = judge_with(exchange, [](Transcript& transcript) {
    transcript[0][1].receive_counts = {2, 0};
  });
  EXPECT_EQ(wrong_counts.aspect, "receive_counts");
  EXPECT_EQ(wrong_counts.explanation,
            "step 0, all_to_all_v_int, rank 1: other receive counts\n"
            "  expected [1, 1]\n"
            "  received [2, 0]");
}

TEST(Judge, WantsTheSameViolationFromEveryRank) {
  const auto divergence = judge_with(broken_call, [](Transcript& transcript) {
    transcript[0][1].violation = Violation::shape;
    transcript[0][1].message = "shapes differ";
  });
  EXPECT_EQ(divergence.aspect, "violation");
  EXPECT_EQ(divergence.member, 1);
  EXPECT_EQ(divergence.explanation,
            "step 0, all_reduce_sum, rank 1: another violation\n"
            "  expected a contract error (dtype): every rank must pass the same dtype; rank 0 "
            "passed f32 [1]; rank 1 passed f16 [1]\n"
            "  received a contract error (shape): shapes differ");
}

TEST(Judge, WantsTheSameWordsFromEveryRank) {
  const auto divergence = judge_with(broken_call, [](Transcript& transcript) {
    transcript[0][0].message = "dtypes differ";
    transcript[0][1].message = "dtypes differ, you see";
  });
  EXPECT_EQ(divergence.aspect, "message");
  EXPECT_EQ(divergence.explanation,
            "step 0, all_reduce_sum, rank 1: the error reads otherwise than on rank 0\n"
            "  there dtypes differ\n"
            "  here  dtypes differ, you see");
}

TEST(Judge, LetsEveryRankSayInItsOwnWordsWhomItMissed) {
  const auto different_words = [](Transcript& transcript) {
    transcript[0][1].message = "rank 0 has returned";
    transcript[0][2].message = "ranks 0 and 3 have returned";
  };
  const std::string x = R"({"dtype": "f32", "shape": [1], "values": [1]})";
  const std::string step = R"({"op": "all_reduce_sum", "inputs": [null, )" + x + ", " + x + ", ";
  EXPECT_FALSE(judge_with(world(4, step + "null]}"), different_words).diverges);
  // Where one is missing, everybody missed the same.
  EXPECT_EQ(judge_with(departure, different_words).aspect, "message");
}

TEST(Judge, WantsTheErrorForAMissingRankToNameItAndToStay) {
  EXPECT_EQ(judge_with(departure, [](Transcript& transcript) {
              transcript[0][2].lost_ranks = {2, 7, -1};
            }).aspect,
            "lost");
  const std::string x = R"({"dtype": "f32", "shape": [1], "values": [1]})";
  const std::string step = R"({"op": "all_reduce_sum", "inputs": [null, )" + x + "]}";
  const auto later = judge_with(world(2, step + ", " + step), [](Transcript& transcript) {
    transcript[1][1].message = "the communicator is closed";
  });
  EXPECT_EQ(later.aspect, "message");
  EXPECT_EQ(later.explanation,
            "step 1, all_reduce_sum, rank 1: the error reads otherwise than in step 0\n"
            "  there rank 0 has left the world\n"
            "  here  the communicator is closed");
}

TEST(Judge, TellsAValueFromAnError) {
  const auto divergence = judge_with(departure, [](Transcript& transcript) {
    transcript[0][1] = Outcome();
    transcript[0][1].kind = Outcome::Kind::value;
  });
  EXPECT_EQ(divergence.aspect, "outcome");
  EXPECT_EQ(divergence.explanation,
            "step 0, all_reduce_sum, rank 1: a wrong outcome\n"
            "  expected a transport error: rank 0 has left the world\n"
            "  received a value");
}

TEST(Judge, BlamesTheRankThatBrokeRatherThanItsPeers) {
  const auto divergence = judge_with(reduce, [](Transcript& transcript) {
    for (Outcome& outcome : transcript[0]) outcome.kind = Outcome::Kind::transport;
    transcript[0][2].kind = Outcome::Kind::broken;
    transcript[0][2].message = "out of memory";
  });
  EXPECT_EQ(divergence.member, 2);
  EXPECT_EQ(divergence.explanation,
            "step 0, all_reduce_sum, rank 2: a wrong outcome\n"
            "  expected a value\n"
            "  received an error outside the contract: out of memory");
}

TEST(Judge, MissesOutcomesThatWereNotReported) {
  EXPECT_EQ(judge_with(reduce, [](Transcript& transcript) { transcript.clear(); }).aspect,
            "missing");
  EXPECT_EQ(judge_with(reduce, [](Transcript& transcript) { transcript[0].pop_back(); }).aspect,
            "missing");
  const auto divergence =
      judge_with(reduce, [](Transcript& transcript) { transcript[0][1] = Outcome(); });
  EXPECT_EQ(divergence.aspect, "missing");
  EXPECT_EQ(
      divergence.explanation,
      "step 0, all_reduce_sum, rank 1: no outcome was reported, where there should be a value");
}

TEST(Judge, ReportsTensorsThatWereChangedBehindTheCallersBack) {
  EXPECT_EQ(
      judge_with(reduce, [](Transcript& transcript) { transcript[0][1].input_changed = true; })
          .aspect,
      "input");
  EXPECT_EQ(
      judge_with(broken_call, [](Transcript& transcript) { transcript[0][1].input_changed = true; })
          .aspect,
      "input");
  EXPECT_EQ(
      judge_with(reduce, [](Transcript& transcript) { transcript[0][1].result_changed = true; })
          .aspect,
      "result");
}

TEST(Judge, NumbersRanksOfAGroupBothWays) {
  const std::string text = world(4, R"({"group": [3, 1], "op": "all_gather_int", "inputs": [
      {"dtype": "u8", "shape": [1], "values": [33]}, {"dtype": "u8", "shape": [1], "values": [11]}]})");
  const auto divergence = judge_with(text, [](Transcript& transcript) {
    transcript[0][0].value = IntTensor::of<std::uint8_t>({2}, {11, 33});
  });
  EXPECT_EQ(divergence.member, 0);
  EXPECT_EQ(divergence.world_rank, 3);
  EXPECT_EQ(
      divergence.explanation,
      "step 0, all_gather_int, rank 0 of the group [3, 1] (rank 3 of the world): element 0 of "
      "u8 [2]\n"
      "  expected 33 (0x21)\n"
      "  received 11 (0x0b)\n"
      "  2 elements are wrong");
}

// --- Gradients

const std::string gather_gradient = world(3, R"({"op": "all_gather_float", "inputs": [
    {"dtype": "f16", "shape": [1], "values": [1]}, {"dtype": "f16", "shape": [1], "values": [2]},
    {"dtype": "f16", "shape": [1], "values": [3]}],
    "upstream": [{"dtype": "f16", "shape": [3], "values": [1, 2048, 3]},
                 {"dtype": "f16", "shape": [3], "values": [10, 1, 30]},
                 {"dtype": "f16", "shape": [3], "values": [100, 1, 300]}]})");

TEST(JudgeOfGradients, RefusesTheLocalSliceInsteadOfTheSum) {
  const auto divergence = judge_with(gather_gradient, [](Transcript& transcript) {
    transcript[0][0].gradient = FloatTensor::of<f16>({1}, {to_f16(1.0f)});
  });
  EXPECT_EQ(divergence.aspect, "gradient");
  EXPECT_EQ(divergence.explanation,
            "step 0, all_gather_float, rank 0: the gradient: element 0 of f16 [1]\n"
            "  expected 111 (0x56f0)\n"
            "  received 1 (0x3c00), 6896 units in the last place away");
}

TEST(JudgeOfGradients, AddsByTheRuleOfTheBackend) {
  const auto rounded = [](Transcript& transcript) {
    transcript[0][1].gradient = FloatTensor::of<f16>({1}, {f16{0x6800}});  // 2048
  };
  EXPECT_TRUE(judge_with(gather_gradient, rounded, SumRule::exact).diverges);
  EXPECT_FALSE(judge_with(gather_gradient, rounded, SumRule::unspecified).diverges);
}

TEST(JudgeOfGradients, MissesOne) {
  const auto divergence = judge_with(gather_gradient, [](Transcript& transcript) {
    transcript[0][2].gradient.reset();
    transcript[0][2].message = "rank 1 is gone";
  });
  EXPECT_EQ(divergence.aspect, "gradient");
  EXPECT_EQ(divergence.explanation,
            "step 0, all_gather_float, rank 2: the gradient: a wrong outcome\n"
            "  expected a gradient f16 [1]\n"
            "  received no gradient: rank 1 is gone");
}

TEST(JudgeOfGradients, WantsTheErrorThatAWrongUpstreamGives) {
  const std::string text = world(2, R"({"op": "all_reduce_sum", "inputs": [
      {"dtype": "f32", "shape": [], "values": [1]}, {"dtype": "f32", "shape": [], "values": [2]}],
      "upstream": [{"dtype": "f32", "shape": [1], "values": [1]}, null]})");
  const auto divergence = judge_with(text, [](Transcript& transcript) {
    transcript[0][1].gradient_violation.reset();
    transcript[0][1].gradient = FloatTensor::of<float>({}, {1.0f});
  });
  EXPECT_EQ(divergence.explanation,
            "step 0, all_reduce_sum, rank 1: the gradient: a wrong outcome\n"
            "  expected a contract error (gradient)\n"
            "  received a gradient f32 []");
}

TEST(JudgeOfGradients, TellsOneViolationFromAnother) {
  const std::string text = world(1, R"({"op": "all_gather_int", "inputs": [
      {"dtype": "u8", "shape": [1], "values": [1]}],
      "upstream": [{"dtype": "f32", "shape": [1], "values": [1]}]})");
  EXPECT_EQ(judge_with(text,
                       [](Transcript& transcript) {
                         transcript[0][0].gradient_violation = Violation::gradient;
                       })
                .aspect,
            "gradient");
}

TEST(JudgeOfGradients, HoldsRanksThatMayRoundDifferentlyToOneAnother) {
  const std::string text = world(3, R"({"op": "all_reduce_sum", "inputs": [
      {"dtype": "f16", "shape": [], "values": [1]}, {"dtype": "f16", "shape": [], "values": [2]},
      {"dtype": "f16", "shape": [], "values": [3]}],
      "upstream": [{"dtype": "f16", "shape": [], "values": [2048]},
                   {"dtype": "f16", "shape": [], "values": [1]},
                   {"dtype": "f16", "shape": [], "values": [1]}]})");
  const auto rounded_on = [](std::size_t ranks) {
    return [ranks](Transcript& transcript) {
      for (std::size_t rank = 3 - ranks; rank < 3; ++rank) {
        transcript[0][rank].gradient = FloatTensor::of<f16>({}, {f16{0x6800}});  // 2048
      }
    };
  };
  EXPECT_FALSE(judge_with(text, rounded_on(3), SumRule::unspecified).diverges);
  const Verdict verdict = judge_with(text, rounded_on(1), SumRule::unspecified);
  EXPECT_EQ(verdict.aspect, "gradient");
  EXPECT_EQ(verdict.member, 2);
}

TEST(JudgeOfGradients, WantsTrueZerosOnTheRanksThatAreNotTheRoot) {
  const std::string text = world(2, R"({"op": "broadcast_float", "root": 1, "inputs": [
      {"dtype": "f32", "shape": [1], "values": ["nan"]}, {"dtype": "f32", "shape": [1], "values": [2]}],
      "upstream": [{"dtype": "f32", "shape": [1], "values": ["nan"]}, null]})");
  const auto wrong = [](std::uint32_t bits) {
    return [bits](Transcript& transcript) { transcript[0][0].gradient = float_bits({bits}); };
  };
  for (SumRule rule : {SumRule::exact, SumRule::unspecified}) {
    EXPECT_TRUE(judge_with(text, wrong(0x80000000), rule).diverges);
    EXPECT_TRUE(judge_with(text, wrong(0x7fc00000), rule).diverges);
  }
}

// --- What a case itself expects

TEST(JudgeExpected, AgreesWithTheOracleOrSaysWhere) {
  const std::string steps = R"({"op": "all_gather_int", "inputs": [
      {"dtype": "u8", "shape": [1], "values": [1]}, {"dtype": "u8", "shape": [1], "values": [2]}]},
      {"op": "all_gather_int", "inputs": [{"from_step": 0}, {"from_step": 0}], "expected": [
      {"dtype": "u8", "shape": [4], "values": [1, 2, 1, 2]},
      {"dtype": "u8", "shape": [4], "values": [1, 2, 1, LAST]}]})";
  const auto with = [&](const std::string& last) {
    std::string text = world(2, steps);
    return read_case(text.replace(text.find("LAST"), 4, last));
  };
  EXPECT_FALSE(judge_expected(with("2")).has_value());
  EXPECT_EQ(verdict(judge_expected(with("3"))).explanation,
            "step 1, all_gather_int, rank 1: element 3 of u8 [4]\n"
            "  expected 2 (0x02)\n"
            "  received 3 (0x03)");
}

}  // namespace
}  // namespace lockstep::kit
