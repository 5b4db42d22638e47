// The names of everything that ranks can meet in.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string_view>

namespace lockstep {

enum class Operation : std::uint8_t {
  all_gather_float,
  all_gather_int,
  reduce_scatter_sum,
  all_reduce_sum,
  broadcast_float,
  all_to_all_v_float,
  all_to_all_v_int,
  // Not a collective on tensors: making sub-communicators also needs every rank, and a rank that
  // splits while another reduces is a broken contract like any other.
  split,
};

inline constexpr Operation tensor_operations[] = {
    Operation::all_gather_float,   Operation::all_gather_int,  Operation::reduce_scatter_sum,
    Operation::all_reduce_sum,     Operation::broadcast_float, Operation::all_to_all_v_float,
    Operation::all_to_all_v_int};

constexpr std::string_view name(Operation operation) {
  constexpr std::string_view names[] = {
      "all_gather_float", "all_gather_int",     "reduce_scatter_sum", "all_reduce_sum",
      "broadcast_float",  "all_to_all_v_float", "all_to_all_v_int",   "split"};
  return names[static_cast<int>(operation)];
}
// Of the seven operations on tensors.
std::optional<Operation> operation_named(std::string_view name);

std::ostream& operator<<(std::ostream& out, Operation operation);

constexpr bool is_all_gather(Operation operation) {
  return operation == Operation::all_gather_float || operation == Operation::all_gather_int;
}
constexpr bool is_all_to_all_v(Operation operation) {
  return operation == Operation::all_to_all_v_float || operation == Operation::all_to_all_v_int;
}
// The operations that add, and therefore follow a sum rule.
constexpr bool is_sum(Operation operation) {
  return operation == Operation::reduce_scatter_sum || operation == Operation::all_reduce_sum;
}
// The operations on IntTensor; all others are on FloatTensor.
constexpr bool takes_integers(Operation operation) {
  return operation == Operation::all_gather_int || operation == Operation::all_to_all_v_int;
}
// The operations that split or join the leading axis, and so need one.
constexpr bool needs_leading_axis(Operation operation) {
  return is_all_gather(operation) || is_all_to_all_v(operation) ||
         operation == Operation::reduce_scatter_sum;
}

}  // namespace lockstep
