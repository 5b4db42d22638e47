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

}  // namespace
}  // namespace lockstep::kit
