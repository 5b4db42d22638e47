// Forward windows of several ranks as data: drawn at random, run on any communicator, and
// differentiated by an unsharded oracle.
//
// The oracle knows neither ranks nor collectives. It lays the whole program out as one graph of
// scalars (a gather is the same scalars in another tensor, a sum is an addition), and walks it back
// once. All numbers are whole and small enough for every sum to be exact in any order, so there is
// one right gradient, to be met without tolerance.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <variant>
#include <vector>

#include <lockstep/dtype.hpp>
#include <lockstep/operation.hpp>
#include <lockstep/shape.hpp>
#include <lockstep/tensor.hpp>

namespace lockstep::kit {

// Every instruction gives each rank that takes part in it one more value; a rank's values are
// counted in the order in which it got them.
struct NewValue {
  int rank;
  bool constant;  // not a variable
  Shape shape;
  std::vector<double> elements;
};
// first_factor * first + second_factor * second, or first * second, elementwise.
struct Combination {
  int rank;
  bool product;
  int first, second;
  int first_factor, second_factor;
};
struct Collective {
  Operation operation;
  std::vector<int> group;  // world ranks, all of them in order for the world's own communicator
  std::int64_t root;
  std::vector<int> inputs;                             // per member, one of its values
  std::vector<std::vector<std::int64_t>> send_counts;  // per member, of an exchange
};
// Part of a rank's loss: <upstream, value>.
struct LossTerm {
  int rank;
  int value;
  std::vector<double> upstream;
};

struct WindowProgram {
  int world = 1;
  std::vector<std::variant<NewValue, Combination, Collective>> instructions;
  std::vector<LossTerm> losses;
};

// For RapidCheck: draws inside a property, before ranks are started.
WindowProgram draw_window_program(int most_ranks);
std::ostream& operator<<(std::ostream& out, const WindowProgram& program);

// The gradient of the sum of all losses with respect to every value that is no constant and no
// result: by rank and number of the value.
struct UnshardedGradients {
  std::map<std::pair<int, int>, std::vector<double>> of;
  // No intermediate result, in whatever order sums are taken, is larger in magnitude.
  double largest;
};
UnshardedGradients unsharded_gradients(const WindowProgram& program);

// f64, or another dtype, from whole numbers that it represents; and back.
FloatTensor whole_numbers(DType dtype, const Shape& shape, const std::vector<double>& elements);
std::vector<double> as_doubles(const FloatTensor& x);

}  // namespace lockstep::kit
