#include "window_program.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <ostream>
#include <type_traits>

#include <rapidcheck.h>

#include <lockstep/half.hpp>

namespace lockstep::kit {
namespace {

// --- Drawing

int draw(int low, int high) {
  return *rc::gen::resize(100, rc::gen::inRange(low, high + 1));
}
bool one_in(int n) {
  return draw(1, n) == 1;
}

std::vector<double> draw_elements(const Shape& shape) {
  std::vector<double> elements(static_cast<std::size_t>(*shape.elements()));
  for (double& element : elements) element = draw(-3, 3);
  return elements;
}

constexpr Operation float_operations[] = {
    Operation::all_gather_float, Operation::reduce_scatter_sum, Operation::all_reduce_sum,
    Operation::broadcast_float, Operation::all_to_all_v_float};

class Author {
 public:
  explicit Author(int world) : shapes_(static_cast<std::size_t>(world)) { program_.world = world; }

  WindowProgram write() {
    for (int left = draw(1, 12); left > 0; --left) {
      if (one_in(3)) {
        combination();
      } else {
        collective();
      }
    }
    for (int rank = 0; rank < program_.world; ++rank) {
      for (int terms = draw(0, 2); terms > 0; --terms) {
        const auto& values = shapes_[static_cast<std::size_t>(rank)];
        if (values.empty()) break;
        const int value = draw(0, static_cast<int>(values.size()) - 1);
        program_.losses.push_back(
            {rank, value, draw_elements(values[static_cast<std::size_t>(value)])});
      }
    }
    return std::move(program_);
  }

 private:
  std::vector<Shape>& shapes_of(int rank) { return shapes_[static_cast<std::size_t>(rank)]; }

  int new_value(int rank, const Shape& shape) {
    NewValue fresh{rank, one_in(4), shape, draw_elements(shape)};
    program_.instructions.emplace_back(std::move(fresh));
    return add(rank, shape);
  }
  int add(int rank, const Shape& shape) {
    shapes_of(rank).push_back(shape);
    return static_cast<int>(shapes_of(rank).size()) - 1;
  }

  // One of the rank's values that fits, mostly, or a new one of this shape.
  template <class Fits>
  int some_value(int rank, const Shape& shape, const Fits& fits) {
    std::vector<int> fitting;
    for (std::size_t i = 0; i < shapes_of(rank).size(); ++i) {
      if (fits(shapes_of(rank)[i])) fitting.push_back(static_cast<int>(i));
    }
    if (fitting.empty() || one_in(4)) return new_value(rank, shape);
    return fitting[static_cast<std::size_t>(draw(0, static_cast<int>(fitting.size()) - 1))];
  }
  int some_value_like(int rank, const Shape& shape) {
    return some_value(rank, shape, [&](const Shape& other) { return other == shape; });
  }

  void combination() {
    const int rank = draw(0, program_.world - 1);
    const Shape shape = draw_shape(rank, 1);
    const int first = some_value_like(rank, shape);
    const int second = some_value_like(rank, shape);
    const Combination combination{rank, one_in(4), first, second, draw(-2, 2), draw(-2, 2)};
    program_.instructions.emplace_back(combination);
    add(rank, shape);
  }

  // Of rows that `parts` divides; of the latest value of `rank` now and then.
  Shape draw_shape(int rank, int parts) {
    const auto& values = shapes_of(rank);
    if (!values.empty() && !one_in(3)) {
      const Shape& shape =
          values[static_cast<std::size_t>(draw(0, static_cast<int>(values.size()) - 1))];
      if (shape[0] % parts == 0 && shape[0] <= 24) return shape;
    }
    const std::int64_t rows = draw(0, 2) * parts;
    return one_in(2) ? Shape{rows} : Shape{rows, 2};
  }

