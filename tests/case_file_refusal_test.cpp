#include <gtest/gtest.h>

#include <string>

#include <lockstep/kit/case_file.hpp>

namespace lockstep::kit {
namespace {

// A world of two with these steps.
std::string two(const std::string& steps) {
  return R"({"lockstep_case": 1, "world": 2, "steps": [)" + steps + "]}";
}

const std::string scalar = R"({"dtype": "f32", "shape": [], "values": [1]})";
const std::string int_row = R"({"dtype": "i32", "shape": [1, 1], "values": [5])";

// The message with which a text is refused; "accepted" when it is not.
std::string refusal(std::string_view text) {
  try {
    read_case(text, "f.json");
  } catch (const CaseFileError& error) {
    return error.what();
  }
  return "accepted";
}

struct Refused {
  const char* situation;
  std::string text;
  std::string message;
};
void PrintTo(const Refused& refused, std::ostream* out) {
  *out << refused.situation;
}

class Refusal : public testing::TestWithParam<Refused> {};

TEST_P(Refusal, SaysWhereAndWhy) {
  EXPECT_EQ(refusal(GetParam().text), GetParam().message);
}

std::string situation(const testing::TestParamInfo<Refused>& info) {
  return info.param.situation;
}

const Refused not_json[] = {
    {"Empty", "", "f.json:1:1: found end of the text, wanted a value"},
    {"CutOff", "{\n  \"world\": 2,\n",
     "f.json:3:1: found end of the text, wanted a key in double quotes"},
    {"TrailingComma", R"({"world": [1, 2,]})", "f.json:1:17: found \"]\", wanted a value"},
    {"TrailingCommaInObject", R"({"world": 1,})",
     "f.json:1:13: found \"}\", wanted a key in double quotes"},
    {"RepeatedKey", "{\"world\": 1,\n \"w\\u006frld\": 2}",
     "f.json:2:2: the key \"world\" is repeated"},
    {"TwoDocuments", "{} {}", "f.json:1:4: found \"{\", wanted nothing more after the document"},
    {"LeadingZero", "[01]", "f.json:1:3: found \"1\", wanted no digit after a leading zero"},
    {"BareFraction", "[1.]", "f.json:1:4: found \"]\", wanted a digit after the decimal point"},
    {"BareExponent", "[1e+]", "f.json:1:5: found \"]\", wanted a digit of the exponent"},
    {"BareMinus", "[-]", "f.json:1:3: found \"]\", wanted a digit"},
    {"PlusSign", "[+1]", "f.json:1:2: found \"+\", wanted a value"},
    {"NaNWord", "[NaN]", "f.json:1:2: found \"N\", wanted a value"},
    {"HalfWord", "[nul]", "f.json:1:2: found \"n\", wanted a value"},
    {"Comment", "// a case\n{}", "f.json:1:1: found \"/\", wanted a value"},
    {"SingleQuotes", "{'world': 1}", "f.json:1:2: found \"'\", wanted a key in double quotes"},
    {"UnknownEscape", R"(["\x"])",
     R"(f.json:1:4: found "x", wanted one of " \ / b f n r t u after a backslash)"},
    {"CutOffEscape", R"(["\u00g0"])",
     R"(f.json:1:7: found "g", wanted four hexadecimal digits after \u)"},
    {"ForeignEscape", R"(["\u00e9"])",
     "f.json:1:5: found \"0\", wanted an ASCII character; no string of a case has any other"},
    {"ForeignByte", "[\"\xc3\xa9\"]",
     "f.json:1:3: found \"\\xc3\", wanted an ASCII character other than a control character, or "
     "the closing quote"},
    {"LineBreakInString", "[\"a\nb\"]",
     "f.json:1:4: found \"\\x0a\", wanted an ASCII character other than a control character, or "
     "the closing quote"},
    {"DeepNesting", std::string(100000, '['), "f.json:1:13: nested deeper than any case is"},
    {"ManyKeys",
     R"({"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1,"h":1,"i":1,"j":1,"k":1,"l":1,"m":1,"n":1,"o":1,"p":1,"q":1})",
     "f.json:1:98: more keys than any object of a case has"},
    {"NoComma", "[1 2]", "f.json:1:4: found \"2\", wanted ',' or ']'"},
    {"NoColon", R"({"world" 1})", "f.json:1:10: found \"1\", wanted ':'"},
};
INSTANTIATE_TEST_SUITE_P(NotJson, Refusal, testing::ValuesIn(not_json), situation);

