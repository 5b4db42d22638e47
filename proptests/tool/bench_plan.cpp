#include "bench_plan.hpp"

#include <algorithm>
#include <iterator>

#include "arguments.hpp"
#include "exit_status.hpp"

namespace lockstep::bench {
namespace {

using tool::bad_usage;
using tool::Failure;

// The entries of a list, each of which `named` must know.
template <class Value, class Named>
std::vector<Value> values(const std::string& option, const std::string& text, const Named& named,
                          const std::string& what) {
  std::vector<Value> list;
  for (const std::string& entry : tool::parse_list(option, text)) {
    const std::optional<Value> value = named(entry);
    if (!value) throw Failure(bad_usage, option + ": '" + entry + "': no such " + what);
    list.push_back(*value);
  }
  return list;
}

std::int64_t rounded_size(Operation operation, DType dtype, int ranks, std::int64_t bytes) {
  const bool divides = operation == Operation::reduce_scatter_sum || is_all_to_all_v(operation);
  const std::int64_t unit = size_of(dtype) * (divides ? ranks : 1);
  if (bytes > INT64_MAX - unit) {
    throw Failure(bad_usage, "--bytes: " + std::to_string(bytes) + " is beyond 2^63-1");
  }
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

Plan plan(const Arguments& arguments) {
  Plan plan;
  if (arguments.data == "adversarial") {
    plan.method.data = Data::adversarial;
  } else if (arguments.data != "normal") {
    throw Failure(bad_usage, "--data: '" + arguments.data + "': not one of normal, adversarial");
  }
  plan.method.runs = static_cast<int>(
      std::min<std::int64_t>(tool::parse_number("--runs", arguments.runs, 1), INT32_MAX));
  plan.method.seconds = tool::parse_seconds("--seconds", arguments.seconds);

  std::vector<Operation> operations(std::begin(tensor_operations), std::end(tensor_operations));
  if (arguments.operations) {
    operations = values<Operation>("--op", *arguments.operations, operation_named, "operation");
  }
  const std::vector<DType> dtypes =
      values<DType>("--dtype", arguments.dtypes, dtype_named, "dtype");
  const std::vector<std::int64_t> sizes = tool::parse_sizes("--bytes", arguments.bytes);
  for (int ranks : tool::parse_rank_list(arguments.ranks)) {
    for (Operation operation : operations) {
      for (DType dtype : dtypes) {
        if (is_integer(dtype) != takes_integers(operation)) continue;
        for (std::int64_t bytes : sizes) {
          plan.cells.push_back(
              {operation, ranks, rounded_size(operation, dtype, ranks, bytes), dtype});
        }
      }
    }
  }
  if (plan.cells.empty()) {
    throw Failure(bad_usage, "none of these operations takes any of these dtypes");
  }
  return plan;
}

}  // namespace lockstep::bench
