#include <algorithm>
#include <span>

#include <lockstep/element_text.hpp>
#include <lockstep/kit/case_file.hpp>

namespace lockstep::kit {
namespace {

// For names, digits, "inf" and "-0", which need no escaping.
std::string in_quotes(std::string_view text) {
  return std::string("\"").append(text).append("\"");
}

// Text of any origin, in ASCII: what JSON would escape otherwise, and what no case may hold.
std::string escaped(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      quoted += "\\n";
    } else if (byte < 0x20 || byte > 0x7e) {
      quoted += '?';
    } else {
      if (c == '"' || c == '\\') quoted += '\\';
      quoted += c;
    }
  }
  return quoted += '"';
}

// "[a, b, c]" with `write(item)` for each.
template <class Items, class Write>
std::string list(const Items& items, Write write) {
  std::string text = "[";
  for (const auto& item : items) {
    if (text.size() > 1) text += ", ";
    text += write(item);
  }
  return text += "]";
}

// As a number while every reader keeps it exactly, beyond 2^53 as a string.
std::string integer(std::int64_t value) {
  constexpr std::int64_t largest_safe = std::int64_t{1} << 53;
  const std::string digits = std::to_string(value);
  return value >= -largest_safe && value <= largest_safe ? digits : in_quotes(digits);
}

std::string integers(std::span<const std::int64_t> values) {
  return list(values, integer);
}

std::string element(DType dtype, const std::byte* bytes) {
  if (dtype == DType::i64) {
    std::int64_t value;
    std::copy_n(bytes, sizeof value, reinterpret_cast<std::byte*>(&value));
    return integer(value);
  }
  const std::string text = element_text(dtype, bytes);
  const bool is_number = text != "-0" && text.find_first_of("inx") == std::string::npos;
  return is_number ? text : in_quotes(text);
}

// The keys of a tensor, without braces.
std::string tensor_keys(const Tensor& tensor) {
  std::string text = "\"dtype\": " + in_quotes(name(tensor.dtype())) +
                     ", \"shape\": " + integers(tensor.shape().axes()) + ", \"values\": [";
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    if (i > 0) text += ", ";
    text += element(tensor.dtype(), tensor.data() + i * size_of(tensor.dtype()));
  }
  return text += "]";
}

std::string tensor_object(const Tensor& tensor) {
  return "{ " + tensor_keys(tensor) + " }";
}

// What stands for a rank that does not enter.
std::string departure_object(const Step& step, std::size_t member) {
  if (step.departures.empty() || step.departures[member] == Departure::returns) return "null";
  return "{ \"departure\": " + in_quotes(name(step.departures[member])) + " }";
}

std::string input_object(const Step& step, std::size_t member) {
  const std::optional<Input>& input = step.inputs[member];
  const Operation operation = step.operations[member];
  if (!input) return departure_object(step, member);
  std::string text = "{ ";
  text += input->from_step ? "\"from_step\": " + std::to_string(*input->from_step)
                           : tensor_keys(input->tensor);
  if (!input->from_step && input->layout != MemoryLayout::dense) {
    text += ", \"layout\": " + in_quotes(name(input->layout));
  }
  if (is_all_to_all_v(operation)) text += ", \"send_counts\": " + integers(input->send_counts);
  return text += " }";
}

std::string contract_error(Violation violation) {
  return "{ \"error\": { \"kind\": \"contract\", \"violation\": " + in_quotes(name(violation)) +
         " } }";
}

std::string outcome_object(const Outcome& outcome, Operation operation) {
  switch (outcome.kind) {
    case Outcome::Kind::absent:
      return "null";
    case Outcome::Kind::contract:
      return contract_error(outcome.violation);
    case Outcome::Kind::transport:
      return "{ \"error\": { \"kind\": \"transport\" } }";
    case Outcome::Kind::broken:
      throw InvalidArgument("no case expects a backend to break");
    case Outcome::Kind::value:
      break;
  }
  std::string text = "{ " + tensor_keys(outcome.value);
  if (is_all_to_all_v(operation)) {
    text += ", \"receive_counts\": " + integers(outcome.receive_counts);
  }
  if (outcome.gradient) {
    text += ", \"gradient\": " + tensor_object(*outcome.gradient);
  } else if (outcome.gradient_violation) {
    text += ", \"gradient\": " + contract_error(*outcome.gradient_violation);
  }
  return text += " }";
}

