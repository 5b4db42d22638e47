#include <ostream>

#include <lockstep/error.hpp>

namespace lockstep {

std::string_view name(Violation violation) {
  switch (violation) {
    case Violation::operation:
      return "operation";
    case Violation::dtype:
      return "dtype";
    case Violation::axes:
      return "axes";
    case Violation::shape:
      return "shape";
    case Violation::leading_axis:
      return "leading_axis";
    case Violation::indivisible_rows:
      return "indivisible_rows";
    case Violation::root_out_of_range:
      return "root_out_of_range";
    case Violation::roots_differ:
      return "roots_differ";
    case Violation::counts_length:
      return "counts_length";
    case Violation::counts_sum:
      return "counts_sum";
    case Violation::zero_trailing_axis:
      return "zero_trailing_axis";
    case Violation::size_overflow:
      return "size_overflow";
    case Violation::gradient:
      return "gradient";
    case Violation::not_differentiable:
      return "not_differentiable";
    case Violation::window:
      return "window";
  }
  return "unlisted violation";
}

std::ostream& operator<<(std::ostream& out, Violation violation) {
  return out << name(violation);
}

void Error::attach(const std::string& note) {
  attached_.push_back(note);
  text_ += "\n  " + note;
}

namespace {

std::string contract_message(std::string_view place, Violation violation,
                             std::string_view explanation) {
  std::string text(place);
  text += ": broken contract (";
  text += name(violation);
  text += "): ";
  return text += explanation;
}

std::string place_of_call(Operation operation, std::string_view communicator,
                          std::uint64_t call_number) {
  std::string text(name(operation));
  text += ", call " + std::to_string(call_number) + " on ";
  return text += communicator;
}

}  // namespace

ContractError::ContractError(const Breach& breach, std::string_view communicator,
                             std::uint64_t call_number)
    : Error(contract_message(place_of_call(breach.operation, communicator, call_number),
                             breach.violation, breach.explanation)),
      violation_(breach.violation),
      operation_(breach.operation),
      call_number_(call_number) {}

ContractError::ContractError(Violation violation, std::optional<Operation> operation,
                             std::string_view place, std::string_view explanation)
    : Error(contract_message(place, violation, explanation)),
      violation_(violation),
      operation_(operation) {}

}  // namespace lockstep
