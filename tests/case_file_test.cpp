#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <lockstep/half.hpp>
#include <lockstep/kit/case_file.hpp>

namespace lockstep::kit {
namespace {

// The worked example of docs/case-file.md, without what is expected.
constexpr std::string_view example = R"({
  "lockstep_case": 1,
  "world": 3,
  "steps": [
    { "op": "all_to_all_v_int",
      "inputs": [
        { "dtype": "i32", "shape": [3, 2], "values": [1, 2, 3, 4, 5, 6], "send_counts": [1, 2, 0] },
        { "dtype": "i32", "shape": [0, 2], "values": [], "send_counts": [0, 0, 0] },
        { "dtype": "i32", "shape": [1, 2], "values": [7, -8], "send_counts": [0, 0, 1] } ] },
    { "op": "broadcast_float", "root": 1,
      "inputs": [
        { "dtype": "f32", "shape": [2], "values": [0, 0] },
        { "dtype": "f32", "shape": [2], "values": ["-0", "0x7fc00123"] },
        { "dtype": "f32", "shape": [2], "values": ["inf", 1.5] } ] },
    { "op": "all_reduce_sum",
      "inputs": [
        { "from_step": 1 },
        { "from_step": 1 },
        { "from_step": 1 } ],
      "upstream": [
        { "dtype": "f32", "shape": [2], "values": [1, 0] },
        null,
        { "dtype": "f32", "shape": [2], "values": [0, 2] } ] } ]
}
)";

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

template <class T>
std::vector<T> elements(const Tensor& tensor) {
  const std::span<const T> values = tensor.values<T>();
  return {values.begin(), values.end()};
}

// The bits of one element written as `value` in a case.
template <class T>
T read_element(std::string_view value) {
  const std::string text =
      R"({"lockstep_case":1,"world":1,"steps":[{"op":")" +
      std::string(name(is_integer(*dtype_of<T>) ? Operation::all_gather_int
                                                : Operation::all_gather_float)) +
      R"(","inputs":[{"dtype":")" + std::string(name(*dtype_of<T>)) +
      R"(","shape":[1],"values":[)" + std::string(value) + "]}]}]}";
  return read_case(text).steps.at(0).inputs.at(0)->tensor.values<T>()[0];
}