  void collective() {
    Collective call;
    call.operation = float_operations[static_cast<std::size_t>(draw(0, 4))];
    call.group.resize(static_cast<std::size_t>(program_.world));
    std::iota(call.group.begin(), call.group.end(), 0);
    if (one_in(3)) {
      for (std::size_t i = call.group.size(); i > 1; --i) {
        std::swap(call.group[i - 1],
                  call.group[static_cast<std::size_t>(draw(0, static_cast<int>(i) - 1))]);
      }
      call.group.resize(static_cast<std::size_t>(draw(1, program_.world)));
    }
    const auto members = static_cast<int>(call.group.size());
    call.root = draw(0, members - 1);
    const bool scatters = call.operation == Operation::reduce_scatter_sum;
    const Shape shape = draw_shape(call.group[0], scatters ? members : 1);
    if (call.operation == Operation::all_to_all_v_float) {
      exchange(call, shape);
    } else {
      for (int rank : call.group) call.inputs.push_back(some_value_like(rank, shape));
      const std::int64_t rows = call.operation == Operation::all_gather_float ? shape[0] * members
                                : scatters                                    ? shape[0] / members
                                                                              : shape[0];
      for (int rank : call.group) add(rank, shape.with_rows(rows));
    }
    program_.instructions.emplace_back(std::move(call));
  }

  void exchange(Collective& call, const Shape& shape) {
    std::vector<std::int64_t> received(call.group.size(), 0);
    for (int rank : call.group) {
      const Shape own = shape.with_rows(draw(0, 4));
      call.inputs.push_back(some_value(rank, own, [&](const Shape& other) {
        return std::ranges::equal(other.trailing(), own.trailing()) && other[0] <= 24;
      }));
      std::vector<std::int64_t>& counts = call.send_counts.emplace_back(call.group.size(), 0);
      const Shape& chosen = shapes_of(rank)[static_cast<std::size_t>(call.inputs.back())];
      for (std::int64_t row = 0; row < chosen[0]; ++row) {
        ++counts[static_cast<std::size_t>(draw(0, static_cast<int>(counts.size()) - 1))];
      }
      for (std::size_t i = 0; i < counts.size(); ++i) received[i] += counts[i];
    }
    for (std::size_t i = 0; i < call.group.size(); ++i) {
      add(call.group[i], shape.with_rows(received[i]));
    }
  }

  WindowProgram program_;
  std::vector<std::vector<Shape>> shapes_;  // [rank][value]
};

// --- The unsharded oracle

// A number of the whole program, and what it was computed from.
struct Scalar {
  double value;
  double magnitude;  // of the value, had nothing cancelled
  struct Use {
    std::size_t of;
    double partial, partial_magnitude;
  };
  std::vector<Use> uses;
};

class Oracle {
 public:
  explicit Oracle(const WindowProgram& program) : values_(static_cast<std::size_t>(program.world)) {
    for (const auto& instruction : program.instructions) {
      std::visit([&](const auto& one) { lay_out(one); }, instruction);
    }
    adjoint_.assign(scalars_.size(), 0);
    adjoint_magnitude_.assign(scalars_.size(), 0);
    for (const LossTerm& loss : program.losses) {
      const std::vector<std::size_t>& value = value_of(loss.rank, loss.value);
      for (std::size_t i = 0; i < value.size(); ++i) {
        adjoint_[value[i]] += loss.upstream[i];
        adjoint_magnitude_[value[i]] += std::fabs(loss.upstream[i]);
      }
    }
    for (std::size_t s = scalars_.size(); s-- > 0;) {
      for (const Scalar::Use& use : scalars_[s].uses) {
        adjoint_[use.of] += adjoint_[s] * use.partial;
        adjoint_magnitude_[use.of] += adjoint_magnitude_[s] * use.partial_magnitude;
      }
    }
  }

