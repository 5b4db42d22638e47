// <A x, y> = <x, A' y>, summed over all ranks: what makes a gradient right, whoever computed it. On
// small whole numbers both sides are exact, whatever the rule of sums, and no oracle is asked.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>

#include <lockstep/kit/generator.hpp>
#include <lockstep/kit/program_oracle.hpp>

#include <zoo_backend.hpp>

#include "dice.hpp"

namespace lockstep::zoo {
namespace {

using kit::Case;
using kit::Dice;
using kit::Outcome;
using kit::Step;
using kit::Transcript;

FloatTensor whole_numbers(Dice& dice, const Shape& shape) {
  FloatTensor x = FloatTensor::zeros(DType::f64, shape);
  for (double& element : x.mutable_values<double>()) element = static_cast<double>(dice.between(-3, 3));
  return x;
}

// A generated case for gradients whose floating elements are whole numbers of f64.
Case whole_number_case(std::uint64_t seed) {
  Case c = kit::draw_case("gradient", {.fewest_ranks = 1, .most_ranks = 6, .groups = true}, seed);
  Dice dice(seed);
  for (Step& step : c.steps) {
    for (std::size_t member = 0; member < step.members(); ++member) {
      std::optional<kit::Input>& input = step.inputs[member];
      if (input && !input->from_step && is_floating(input->tensor.dtype())) {
        input->tensor = whole_numbers(dice, input->tensor.shape());
      }
      if (!step.upstream.empty() && step.upstream[member]) {
        step.upstream[member] = whole_numbers(dice, step.upstream[member]->shape());
      }
    }
  }
  return c;
}

// Nothing where the shapes differ.
std::optional<double> inner_product(const Tensor& a, const Tensor& b) {
  if (a.dtype() != DType::f64 || b.dtype() != DType::f64 || a.shape() != b.shape()) return std::nullopt;
  double sum = 0;
  for (std::int64_t i = 0; i < a.elements(); ++i) {
    sum += a.values<double>()[static_cast<std::size_t>(i)] *
           b.values<double>()[static_cast<std::size_t>(i)];
  }
  return sum;
}

// The two sides of some steps: the losses, and what the gradients make of the inputs. In a window
// everything that was fed onward is part of the map, so the inputs are those that ranks brought.
bool identity_holds(const Case& c, const Transcript& t, std::size_t first, std::size_t end) {
  double losses = 0;
  double gradients = 0;
  const auto add = [](double& side, const Tensor& a, const Tensor& b) {
    const std::optional<double> product = inner_product(a, b);
    side += product.value_or(0);
    return product.has_value();
  };
  for (std::size_t s = first; s < end; ++s) {
    const Step& step = c.steps[s];
    if (takes_integers(step.operations[0])) continue;
    for (std::size_t member = 0; member < step.members(); ++member) {
      const Outcome& outcome = t[s][member];
      // Where the contract was broken there is nothing to compare.
      if (outcome.kind == Outcome::Kind::contract || outcome.gradient_violation) return true;
      if (outcome.kind != Outcome::Kind::value) return false;
      if (!step.upstream.empty() && step.upstream[member] &&
          !add(losses, outcome.value, *step.upstream[member])) {
        return true;  // an upstream unlike its result, which is another rule
      }
      const kit::Input& input = *step.inputs[member];
      if (!outcome.gradient || (c.window && input.from_step)) continue;
      const Tensor* passed = &input.tensor;
      if (input.from_step) {
        const Step& source = c.steps[static_cast<std::size_t>(*input.from_step)];
        for (std::size_t m = 0; m < source.members(); ++m) {
          if (source.world_rank(m) != step.world_rank(member)) continue;
          passed = &t[static_cast<std::size_t>(*input.from_step)][m].value;
        }
      }
      if (!add(gradients, *passed, *outcome.gradient)) return false;
    }
  }
  return losses == gradients;
}

bool identity_holds(const Case& c, const Transcript& t) {
  if (c.window) return identity_holds(c, t, 0, c.steps.size());
  for (std::size_t s = 0; s < c.steps.size(); ++s) {
    if (!identity_holds(c, t, s, s + 1)) return false;
  }
  return true;
}

constexpr std::chrono::milliseconds patience(100);

// The first of so many cases on which the identity does not hold.
std::optional<int> first_broken(const Mutant& mutant, int cases) {
  kit::KeptWorlds worlds;
  ZooBackend backend(mutant, worlds, patience);
  for (int i = 0; i < cases; ++i) {
    const Case c = whole_number_case(static_cast<std::uint64_t>(i));
    if (!identity_holds(c, backend.run(c))) return i;
  }
  return std::nullopt;
}

TEST(AdjointIdentity, HoldsForTheOracle) {
  for (int i = 0; i < 1000; ++i) {
    const Case c = whole_number_case(static_cast<std::uint64_t>(i));
    for (SumRule rule : {SumRule::exact, SumRule::rank_order}) {
      EXPECT_TRUE(identity_holds(c, kit::expected_transcript(c, rule))) << "case " << i;
    }
  }
}

TEST(AdjointIdentity, HoldsForBackendsThatAreRight) {
  for (const Mutant& right : right_backends()) {
    EXPECT_EQ(first_broken(right, 500), std::nullopt) << right.name;
  }
}

// All of the zoo's gradients that are wrong on whole numbers.
const char* const wrong_on_whole_numbers[] = {
    "gather_gradient_sliced",
    "gather_gradient_unsliced",
    "gather_gradient_mean",
    "gather_gradient_reversed",
    "gather_gradient_by_world_rank",
    "scatter_gradient_own_rows",
    "scatter_gradient_repeated",
    "scatter_gradient_times_world",
    "scatter_gradient_mean",
    "scatter_gradient_reversed",
    "scatter_gradient_zero",
    "all_reduce_gradient_identity",
    "all_reduce_gradient_mean",
    "all_reduce_gradient_times_world",
    "all_reduce_gradient_to_rank_0",
    "all_reduce_gradient_last_rank",
    "broadcast_gradient_everywhere",
    "broadcast_gradient_nowhere",
    "broadcast_gradient_to_rank_0",
    "broadcast_gradient_by_world_rank",
    "broadcast_gradient_of_root",
    "broadcast_gradient_mean",
    "exchange_gradient_reversed",
    "exchange_gradient_in_place",
    "absent_upstream_garbage",
    "gradient_accumulates",
    "window_forward_order",
    "window_only_direct",
    "window_latest_use_only",
    "window_earliest_use_only",
    "window_flows_into_ignored",
};

TEST(AdjointIdentity, ExposesWrongGradientsWithoutAnOracle) {
  for (const char* name : wrong_on_whole_numbers) {
    const auto mutant = std::ranges::find(mutants(), name, &Mutant::name);
    ASSERT_NE(mutant, mutants().end()) << name;
    EXPECT_TRUE(first_broken(*mutant, 1000).has_value()) << name;
  }
}

}  // namespace
}  // namespace lockstep::zoo