TEST(ReadCase, ReadsTheWorkedExample) {
  const Case c = read_case(example);
  EXPECT_EQ(c.world, 3);
  EXPECT_EQ(c.sum_rule, SumRule::exact);
  ASSERT_EQ(c.steps.size(), 3u);

  const Step& exchange = c.steps[0];
  EXPECT_TRUE(exchange.group.empty());
  EXPECT_EQ(exchange.operations, std::vector(3, Operation::all_to_all_v_int));
  EXPECT_TRUE(exchange.roots.empty());
  EXPECT_EQ(exchange.inputs.at(0)->tensor.shape(), (Shape{3, 2}));
  EXPECT_EQ(elements<std::int32_t>(exchange.inputs[0]->tensor),
            (std::vector<std::int32_t>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(exchange.inputs[0]->send_counts, (std::vector<std::int64_t>{1, 2, 0}));
  EXPECT_EQ(exchange.inputs.at(1)->tensor.shape(), (Shape{0, 2}));
  EXPECT_EQ(elements<std::int32_t>(exchange.inputs.at(2)->tensor),
            (std::vector<std::int32_t>{7, -8}));

  const Step& broadcast = c.steps[1];
  EXPECT_EQ(broadcast.roots, (std::vector<std::int64_t>{1, 1, 1}));
  EXPECT_EQ(to_bits(elements<float>(broadcast.inputs.at(1)->tensor)[0]), 0x80000000u);
  EXPECT_EQ(to_bits(elements<float>(broadcast.inputs.at(1)->tensor)[1]), 0x7fc00123u);
  EXPECT_EQ(to_bits(elements<float>(broadcast.inputs.at(2)->tensor)[0]), 0x7f800000u);

  const Step& sum = c.steps[2];
  EXPECT_EQ(sum.inputs.at(2)->from_step, 1);
  ASSERT_EQ(sum.upstream.size(), 3u);
  EXPECT_EQ(elements<float>(*sum.upstream[0]), (std::vector<float>{1, 0}));
  EXPECT_FALSE(sum.upstream[1].has_value());
  EXPECT_TRUE(sum.expected.empty());
}

TEST(WriteCase, WritesTheWorkedExampleAsItStands) {
  EXPECT_EQ(write_case(read_case(example)), example);
}

TEST(WriteCase, OnOneLineReadsBackToTheSame) {
  const std::string line = write_case(read_case(example), Layout::one_line);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  EXPECT_EQ(write_case(read_case(line)), example);
}

TEST(WriteCase, ReadsBackWhatIsExpectedOfEveryKind) {
  const std::string text = R"({
  "lockstep_case": 1,
  "sum_rule": "rank_order",
  "world": 3,
  "steps": [
    { "group": [2, 0], "op": ["broadcast_float", "all_gather_int"], "root": [5, -1],
      "inputs": [
        { "dtype": "bf16", "shape": [1], "values": ["0xffc1"] },
        { "dtype": "i64", "shape": [1], "values": ["9007199254740993"] } ],
      "expected": [
        { "error": { "kind": "contract", "violation": "operation" } },
        { "error": { "kind": "contract", "violation": "operation" } } ] },
    { "op": "all_to_all_v_float",
      "inputs": [
        { "dtype": "f64", "shape": [1, 1], "values": [0.1], "send_counts": [0, 1, 0] },
        { "dtype": "f64", "shape": [0, 1], "values": [], "send_counts": [0, 0, 0] },
        { "dtype": "f64", "shape": [0, 1], "values": [], "send_counts": [0, 0, 0] } ],
      "upstream": [
        { "dtype": "f64", "shape": [0, 1], "values": [] },
        null,
        null ],
      "expected": [
        { "dtype": "f64", "shape": [0, 1], "values": [], "receive_counts": [0, 0, 0], "gradient": { "dtype": "f64", "shape": [1, 1], "values": [0] } },
        { "dtype": "f64", "shape": [1, 1], "values": [0.1], "receive_counts": [1, 0, 0], "gradient": { "error": { "kind": "contract", "violation": "gradient" } } },
        { "dtype": "f64", "shape": [0, 1], "values": [], "receive_counts": [0, 0, 0], "gradient": { "dtype": "f64", "shape": [0, 1], "values": [] } } ] },
    { "op": "all_reduce_sum",
      "inputs": [
        { "dtype": "f16", "shape": [], "values": [65504] },
        null,
        { "dtype": "f16", "shape": [], "values": [6e-08] } ],
      "expected": [
        { "error": { "kind": "transport" } },
        null,
        { "error": { "kind": "transport" } } ] } ]
}
)";
  const Case c = read_case(text);
  EXPECT_EQ(c.sum_rule, SumRule::rank_order);
  EXPECT_EQ(c.steps[0].roots, (std::vector<std::int64_t>{5, -1}));
  EXPECT_EQ(c.steps[0].expected.at(1).violation, Violation::operation);
  EXPECT_EQ(c.steps[1].expected.at(1).receive_counts, (std::vector<std::int64_t>{1, 0, 0}));
  EXPECT_EQ(c.steps[1].expected.at(1).gradient_violation, Violation::gradient);
  EXPECT_EQ(elements<double>(*c.steps[1].expected.at(0).gradient), std::vector<double>{0});
  EXPECT_EQ(c.steps[2].expected.at(0).kind, Outcome::Kind::transport);
  EXPECT_EQ(c.steps[2].expected.at(1).kind, Outcome::Kind::absent);
  EXPECT_EQ(write_case(c), text);
}

TEST(WriteCase, RefusesToExpectABrokenBackend) {
  Case c = read_case(two(R"({"op": "all_reduce_sum", "inputs": [)" + scalar + "," + scalar + "]}"));
  c.steps[0].expected.resize(2);
  c.steps[0].expected[0].kind = Outcome::Kind::broken;
  EXPECT_THROW(write_case(c), InvalidArgument);
}

TEST(ReadCase, RoundsANumberOnceFromItsDigits) {
  // Just above the midpoint of 1 and its successor in f16; by way of a double it would be the
  // midpoint itself and round down to 1.
  EXPECT_EQ(read_element<f16>("1.00048828125000000000000000000000001").bits, 0x3c01);
  EXPECT_EQ(read_element<f16>("1.00048828125").bits, 0x3c00);
  EXPECT_EQ(to_bits(read_element<double>("0.1")), 0x3fb999999999999au);
}

TEST(ReadCase, KeepsTheSignOfANegativeZeroHoweverItIsWritten) {
  for (const char* zero : {"-0", "-0.0", "-0e5", R"("-0")"}) {
    EXPECT_EQ(to_bits(read_element<float>(zero)), 0x80000000u) << zero;
  }
  EXPECT_EQ(to_bits(read_element<float>("0")), 0u);
}

TEST(ReadCase, TakesNumbersBeyondTheRangeAsInfinity) {
  EXPECT_EQ(to_bits(read_element<double>("1e400")), 0x7ff0000000000000u);
  EXPECT_EQ(to_bits(read_element<double>("-1e99999999999999999999")), 0xfff0000000000000u);
  EXPECT_EQ(read_element<f16>("65520").bits, 0x7c00);
  EXPECT_EQ(read_element<f16>("65519.999").bits, 0x7bff);
}