std::string received_object(const Outcome& outcome, Operation operation) {
  if (outcome.kind == Outcome::Kind::absent) return "null";
  std::string text = "{ ";
  if (outcome.kind == Outcome::Kind::value) {
    text = outcome_object(outcome, operation);
    text.resize(text.size() - 2);  // the brace
  } else {
    text += "\"error\": { \"kind\": ";
    if (outcome.kind == Outcome::Kind::contract) {
      text += "\"contract\", \"violation\": " + in_quotes(name(outcome.violation));
    } else {
      text += outcome.kind == Outcome::Kind::transport ? "\"transport\"" : "\"broken\"";
    }
    if (!outcome.lost_ranks.empty()) {
      text += ", \"lost_ranks\": " +
              list(outcome.lost_ranks, [](int rank) { return std::to_string(rank); });
    }
    text += " }";
  }
  if (!outcome.message.empty()) text += ", \"message\": " + escaped(outcome.message);
  if (outcome.repetition > 0) text += ", \"repetition\": " + integer(outcome.repetition);
  if (outcome.input_changed) text += ", \"input_changed\": true";
  if (outcome.result_changed) text += ", \"result_changed\": true";
  return text += " }";
}

// One value for all members when they agree, else a list.
template <class T, class Write>
std::string shared(const std::vector<T>& per_member, Write write) {
  const bool agree =
      std::ranges::adjacent_find(per_member, std::ranges::not_equal_to()) == per_member.end();
  return agree && !per_member.empty() ? write(per_member.front()) : list(per_member, write);
}

// `key` with one entry per member, each on a line of its own in the indented layout.
template <class Write>
std::string per_member(std::string_view key, std::size_t members, Layout layout, Write write) {
  const bool indented = layout == Layout::indented;
  std::string text = indented ? ",\n      " : ", ";
  text += in_quotes(key) + ": [";
  for (std::size_t member = 0; member < members; ++member) {
    text += indented ? "\n        " : " ";
    text += write(member);
    if (member + 1 < members) text += ",";
  }
  return text += " ]";
}

std::string step_object(const Step& step, Layout layout) {
  std::string text = "{ ";
  if (!step.group.empty()) {
    text += "\"group\": " + list(step.group, [](int rank) { return std::to_string(rank); }) + ", ";
  }
  text += "\"op\": " +
          shared(step.operations, [](Operation operation) { return in_quotes(name(operation)); });
  if (step.repeat > 1) text += ", \"repeat\": " + std::to_string(step.repeat);
  if (!step.roots.empty()) text += ", \"root\": " + shared(step.roots, integer);
  text += per_member("inputs", step.inputs.size(), layout, [&](std::size_t member) {
    return input_object(step, member);
  });
  if (!step.upstream.empty()) {
    text += per_member("upstream", step.upstream.size(), layout, [&](std::size_t member) {
      const std::optional<Tensor>& upstream = step.upstream[member];
      return upstream ? tensor_object(*upstream) : "null";
    });
  }
  if (!step.expected.empty()) {
    text += per_member("expected", step.expected.size(), layout, [&](std::size_t member) {
      return outcome_object(step.expected[member], step.operations[member]);
    });
  }
  if (!step.received.empty()) {
    text += per_member("received", step.received.size(), layout, [&](std::size_t member) {
      return received_object(step.received[member], step.operations[member]);
    });
  }
  return text += " }";
}

}  // namespace

std::string_view name(Departure departure) {
  constexpr std::string_view names[] = {"returns", "throws", "stalls"};
  return names[static_cast<std::size_t>(departure)];
}

std::string write_case(const Case& c, Layout layout) {
  const bool indented = layout == Layout::indented;
  const std::string next = indented ? ",\n  " : ", ";
  std::string text = indented ? "{\n  " : "{ ";
  text += "\"lockstep_case\": 1" + next;
  // Left out where it is the default.
  if (c.sum_rule != SumRule::exact) {
    text += "\"sum_rule\": " + in_quotes(name(c.sum_rule)) + next;
  }
  text += "\"world\": " + std::to_string(c.world) + next;
  if (c.window) text += "\"window\": true" + next;
  if (c.recorded) {
    text += "\"recorded\": { \"backend\": " + escaped(c.recorded->name) +
            ", \"sum_rule\": " + in_quotes(name(c.recorded->sum_rule)) + " }" + next;
  }
  text += "\"steps\": [";
  for (std::size_t i = 0; i < c.steps.size(); ++i) {
    if (i > 0) text += ",";
    text += indented ? "\n    " : " ";
    text += step_object(c.steps[i], layout);
  }
  return text += indented ? " ]\n}\n" : " ] }";
}

}  // namespace lockstep::kit
