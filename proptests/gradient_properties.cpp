// Gradients are adjoints, and windows of any shape go back without waiting for ever.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <map>
#include <numeric>
#include <optional>
#include <vector>

#include <rapidcheck.h>

#include <lockstep/differentiation/gradient.hpp>
#include <lockstep/differentiation/scope.hpp>
#include <lockstep/kit/backend.hpp>
#include <lockstep/kit/verification.hpp>
#include <lockstep/sim/world.hpp>

#include "window_program.hpp"

namespace lockstep::kit {

// A differentiable communicator seen from the kit: constants in, values out.
template <>
struct HostTransfer<differentiation::Differentiable<sim::Communicator>> {
  using C = differentiation::Differentiable<sim::Communicator>;
  static C::float_tensor upload(C&, const FloatTensor& x) { return x; }
  static const IntTensor& upload(C&, const IntTensor& x) { return x; }
  static FloatTensor download(C&, const C::float_tensor& x) { return x.value(); }
  static IntTensor download(C&, IntTensor x) { return x; }
};

namespace {

using differentiation::Scope;
using differentiation::Tracked;
using sim::Communicator;

// Long after anything that is not stuck has ended.
const sim::Options patient = {.sum_rule = SumRule::exact, .timeout = std::chrono::seconds(60)};

// --- The adjoint identity

int draw(int low, int high) {
  return *rc::gen::resize(100, rc::gen::inRange(low, high + 1));
}

FloatTensor draw_tensor(DType dtype, const Shape& shape) {
  std::vector<double> elements(static_cast<std::size_t>(*shape.elements()));
  for (double& element : elements) element = draw(-3, 3);
  return whole_numbers(dtype, shape, elements);
}

double inner_product(const FloatTensor& a, const FloatTensor& b) {
  const std::vector<double> x = as_doubles(a);
  const std::vector<double> y = as_doubles(b);
  if (a.shape() != b.shape()) throw Error("a gradient of another shape");
  return std::inner_product(x.begin(), x.end(), y.begin(), 0.0);
}

struct Sides {
  double forward;   // <A x, y> on this rank
  double backward;  // <x, A' y>
};

// Draws what every rank passes and its upstream; ranks of odd number have none now and then.
void adjoint_identity(Operation operation, DType dtype) {
  const int ranks = draw(1, 6);
  const auto n = static_cast<std::size_t>(ranks);
  const bool exchange = operation == Operation::all_to_all_v_float;
  const std::int64_t root = draw(0, ranks - 1);
  std::vector<std::vector<std::int64_t>> counts(n, std::vector<std::int64_t>(n, 0));
  for (auto& of_rank : counts) {
    for (std::int64_t& count : of_rank) count = std::max(0, draw(-2, 2));
  }
  const bool flat = draw(0, 1) == 0;
  const auto shape = [&](std::int64_t rows) { return flat ? Shape{rows} : Shape{rows, 2}; };
  const std::int64_t rows = draw(0, 2) * ranks;

  std::vector<FloatTensor> inputs;
  std::vector<FloatTensor> upstreams;
  for (std::size_t r = 0; r < n; ++r) {
    std::int64_t sent = 0;
    std::int64_t received = 0;
    for (std::size_t s = 0; s < n; ++s) {
      sent += counts[r][s];
      received += counts[s][r];
    }
    const std::int64_t result_rows = exchange                                     ? received
                                     : operation == Operation::all_gather_float   ? rows * ranks
                                     : operation == Operation::reduce_scatter_sum ? rows / ranks
                                                                                  : rows;
    inputs.push_back(draw_tensor(dtype, shape(exchange ? sent : rows)));
    upstreams.push_back(draw_tensor(dtype, shape(result_rows)));
    // A rank without a gradient is one with zeros.
    if (draw(0, 3) == 0) upstreams.back() = FloatTensor::zeros(dtype, shape(result_rows));
  }
  const auto absent = [&](std::size_t r) {
    return std::ranges::all_of(as_doubles(upstreams[r]), [](double v) { return v == 0; });
  };

  sim::World world(ranks, patient);
  const auto sides = world.run([&](Communicator c) {
    using namespace differentiation;
    const auto r = static_cast<std::size_t>(c.rank());
    const FloatTensor& x = inputs[r];
    const FloatTensor& y = upstreams[r];
    const std::optional<FloatTensor> upstream = absent(r) ? std::nullopt : std::optional(y);
    const auto both = [&](const FloatTensor& result, const FloatTensor& gradient) {
      return Sides{inner_product(result, y), inner_product(x, gradient)};
    };
    switch (operation) {
      case Operation::all_gather_float: {
        const FloatTensor result = c.all_gather_float(x);
        return both(result, all_gather_gradient(c, result, upstream));
      }
      case Operation::reduce_scatter_sum: {
        const FloatTensor result = c.reduce_scatter_sum(x);
        return both(result, reduce_scatter_gradient(c, result, upstream));
      }
      case Operation::all_reduce_sum: {
        const FloatTensor result = c.all_reduce_sum(x);
        return both(result, all_reduce_gradient(c, result, upstream));
      }
      case Operation::broadcast_float: {
        const FloatTensor result = c.broadcast_float(x, root);
        return both(result, broadcast_gradient(c, result, root, upstream));
      }
      default: {
        const auto result = c.all_to_all_v_float(x, counts[r]);
        return both(result.value, all_to_all_v_gradient(c, result, upstream));
      }
    }
  });
  double forward = 0;
  double backward = 0;
  for (const Sides& of_rank : sides) {
    forward += of_rank.forward;
    backward += of_rank.backward;
  }
  RC_ASSERT(forward == backward);
}

bool adjoint_identities() {
  bool ok = true;
  for (Operation operation :
       {Operation::all_gather_float, Operation::reduce_scatter_sum, Operation::all_reduce_sum,
        Operation::broadcast_float, Operation::all_to_all_v_float}) {
    for (DType dtype : floating_dtypes) {
      ok &= rc::check("<A x, y> = <x, A' y> over all ranks: " + std::string(name(operation)) +
                          " of " + std::string(name(dtype)),
                      [&] { adjoint_identity(operation, dtype); });
    }
  }
  return ok;
}

// --- Programs

using Value = Tracked<FloatTensor>;

FloatTensor map_elements(const FloatTensor& a, const FloatTensor& b, const auto& function) {
  std::vector<double> x = as_doubles(a);
  const std::vector<double> y = as_doubles(b);
  std::ranges::transform(x, y, x.begin(), function);
  return whole_numbers(a.dtype(), a.shape(), x);
}

// One rank's part: its gradients by the number of the value.
std::map<int, FloatTensor> differentiate(const WindowProgram& program, DType dtype,
                                         const Communicator& bare) {
  const Scope scope(bare);
  const auto world = scope.communicator();
  const int rank = bare.rank();
  std::vector<Value> values;
  std::map<int, Value> variables;
  for (const auto& instruction : program.instructions) {
    if (const auto* fresh = std::get_if<NewValue>(&instruction)) {
      if (fresh->rank != rank) continue;
      const FloatTensor tensor = whole_numbers(dtype, fresh->shape, fresh->elements);
      const auto number = static_cast<int>(values.size());
      if (!fresh->constant) variables.emplace(number, scope.variable(tensor));
      values.push_back(fresh->constant ? Value(tensor) : variables.at(number));
    } else if (const auto* combined = std::get_if<Combination>(&instruction)) {
      if (combined->rank != rank) continue;
      const Value a = values[static_cast<std::size_t>(combined->first)];
      const Value b = values[static_cast<std::size_t>(combined->second)];
      const double f = combined->first_factor;
      const double g = combined->second_factor;
      const auto times = [](const FloatTensor& x, const FloatTensor& y) {
        return map_elements(x, y, std::multiplies<>());
      };
      const auto scaled = [](const FloatTensor& x, double factor) {
        return map_elements(x, x, [factor](double v, double) { return v * factor; });
      };
      if (combined->product) {
        values.push_back(
            scope.local(times(a.value(), b.value()), {a, b}, [=](const FloatTensor& up) {
              return std::vector{times(up, b.value()), times(up, a.value())};
            }));
      } else {
        values.push_back(scope.local(
            map_elements(a.value(), b.value(), [=](double x, double y) { return f * x + g * y; }),
            {a, b}, [=](const FloatTensor& up) {
              return std::vector{scaled(up, f), scaled(up, g)};
            }));
      }
    } else {
      const Collective& call = std::get<Collective>(instruction);
      const auto member = std::ranges::find(call.group, rank);
      if (member == call.group.end()) continue;
      const auto m = static_cast<std::size_t>(member - call.group.begin());
      const Value x = values[static_cast<std::size_t>(call.inputs[m])];
      const bool everybody = static_cast<int>(call.group.size()) == program.world &&
                             std::ranges::is_sorted(call.group);
      const auto c = everybody ? world : world.group(call.group);
      switch (call.operation) {
        case Operation::all_gather_float:
          values.push_back(c.all_gather_float(x));
          break;
        case Operation::reduce_scatter_sum:
          values.push_back(c.reduce_scatter_sum(x));
          break;
        case Operation::all_reduce_sum:
          values.push_back(c.all_reduce_sum(x));
          break;
        case Operation::broadcast_float:
          values.push_back(c.broadcast_float(x, call.root));
          break;
        default:
          values.push_back(c.all_to_all_v_float(x, call.send_counts[m]).value);
          break;
      }
    }
  }
  std::vector<differentiation::Seed<FloatTensor>> seeds;
  for (const LossTerm& loss : program.losses) {
    if (loss.rank != rank) continue;
    const Value& value = values[static_cast<std::size_t>(loss.value)];
    seeds.push_back({value, whole_numbers(dtype, value.value().shape(), loss.upstream)});
  }
  const auto gradients = scope.backward(seeds);
  std::map<int, FloatTensor> result;
  for (const auto& [number, variable] : variables) result.emplace(number, gradients.of(variable));
  return result;
}

bool programs() {
  return rc::check("a window's gradients are those of the unsharded program", [] {
    const WindowProgram program = draw_window_program(6);
    const UnshardedGradients expected = unsharded_gradients(program);
    RC_PRE(expected.largest <= 0x1p53);
    const DType dtype = expected.largest <= 0x1p24 ? DType::f32 : DType::f64;

    sim::World world(program.world, patient);
    const auto actual = world.run([&](Communicator c) { return differentiate(program, dtype, c); });
    RC_LOG() << program;
    std::size_t gradients = 0;
    for (int rank = 0; rank < program.world; ++rank) {
      for (const auto& [number, gradient] : actual[static_cast<std::size_t>(rank)]) {
        ++gradients;
        RC_ASSERT(gradient.dtype() == dtype);
        RC_ASSERT(as_doubles(gradient) == expected.of.at({rank, number}));
      }
    }
    RC_ASSERT(gradients == expected.of.size());
    RC_CLASSIFY(program.world > 1 && !program.losses.empty(), "ranks with losses");
  });
}

// --- The wrapper does what the communicator does that it wraps

class DifferentiableRanks : public ThreadBackend {
  BackendInfo info() const override { return {.name = "differentiable"}; }
  void launch(int ranks, const RankBody& body) override {
    sim::World world(ranks, patient);
    world.run([&](const Communicator& c) {
      const Scope scope(c);
      SubjectOf subject(scope.communicator());
      body(c.rank(), subject);
    });
  }
};

bool wrapper() {
  DifferentiableRanks backend;
  VerifyOptions options;
  options.cases = 1000;
  const VerifyReport report = verify(backend, options);
  std::cout << explain(report);
  return report.holds();
}

}  // namespace
}  // namespace lockstep::kit

int main() {
  using namespace lockstep::kit;
  setenv("RC_PARAMS", "max_success=1000", 0);  // unless the caller says otherwise
  bool ok = programs();
  ok &= adjoint_identities();
  ok &= wrapper();
  return ok ? 0 : 1;
}