  UnshardedGradients gradients() const {
    UnshardedGradients result;
    for (const auto& [rank, value] : variables_) {
      std::vector<double>& gradient = result.of[{rank, value}];
      for (std::size_t scalar : value_of(rank, value)) gradient.push_back(adjoint_[scalar]);
    }
    result.largest =
        std::ranges::max(adjoint_magnitude_.empty() ? std::vector<double>{0} : adjoint_magnitude_);
    for (const Scalar& scalar : scalars_)
      result.largest = std::max(result.largest, scalar.magnitude);
    return result;
  }

 private:
  const std::vector<std::size_t>& value_of(int rank, int value) const {
    return values_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(value)];
  }
  std::size_t add(Scalar scalar) {
    scalars_.push_back(std::move(scalar));
    return scalars_.size() - 1;
  }

  void lay_out(const NewValue& fresh) {
    auto& values = values_[static_cast<std::size_t>(fresh.rank)];
    if (!fresh.constant) variables_.emplace_back(fresh.rank, static_cast<int>(values.size()));
    std::vector<std::size_t> scalars;
    for (double element : fresh.elements) {
      scalars.push_back(add({element, std::fabs(element), {}}));
    }
    values.push_back(std::move(scalars));
  }

  void lay_out(const Combination& c) {
    std::vector<std::size_t> scalars;
    for (std::size_t i = 0; i < value_of(c.rank, c.first).size(); ++i) {
      const std::size_t a = value_of(c.rank, c.first)[i];
      const std::size_t b = value_of(c.rank, c.second)[i];
      const Scalar x = scalars_[a];
      const Scalar y = scalars_[b];
      if (c.product) {
        scalars.push_back(add({x.value * y.value,
                               x.magnitude * y.magnitude,
                               {{a, y.value, y.magnitude}, {b, x.value, x.magnitude}}}));
      } else {
        const double f = c.first_factor;
        const double g = c.second_factor;
        scalars.push_back(add({f * x.value + g * y.value,
                               std::fabs(f) * x.magnitude + std::fabs(g) * y.magnitude,
                               {{a, f, std::fabs(f)}, {b, g, std::fabs(g)}}}));
      }
    }
    values_[static_cast<std::size_t>(c.rank)].push_back(std::move(scalars));
  }

  void lay_out(const Collective& call) {
    std::vector<std::vector<std::size_t>> inputs;
    for (std::size_t m = 0; m < call.group.size(); ++m) {
      inputs.push_back(value_of(call.group[m], call.inputs[m]));
    }
    std::vector<std::vector<std::size_t>> results(call.group.size());
    switch (call.operation) {
      case Operation::all_gather_float:
        for (auto& result : results) {
          for (const auto& input : inputs) result.insert(result.end(), input.begin(), input.end());
        }
        break;
      case Operation::broadcast_float:
        for (auto& result : results) result = inputs[static_cast<std::size_t>(call.root)];
        break;
      case Operation::all_reduce_sum:
        for (auto& result : results) result = sums(inputs, 0, inputs[0].size());
        break;
      case Operation::reduce_scatter_sum:
        for (std::size_t m = 0; m < results.size(); ++m) {
          const std::size_t each = inputs[0].size() / results.size();
          results[m] = sums(inputs, m * each, (m + 1) * each);
        }
        break;
      default: {  // all_to_all_v_float
        for (std::size_t from = 0; from < inputs.size(); ++from) {
          std::int64_t rows = 0;
          for (std::int64_t count : call.send_counts[from]) rows += count;
          const std::size_t row =
              rows == 0 ? 0 : inputs[from].size() / static_cast<std::size_t>(rows);
          auto next = inputs[from].begin();
          for (std::size_t to = 0; to < results.size(); ++to) {
            const auto count = static_cast<std::size_t>(call.send_counts[from][to]);
            const auto end = next + static_cast<std::ptrdiff_t>(count * row);
            results[to].insert(results[to].end(), next, end);
            next = end;
          }
        }
      }
    }
    for (std::size_t m = 0; m < call.group.size(); ++m) {
      values_[static_cast<std::size_t>(call.group[m])].push_back(std::move(results[m]));
    }
  }

