// Case files: whatever the generator makes can be written down and read back, the texts are JSON in
// the eyes of another library, and no text, however mangled, is half-read.
#include <algorithm>
#include <cmath>
#include <string>

#include <rapidcheck.h>
#include <nlohmann/json.hpp>

#include <lockstep/kit/case_file.hpp>
#include <lockstep/kit/program_oracle.hpp>
#include <lockstep/kit/rapidcheck.hpp>

#include "json_document.hpp"

namespace lockstep::kit {
namespace {

bool same(const std::optional<Tensor>& a, const std::optional<Tensor>& b) {
  return a.has_value() == b.has_value() && (!a || same_bits(*a, *b));
}

bool same(const std::optional<Input>& a, const std::optional<Input>& b) {
  if (!a || !b) return a.has_value() == b.has_value();
  return a->from_step == b->from_step && a->send_counts == b->send_counts &&
         (a->from_step.has_value() || same_bits(a->tensor, b->tensor));
}

bool same(const Outcome& a, const Outcome& b) {
  if (a.kind != b.kind) return false;
  if (a.kind == Outcome::Kind::contract) return a.violation == b.violation;
  return a.kind != Outcome::Kind::value ||
         (same_bits(a.value, b.value) && a.receive_counts == b.receive_counts &&
          same(a.gradient, b.gradient) && a.gradient_violation == b.gradient_violation);
}

constexpr auto are_same = [](const auto& x, const auto& y) { return same(x, y); };

bool same(const Step& a, const Step& b) {
  return a.group == b.group && a.operations == b.operations && a.roots == b.roots &&
         std::ranges::equal(a.inputs, b.inputs, are_same) && a.departures == b.departures &&
         std::ranges::equal(a.upstream, b.upstream, are_same) &&
         std::ranges::equal(a.expected, b.expected, are_same);
}

bool same(const Case& a, const Case& b) {
  return a.world == b.world && a.sum_rule == b.sum_rule && a.window == b.window &&
         std::ranges::equal(a.steps, b.steps,
                            [](const Step& x, const Step& y) { return same(x, y); });
}

Case any_case() {
  const auto all = properties();
  const auto index = *rc::gen::inRange<std::size_t>(0, all.size());
  Case c = *cases_for(std::string(all[index].name));
  c.sum_rule = *rc::gen::element(SumRule::exact, SumRule::rank_order);
  return c;
}

// One small damage to a text, mostly of the kind that leaves it close to what it was.
std::string damaged(std::string text) {
  const auto position = [&] { return *rc::gen::inRange<std::size_t>(0, text.size()); };
  switch (*rc::gen::inRange(0, 5)) {
    case 0:
      return text.substr(0, position());
    case 1:
      return text.erase(position(), *rc::gen::inRange<std::size_t>(1, 20));
    case 2:
      text[position()] = *rc::gen::elementOf(std::string("\"\\{}[],:-+.eE0123456789 \ntfnux/"));
      return text;
    case 3: {
      const std::size_t from = position();
      return text.insert(position(), text.substr(from, *rc::gen::inRange<std::size_t>(1, 40)));
    }
    default:
      text[position()] = static_cast<char>(*rc::gen::inRange(0, 256));
      return text;
  }
}

// What a JSON library thinks of a text.
struct ByNlohmann {
  bool is_json;
  // Its numbers are doubles; ours are texts, and none is too large.
  bool number_overflow;
};
ByNlohmann by_nlohmann(const std::string& text) {
  try {
    const auto json = nlohmann::json::parse(text);
    return {true, false};
  } catch (const nlohmann::json::out_of_range&) {
    return {false, true};
  } catch (const nlohmann::json::parse_error&) {
    return {false, false};
  }
}

// True for texts that our parser refuses although they are JSON: see json_document.hpp.
bool beyond_a_case(const std::string& text, const std::string& message) {
  const bool foreign = std::ranges::any_of(text, [](char c) { return c < 0; });
  const auto says = [&](const char* words) { return message.find(words) != std::string::npos; };
  return foreign || says("is repeated") || says("nested deeper") || says("more keys") ||
         says("no string of a case has any other");
}

}  // namespace
}  // namespace lockstep::kit

int main() {
  using namespace lockstep;
  using namespace lockstep::kit;
  bool ok = true;

  ok &= rc::check("a case that is written reads back to the same case, in either layout", [] {
    const Case c = any_case();
    RC_ASSERT(same(read_case(write_case(c)), c));
    RC_ASSERT(same(read_case(write_case(c, Layout::one_line)), c));
  });

  ok &= rc::check("so does a case together with what is expected of it", [] {
    Case c = any_case();
    try {
      c = with_expected(std::move(c));
    } catch (const NoSuchValue&) {
      RC_DISCARD("feeds on an error");
    }
    RC_ASSERT(same(read_case(write_case(c)), c));
    RC_ASSERT(same(read_case(write_case(c, Layout::one_line)), c));
  });

  ok &= rc::check("a JSON library reads what is written, with the same numbers", [] {
    const Case c = any_case();
    const auto json = nlohmann::json::parse(write_case(c));
    RC_ASSERT(json.at("world") == c.world);
    for (std::size_t s = 0; s < c.steps.size(); ++s) {
      for (std::size_t m = 0; m < c.steps[s].members(); ++m) {
        const auto& input = c.steps[s].inputs[m];
        const auto& written = json.at("steps").at(s).at("inputs").at(m);
        const bool absent = written.is_null() || written.contains("departure");
        RC_ASSERT(absent == !input.has_value());
        if (!input || input->from_step || input->tensor.dtype() != DType::f64) continue;
        for (std::int64_t i = 0; i < input->tensor.elements(); ++i) {
          const auto& number = written.at("values").at(static_cast<std::size_t>(i));
          const double value = input->tensor.values<double>()[static_cast<std::size_t>(i)];
          RC_ASSERT(number.is_number() ==
                    (std::isfinite(value) && to_bits(value) != to_bits(-0.0)));
          if (number.is_number()) RC_ASSERT(number.get<double>() == value);
        }
      }
    }
  });

  ok &= rc::check("a damaged file is refused, or is another case and reads back to it", [] {
    const std::string text = damaged(write_case(any_case()));
    Case c;
    try {
      c = read_case(text);
    } catch (const CaseFileError& error) {
      RC_TAG("refused");
      RC_ASSERT(std::string(error.what()).starts_with("case:"));
      return;
    }
    RC_TAG("another case");
    RC_ASSERT(same(read_case(write_case(c)), c));
  });

  ok &= rc::check("a text is JSON to us where it is to a JSON library", [] {
    std::string text = write_case(any_case());
    for (int damages = *rc::gen::inRange(0, 3); damages > 0 && !text.empty(); --damages) {
      text = damaged(std::move(text));
    }
    const ByNlohmann theirs = by_nlohmann(text);
    if (theirs.number_overflow) RC_DISCARD("a number beyond a double");
    try {
      (void)parse_json(text, "case");
      RC_ASSERT(theirs.is_json);
    } catch (const CaseFileError& error) {
      RC_ASSERT(!theirs.is_json || beyond_a_case(text, error.what()));
    }
  });

  return ok ? 0 : 1;
}