TEST(ReadCase, TakesWhatJsonCannotSayAsStrings) {
  EXPECT_EQ(to_bits(read_element<float>(R"("nan")")), 0x7fc00000u);
  EXPECT_EQ(to_bits(read_element<float>(R"("-inf")")), 0xff800000u);
  EXPECT_EQ(to_bits(read_element<float>(R"("0x7f800001")")), 0x7f800001u);  // a signalling NaN
  EXPECT_EQ(to_bits(read_element<float>(R"("0\u0078FF800001")")), 0xff800001u);
  EXPECT_EQ(read_element<std::int32_t>(R"("0xffffffff")"), -1);
}

TEST(ReadCase, KeepsIntegersBeyondTheReachOfADouble) {
  EXPECT_EQ(read_element<std::int64_t>("9007199254740993"), 9007199254740993);
  EXPECT_EQ(read_element<std::int64_t>(R"("-9223372036854775808")"), INT64_MIN);
  EXPECT_EQ(read_element<std::int64_t>("9223372036854775807"), INT64_MAX);
  EXPECT_EQ(read_element<std::uint32_t>("4294967295"), 4294967295u);
}

TEST(WriteCase, WritesIntegersBeyondTheReachOfADoubleAsStrings) {
  const std::string text = R"({ "lockstep_case": 1, "world": 1, "steps": [ )"
                           R"({ "op": "all_to_all_v_int", "inputs": [ { "dtype": "i64", )"
                           R"("shape": [4, 1], "values": [9007199254740992, "9007199254740993", )"
                           R"(-9007199254740992, "-9223372036854775808"], )"
                           R"("send_counts": ["4611686018427387904"] } ] } ] })";
  EXPECT_EQ(write_case(read_case(text), Layout::one_line), text);
}

TEST(ReadCase, TakesAHugeAxisBesideAZeroOne) {
  const Case c = read_case(R"({"lockstep_case": 1, "world": 1, "steps": [{"op": "all_reduce_sum",
      "inputs": [{"dtype": "f64", "shape": ["4611686018427387904", 4611686018427387904, 0],
                  "values": []}]}]})");
  EXPECT_EQ(c.steps[0].inputs[0]->tensor.shape(),
            (Shape{std::int64_t{1} << 62, std::int64_t{1} << 62, 0}));
  EXPECT_EQ(read_case(write_case(c)).steps[0].inputs[0]->tensor.shape(),
            c.steps[0].inputs[0]->tensor.shape());
}

TEST(ReadCase, TakesCountsAndRootsThatBreakTheContract) {
  const Case c = read_case(two(
      R"({"op": ["all_to_all_v_int", "broadcast_float"], "root": [0, -7],
          "inputs": [)" +
      int_row + R"(, "send_counts": [-1, 2, 9, 0]},)" + scalar + "]}"));
  EXPECT_EQ(c.steps[0].inputs[0]->send_counts, (std::vector<std::int64_t>{-1, 2, 9, 0}));
  EXPECT_EQ(c.steps[0].roots[1], -7);
}

TEST(ReadCase, TakesAGroupWithARankThatHasLeft) {
  const Case c = read_case(two(R"({"op": "all_reduce_sum", "inputs": [null, )" + scalar +
                               R"(]}, {"group": [1, 0], "op": "all_reduce_sum", "inputs": [)" +
                               scalar + ", null]}"));
  EXPECT_EQ(c.steps[1].group, (std::vector<int>{1, 0}));
  EXPECT_FALSE(c.steps[1].inputs[1].has_value());
}

TEST(ReadCase, TakesACaseWithoutSteps) {
  EXPECT_TRUE(read_case(two("")).steps.empty());
  EXPECT_TRUE(read_case(write_case(read_case(two("")))).steps.empty());
  EXPECT_EQ(read_case(R"({"lockstep_case":1,"world":2000000000,"steps":[]})").world, 2000000000);
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
     "world, steps"},
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
     "f.json:1: /steps/0: unknown key \"input\"; the keys of a step are group, op, root, inputs, "
     "upstream, expected"},
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

TEST(ReadCase, RefusesEveryBeginningOfACase) {
  const std::string_view whole = example.substr(0, example.rfind('}') + 1);
  for (std::size_t length = 0; length < whole.size(); ++length) {
    EXPECT_THROW(read_case(whole.substr(0, length)), CaseFileError) << length << " bytes";
  }
  EXPECT_NO_THROW(read_case(whole));
}

TEST(ReadCase, SurvivesEveryWrongByte) {
  std::string text(example);
  for (char& byte : text) {
    const char right_byte = byte;
    for (const char wrong : {'\0', '"', '\\', '{', ']', ',', '9', '-', 'e', ' ', '\x80'}) {
      byte = wrong;
      try {
        read_case(text);
      } catch (const CaseFileError&) {
      }
    }
    byte = right_byte;
  }
}

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