  std::vector<std::size_t> sums(const std::vector<std::vector<std::size_t>>& inputs,
                                std::size_t begin, std::size_t end) {
    std::vector<std::size_t> scalars;
    for (std::size_t i = begin; i < end; ++i) {
      Scalar sum{0, 0, {}};
      for (const auto& input : inputs) {
        sum.value += scalars_[input[i]].value;
        sum.magnitude += scalars_[input[i]].magnitude;
        sum.uses.push_back({input[i], 1, 1});
      }
      scalars.push_back(add(std::move(sum)));
    }
    return scalars;
  }

  std::vector<Scalar> scalars_;
  std::vector<std::vector<std::vector<std::size_t>>> values_;  // [rank][value][element]
  std::vector<std::pair<int, int>> variables_;
  std::vector<double> adjoint_;
  std::vector<double> adjoint_magnitude_;
};

}  // namespace

WindowProgram draw_window_program(int most_ranks) {
  return Author(draw(1, most_ranks)).write();
}

UnshardedGradients unsharded_gradients(const WindowProgram& program) {
  return Oracle(program).gradients();
}

FloatTensor whole_numbers(DType dtype, const Shape& shape, const std::vector<double>& elements) {
  FloatTensor x = FloatTensor::uninitialized(dtype, shape);
  dispatch(dtype, [&]<class T>(TypeTag<T>) {
    if constexpr (is_floating(*dtype_of<T>)) {
      std::ranges::transform(elements, x.mutable_values<T>().begin(), [](double element) {
        if constexpr (std::is_same_v<T, f16>) return to_f16(element);
        if constexpr (std::is_same_v<T, bf16>) return to_bf16(element);
        if constexpr (sizeof(T) > 2) return static_cast<T>(element);
      });
    }
  });
  return x;
}

std::vector<double> as_doubles(const FloatTensor& x) {
  std::vector<double> elements;
  dispatch(x.dtype(), [&]<class T>(TypeTag<T>) {
    if constexpr (is_floating(*dtype_of<T>)) {
      for (T element : x.values<T>()) {
        if constexpr (sizeof(T) == 2) {
          elements.push_back(to_double(element));
        } else {
          elements.push_back(static_cast<double>(element));
        }
      }
    }
  });
  return elements;
}

std::ostream& operator<<(std::ostream& out, const WindowProgram& program) {
  out << "world of " << program.world << "\n";
  for (const auto& instruction : program.instructions) {
    if (const auto* fresh = std::get_if<NewValue>(&instruction)) {
      out << "rank " << fresh->rank << (fresh->constant ? ": constant " : ": variable ")
          << whole_numbers(DType::f64, fresh->shape, fresh->elements) << "\n";
    } else if (const auto* c = std::get_if<Combination>(&instruction)) {
      out << "rank " << c->rank << ": ";
      if (c->product) {
        out << "value " << c->first << " * value " << c->second << "\n";
      } else {
        out << c->first_factor << " value " << c->first << " + " << c->second_factor << " value "
            << c->second << "\n";
      }
    } else {
      const Collective& call = std::get<Collective>(instruction);
      out << call.operation << ", root " << call.root << ":";
      for (std::size_t m = 0; m < call.group.size(); ++m) {
        out << " rank " << call.group[m] << " value " << call.inputs[m];
        for (std::size_t i = 0; !call.send_counts.empty() && i < call.group.size(); ++i) {
          out << (i == 0 ? " counts " : ",") << call.send_counts[m][i];
        }
      }
      out << "\n";
    }
  }
  for (const LossTerm& loss : program.losses) {
    out << "loss of rank " << loss.rank << ": value " << loss.value << " times";
    for (double element : loss.upstream) out << " " << element;
    out << "\n";
  }
  return out;
}

}  // namespace lockstep::kit