const std::string row = R"({"dtype": "f32", "shape": [1], "values": [1]})";

const Refused not_a_case[] = {
    {"List", "[]", "f.json:1: the document: found a list of 0, wanted a case"},
    {"UnknownKey", R"({"lockstep_case": 1, "wrold": 2, "steps": []})",
     "f.json:1: the document: unknown key \"wrold\"; the keys of a case are lockstep_case, "
     "sum_rule, "
     "world, window, recorded, steps"},
    {"NoVersion", R"({"world": 2, "steps": []})",
     "f.json:1: the document: the key \"lockstep_case\" is missing"},
    {"OtherVersion", R"({"lockstep_case": 2, "world": 2, "steps": []})",
     "f.json:1: /lockstep_case: found 2, wanted the format's version, 1"},
    {"NoRanks", R"({"lockstep_case": 1, "world": 0, "steps": []})",
     "f.json:1: /world: found 0, wanted a whole number from 1 to 2147483647"},
    {"FractionOfARank", R"({"lockstep_case": 1, "world": 2.0, "steps": []})",
     "f.json:1: /world: found 2.0, wanted a whole number from 1 to 2147483647"},
    {"RuleNobodyCanExpect",
     R"({"lockstep_case": 1, "sum_rule": "unspecified", "world": 2, "steps": []})",
     "f.json:1: /sum_rule: found \"unspecified\", wanted \"exact\" or \"rank_order\""},
    {"StepsAreNoList", R"({"lockstep_case": 1, "world": 2, "steps": {}})",
     "f.json:1: /steps: found an object, wanted a list of steps"},
    {"StepIsNoObject", two("7"), "f.json:1: /steps/0: found 7, wanted a step"},
    {"UnknownKeyOfAStep", two(R"({"op": "all_reduce_sum", "input": []})"),
     "f.json:1: /steps/0: unknown key \"input\"; the keys of a step are group, op, repeat, "
     "root, inputs, upstream, expected, received"},
    {"UnknownOperation", two(R"({"op": "all_reduce", "inputs": [null, null]})"),
     "f.json:1: /steps/0/op: found \"all_reduce\", wanted \"all_gather_float\", "
     "\"all_gather_int\", "
     "\"reduce_scatter_sum\", \"all_reduce_sum\", \"broadcast_float\", \"all_to_all_v_float\" or "
     "\"all_to_all_v_int\""},
    {"TooFewInputs", two(R"({"op": "all_reduce_sum", "inputs": [)" + scalar + "]}"),
     "f.json:1: /steps/0/inputs: found a list of 1, wanted a list of 2, one entry for each rank of "
     "the world"},
    {"InputsOfTheWorldForAGroup",
     two(R"({"group": [1], "op": "all_reduce_sum", "inputs": [)" + scalar + "," + scalar + "]}"),
     "f.json:1: /steps/0/inputs: found a list of 2, wanted a list of 1, one entry for each member "
     "of the group"},
    {"TooManyOperations",
     two(R"({"op": ["all_reduce_sum", "all_reduce_sum", "all_reduce_sum"], "inputs": [)" + scalar +
         "," + scalar + "]}"),
     "f.json:1: /steps/0/op: found a list of 3, wanted a list of 2, one entry for each rank of the "
     "world"},
    {"EmptyGroup", two(R"({"group": [], "op": "all_reduce_sum", "inputs": []})"),
     "f.json:1: /steps/0/group: a group has at least one member"},
    {"RepeatedMember", two(R"({"group": [1, 1], "op": "all_reduce_sum", "inputs": []})"),
     "f.json:1: /steps/0/group/1: rank 1 is in the group twice"},
    {"MemberOutsideTheWorld", two(R"({"group": [2], "op": "all_reduce_sum", "inputs": []})"),
     "f.json:1: /steps/0/group/0: found 2, wanted a whole number from 0 to 1"},
    {"MissingRoot", two(R"({"op": "broadcast_float", "inputs": [)" + scalar + "," + scalar + "]}"),
     "f.json:1: /steps/0: the key \"root\" is missing"},
    {"RootWithoutBroadcast",
     two(R"({"op": "all_reduce_sum", "root": 0, "inputs": [)" + scalar + "," + scalar + "]}"),
     "f.json:1: /steps/0/root: no rank broadcasts, so there is no root"},
    {"TooFewRoots",
     two(R"({"op": "broadcast_float", "root": [0], "inputs": [)" + scalar + "," + scalar + "]}"),
     "f.json:1: /steps/0/root: found a list of 1, wanted a list of 2, one entry for each rank of "
     "the world"},
    {"RootTooLarge",
     two(R"({"op": "broadcast_float", "root": 9223372036854775808, "inputs": [)" + scalar + "," +
         scalar + "]}"),
     "f.json:1: /steps/0/root: found 9223372036854775808, wanted a rank of the communicator"},
    {"IntegersInAFloatOperation",
     two(R"({"op": "all_gather_float", "inputs": [)" + int_row + "}, null]}"),
     "f.json:1: /steps/0/inputs/0/dtype: found \"i32\", wanted \"f16\", \"bf16\", \"f32\" or "
     "\"f64\" "
     "for all_gather_float"},
    {"FloatsInAnIntegerOperation",
     two(R"({"op": "all_gather_int", "inputs": [)" + row + ", null]}"),
     "f.json:1: /steps/0/inputs/0/dtype: found \"f32\", wanted \"u8\", \"u32\", \"i32\" or \"i64\" "
     "for all_gather_int"},
    {"UnlistedDtype",
     two(R"({"op": "all_gather_float", "inputs": [{"dtype": "f8", "shape": [0], "values": []}, null]})"),
     "f.json:1: /steps/0/inputs/0/dtype: found \"f8\", wanted \"f16\", \"bf16\", \"f32\", \"f64\", "
     "\"u8\", \"u32\", \"i32\" or \"i64\""},
    {"NegativeAxis",
     two(R"({"op": "all_gather_float", "inputs": [{"dtype": "f32", "shape": [-1], "values": []}, null]})"),
     "f.json:1: /steps/0/inputs/0/shape/0: found -1, wanted a whole number from 0 to "
     "9223372036854775807"},
    {"ValuesThatDoNotFillTheShape",
     two(R"({"op": "all_gather_float", "inputs": [{"dtype": "f32", "shape": [1, 3], "values": [1]}, null]})"),
     "f.json:1: /steps/0/inputs/0/values: found 1 values; shape [1, 3] holds 3"},
    {"ShapeThatClaimsTheMoon",
     two(R"({"op": "all_gather_float", "inputs": [{"dtype": "f32", "shape": [1000000000, 1000000000, 1000000000], "values": [1]}, null]})"),
     "f.json:1: /steps/0/inputs/0/values: found 1 values; shape [1000000000, 1000000000, "
     "1000000000] holds more than 2^63-1"},
    {"NestedValues",
     two(R"({"op": "all_gather_float", "inputs": [{"dtype": "f32", "shape": [1], "values": [[1]]}, null]})"),
     "f.json:1: /steps/0/inputs/0/values/0: found a list of 1, wanted a number, \"nan\", \"inf\", "
     "\"-inf\", \"-0\", or \"0x\" and 8 hexadecimal digits"},
    {"ElementThatIsNoNumber",
     two(R"({"op": "all_gather_float", "inputs": [{"dtype": "f16", "shape": [1], "values": ["1.5"]}, null]})"),
     "f.json:1: /steps/0/inputs/0/values/0: found \"1.5\", wanted a number, \"nan\", \"inf\", "
     "\"-inf\", \"-0\", or \"0x\" and 4 hexadecimal digits"},
    {"BitsOfAnotherWidth",
     two(R"({"op": "all_gather_float", "inputs": [{"dtype": "f16", "shape": [1], "values": ["0x3f800000"]}, null]})"),
     "f.json:1: /steps/0/inputs/0/values/0: found \"0x3f800000\", wanted a number, \"nan\", "
     "\"inf\", \"-inf\", \"-0\", or \"0x\" and 4 hexadecimal digits"},
    {"IntegerThatDoesNotFit",
     two(R"({"op": "all_gather_int", "inputs": [{"dtype": "u8", "shape": [1], "values": [256]}, null]})"),
     "f.json:1: /steps/0/inputs/0/values/0: found 256, wanted a whole number that fits u8, or "
     "\"0x\" and 2 hexadecimal digits"},
    {"FractionForAnInteger",
     two(R"({"op": "all_gather_int", "inputs": [{"dtype": "u8", "shape": [1], "values": [1.0]}, null]})"),
     "f.json:1: /steps/0/inputs/0/values/0: found 1.0, wanted a whole number that fits u8, or "
     "\"0x\" and 2 hexadecimal digits"},
    {"MissingValues",
     two(R"({"op": "all_gather_float", "inputs": [{"dtype": "f32", "shape": [0]}, null]})"),
     "f.json:1: /steps/0/inputs/0: the key \"values\" is missing"},
    {"MissingCounts", two(R"({"op": "all_to_all_v_int", "inputs": [)" + int_row + "}, null]}"),
     "f.json:1: /steps/0/inputs/0: the key \"send_counts\" is missing"},
    {"CountsNobodyTakes",
     two(R"({"op": "all_gather_int", "inputs": [)" + int_row +
         R"(, "send_counts": [1, 0]}, null]})"),
     "f.json:1: /steps/0/inputs/0/send_counts: all_gather_int takes no counts"},
    {"FractionOfARow",
     two(R"({"op": "all_to_all_v_int", "inputs": [)" + int_row +
         R"(, "send_counts": [0.5, 0.5]}, null]})"),
     "f.json:1: /steps/0/inputs/0/send_counts/0: found 0.5, wanted a whole number of rows"},
    {"RankThatComesBack",
     two(R"({"op": "all_reduce_sum", "inputs": [null, )" + scalar + "]},\n" +
         R"({"group": [1, 0], "op": "all_reduce_sum", "inputs": [)" + scalar + "," + scalar + "]}"),
     "f.json:2: /steps/1/inputs/1: rank 0 left the world in step 0, so its input is null from then "
     "on"},
    {"ReceivedByNobody",
     two(R"({"group": [0], "op": "all_reduce_sum", "inputs": [)" + scalar + R"(], "received": [)" +
         scalar + "]}"),
     "f.json:1: /steps/0/received: the case has no \"recorded\", which says who gave this"},
    {"RecordedRepetitionThatWasNotMade",
     R"({"lockstep_case": 1, "world": 1, "recorded": {"backend": "b", "sum_rule": "exact"}, "steps":
         [{"op": "all_reduce_sum", "repeat": 3, "inputs": [)" +
         scalar +
         R"(], "received": [{"dtype": "f32", "shape": [], "values": [1], "repetition": 3}]}]})",
     "f.json:2: /steps/0/received/0/repetition: found 3, wanted a whole number from 0 to 2"},
    {"RecordedWithoutWhatWasReceived",
     R"({"lockstep_case": 1, "world": 1, "recorded": {"backend": "b", "sum_rule": "exact"}, "steps":
         [{"op": "all_reduce_sum", "inputs": [)" +
         scalar + "]}]}",
     "f.json:2: /steps/0: the key \"received\" is missing"},
    {"RankThatComesBackAfterAnException",
     two(R"({"op": "all_reduce_sum", "inputs": [{"departure": "throws"}, )" + scalar + "]},\n" +
         R"({"op": "all_reduce_sum", "inputs": [{"departure": "throws"}, )" + scalar + "]}"),
     "f.json:2: /steps/1/inputs/0: rank 0 left the world in step 0, so its input is null from then "
     "on"},
    {"DepartureThatIsAReturn",
     two(R"({"op": "all_reduce_sum", "inputs": [{"departure": "returns"}, )" + scalar + "]}"),
     "f.json:1: /steps/0/inputs/0/departure: found \"returns\", wanted \"throws\" or \"stalls\""},
    {"DepartureWithATensor",
     two(R"({"op": "all_reduce_sum", "inputs": [{"departure": "stalls", "dtype": "f32"}, )" +
         scalar + "]}"),
     "f.json:1: /steps/0/inputs/0: unknown key \"dtype\"; the keys of a rank that leaves are "
     "departure"},
    {"DepartureThatShouldGiveAValue",
     two(R"({"op": "all_reduce_sum", "inputs": [{"departure": "stalls"}, )" + scalar +
         R"(], "expected": [)" + scalar + "," + scalar + "]}"),
     "f.json:1: /steps/0/expected/0: found an object, wanted null, as the rank does not enter"},
    {"InputFromThisStep",
     two(R"({"op": "all_reduce_sum", "inputs": [{"from_step": 0}, )" + scalar + "]}"),
     "f.json:1: /steps/0/inputs/0/from_step: step 0 is no step before this one, step 0"},
    {"InputFromALaterStep",
     two(R"({"op": "all_reduce_sum", "inputs": [{"from_step": 1}, )" + scalar + "]}"),
     "f.json:1: /steps/0/inputs/0/from_step: step 1 is no step before this one, step 0"},
    {"InputFromANegativeStep",
     two(R"({"op": "all_reduce_sum", "inputs": [{"from_step": -1}, )" + scalar + "]}"),
     "f.json:1: /steps/0/inputs/0/from_step: step -1 is no step before this one, step 0"},
    {"InputFromAStepOfOthers",
     two(R"({"group": [1], "op": "all_reduce_sum", "inputs": [)" + scalar +
         R"(]}, {"op": "all_reduce_sum", "inputs": [{"from_step": 0}, )" + scalar + "]}"),
     "f.json:1: /steps/1/inputs/0/from_step: step 0 has no value for rank 0: it is no member of "
     "the step's group"},
    {"InputFromAFailedStep",
     two(R"({"op": "all_reduce_sum", "inputs": [)" + scalar +
         R"(, null]}, {"group": [0], "op": "all_reduce_sum", "inputs": [{"from_step": 0}]})"),
     "f.json:1: /steps/1/inputs/0/from_step: step 0 has no value for rank 0: rank 1 had left, "
     "which is a transport error"},
    {"InputOfTheOtherFamily",
     two(R"({"group": [0], "op": "all_gather_int", "inputs": [)" + int_row +
         R"(}]}, {"group": [0], "op": "all_reduce_sum", "inputs": [{"from_step": 0}]})"),
     "f.json:1: /steps/1/inputs/0/from_step: all_reduce_sum does not take what all_gather_int "
     "returned in step 0"},
    {"InputFromAStepAndOfItsOwn",
     two(R"({"op": "all_reduce_sum", "inputs": [{"from_step": 0, "dtype": "f32"}, null]})"),
     "f.json:1: /steps/0/inputs/0: unknown key \"dtype\"; the keys of an input from an earlier "
     "step "
     "are from_step, send_counts"},
    {"UpstreamOfIntegers",
     two(R"({"op": "all_reduce_sum", "inputs": [)" + scalar + "," + scalar + R"(], "upstream": [)" +
         int_row + "}, null]}"),
     "f.json:1: /steps/0/upstream/0/dtype: found \"i32\", wanted \"f16\", \"bf16\", \"f32\" or "
     "\"f64\" for a gradient"},
    {"UpstreamOfARankThatHasLeft",
     two(R"({"op": "all_reduce_sum", "inputs": [null,)" + scalar + R"(], "upstream": [)" + scalar +
         ", null]}"),
     "f.json:1: /steps/0/upstream/0: found an object, wanted null, as the rank has left"},
};
// Every beginning of a case is refused, as is the case with any one byte gone, or read as another.
TEST(CaseFile, CutOffAnywhereIsRefused) {
  const std::string text = two(
      R"({"op": ["all_gather_int", "all_to_all_v_int"], "inputs": [)" + int_row + "}, " + int_row +
      R"(, "send_counts": [1, 0]}], "expected": [{"error": {"kind": "contract",
          "violation": "operation"}}, {"error": {"kind": "contract", "violation": "operation"}}]})");
  ASSERT_EQ(refusal(text), "accepted");
  for (std::size_t length = 0; length < text.size(); ++length) {
    EXPECT_NE(refusal(std::string_view(text).substr(0, length)), "accepted") << length;
    std::string without = text;
    without.erase(length, 1);
    (void)refusal(without);  // throws nothing else
  }
}

