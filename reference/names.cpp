#include <ostream>

#include <lockstep/dtype.hpp>
#include <lockstep/operation.hpp>
#include <lockstep/sum_rule.hpp>

namespace lockstep {
namespace {

template <class Enum, std::size_t count>
std::optional<Enum> find_by_name(const Enum (&values)[count], std::string_view wanted) {
  for (Enum value : values) {
    if (name(value) == wanted) return value;
  }
  return std::nullopt;
}

}  // namespace

std::optional<DType> dtype_named(std::string_view name) {
  return find_by_name(all_dtypes, name);
}

std::optional<Operation> operation_named(std::string_view name) {
  return find_by_name(tensor_operations, name);
}

std::optional<SumRule> sum_rule_named(std::string_view name) {
  constexpr SumRule rules[] = {SumRule::exact, SumRule::rank_order, SumRule::unspecified};
  return find_by_name(rules, name);
}

std::ostream& operator<<(std::ostream& out, DType dtype) {
  return out << name(dtype);
}
std::ostream& operator<<(std::ostream& out, Operation operation) {
  return out << name(operation);
}
std::ostream& operator<<(std::ostream& out, SumRule rule) {
  return out << name(rule);
}

}  // namespace lockstep