// A few bytes that claim much. Each is refused, or read in as much memory as its text takes.
TEST(CaseFile, ThatClaimsMuchCostsLittle) {
  const std::string claims[] = {
      R"({"lockstep_case": 1, "world": 2147483647, "steps": [{"op": "all_reduce_sum", "inputs": []}]})",
      two(R"({"op": "all_reduce_sum", "inputs": [{"dtype": "f64", "shape": ["9223372036854775807"],
          "values": []}, null]})"),
      two(R"({"op": "all_reduce_sum", "inputs": [{"dtype": "f64", "shape": [4294967296, 4294967296],
          "values": [1]}, null]})"),
      two(R"({"op": "all_reduce_sum", "repeat": 1000000000000, "inputs": [null, null]})"),
      two("{\"op\": " + std::string(11, '[') + std::string(11, ']') +
          ", \"inputs\": [null, null]}"),
      two(R"({"op": {"op": {"op": 1}}, "inputs": [null, null]})"),
      two(R"({"op": "all_reduce_sum", "inputs": {"0": null}})"),
      two(R"({"op": "all_reduce_sum", "inputs": [true, 1e999999999]})"),
      R"({"lockstep_case": 1, "world": 1e9, "steps": []})",
  };
  for (const std::string& claim : claims) EXPECT_NE(refusal(claim), "accepted") << claim;
  EXPECT_EQ(refusal(R"({"lockstep_case": 1, "world": 2147483647, "steps": []})"), "accepted");
}

INSTANTIATE_TEST_SUITE_P(NotACase, Refusal, testing::ValuesIn(not_a_case), situation);

// An exchange of two ranks that sends everything to rank 0, with this expected of rank 0, and a
// step without gradients after it.
std::string expecting(const std::string& rank_0, const std::string& upstream = "") {
  return two(R"({"op": "all_to_all_v_float", "inputs": [
      {"dtype": "f32", "shape": [1, 1], "values": [5], "send_counts": [1, 0]},
      {"dtype": "f32", "shape": [1, 1], "values": [6], "send_counts": [1, 0]}])" +
             upstream + R"(,
    "expected": [)" +
             rank_0 + R"(,
      {"error": {"kind": "transport"}}]})");
}
const std::string upstream =
    R"(, "upstream": [{"dtype": "f32", "shape": [2, 1], "values": [1, 2]}, null])";
const std::string right =
    R"("dtype": "f32", "shape": [2, 1], "values": [5, 6], "receive_counts": [1, 1])";

const Refused not_expected[] = {
    {"OfARankThatEnters", expecting("null"),
     "f.json:4: /steps/0/expected/0: found null, wanted an outcome, as the rank enters"},
    {"OfARankThatHasLeft",
     two(R"({"op": "all_reduce_sum", "inputs": [null, null], "expected": [null, )" + scalar + "]}"),
     "f.json:1: /steps/0/expected/1: found an object, wanted null, as the rank does not enter"},
    {"OfTooFew", two(R"({"op": "all_reduce_sum", "inputs": [null, null], "expected": [null]})"),
     "f.json:1: /steps/0/expected: found a list of 1, wanted a list of 2, one entry for each rank "
     "of the world"},
    {"WithoutReceiveCounts", expecting(R"({"dtype": "f32", "shape": [0, 1], "values": []})"),
     "f.json:4: /steps/0/expected/0: the key \"receive_counts\" is missing"},
    {"WithTooFewReceiveCounts",
     expecting(R"({"dtype": "f32", "shape": [0, 1], "values": [], "receive_counts": [0]})"),
     "f.json:4: /steps/0/expected/0/receive_counts: found a list of 1, wanted a list of 2, one "
     "entry for each rank of the world"},
    {"WithoutTheGradient", expecting("{" + right + "}", upstream),
     "f.json:4: /steps/0/expected/0: the key \"gradient\" is missing"},
    {"WithAGradientOfNothing", expecting("{" + right + R"(, "gradient": )" + scalar + "}"),
     "f.json:4: /steps/0/expected/0/gradient: the step has no upstream, so nobody has a gradient"},
    {"WithAGradientThatLostAPeer",
     expecting("{" + right + R"(, "gradient": {"error": {"kind": "transport"}}})", upstream),
     "f.json:4: /steps/0/expected/0/gradient: a gradient can only break the contract"},
    {"ErrorOfNoKind", expecting(R"({"error": {"kind": "panic"}})"),
     "f.json:4: /steps/0/expected/0/error/kind: found \"panic\", wanted \"contract\" or "
     "\"transport\""},
    {"BrokenContractWithoutAViolation", expecting(R"({"error": {"kind": "contract"}})"),
     "f.json:4: /steps/0/expected/0/error: the key \"violation\" is missing"},
    {"TransportErrorWithAViolation",
     expecting(R"({"error": {"kind": "transport", "violation": "dtype"}})"),
     "f.json:4: /steps/0/expected/0/error/violation: a transport error violates nothing"},
    {"ViolationOfAReversePass",
     expecting(R"({"error": {"kind": "contract", "violation": "window"}})"),
     "f.json:4: /steps/0/expected/0/error/violation: found \"window\", wanted \"operation\", "
     "\"dtype\", \"axes\", \"shape\", \"leading_axis\", \"indivisible_rows\", "
     "\"root_out_of_range\", \"roots_differ\", \"counts_length\", \"counts_sum\", "
     "\"zero_trailing_axis\" or \"size_overflow\""},
    {"ErrorAndValue", expecting(R"({"error": {"kind": "transport"}, "dtype": "f32"})"),
     "f.json:4: /steps/0/expected/0: unknown key \"dtype\"; the keys of an expected error are "
     "error"},
    {"CountsNobodyReturns",
     two(R"({"op": "all_reduce_sum", "inputs": [)" + scalar +
         R"(, null], "expected": [{"dtype": "f32", "shape": [], "values": [1], "receive_counts": []}, null]})"),
     "f.json:1: /steps/0/expected/0/receive_counts: all_reduce_sum returns no counts"},
};
INSTANTIATE_TEST_SUITE_P(NotExpected, Refusal, testing::ValuesIn(not_expected), situation);

TEST(ReadCase, BreaksOffAHugeNumberOfListsAndKeysEarly) {
  std::string objects;
  for (int i = 0; i < 100000; ++i) objects += R"({"a":)";
  EXPECT_EQ(refusal(objects), "f.json:1:61: nested deeper than any case is");
}

TEST(ReadCase, NamesACutOffTextInMessages) {
  EXPECT_EQ(refusal(R"({"lockstep_case": ")" + std::string(100, 'x') + "\"}"),
            "f.json:1: /lockstep_case: found \"" + std::string(40, 'x') +
                "...\", wanted the format's version, 1");
}

}  // namespace
}  // namespace lockstep::kit
