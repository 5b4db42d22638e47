// Deliberately wrong backends. Each is right but for one fault that somebody could ship; the kit is
// good enough when it catches them all.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include <lockstep/sum_rule.hpp>

#include "rank.hpp"

namespace lockstep::zoo {

// One rank's part in one collective, with the fault in it.
using Fault = std::function<Answer(Rank&, const Call&)>;

// One rank's part in one gradient, with the fault in it.
using GradientFault = std::function<Tensor(Rank&, const GradientCall&)>;

// What is wrong with the way back through a forward window.
enum class WindowFault : std::uint8_t {
  none,
  forward_order,       // collectives are taken back in the order in which they were made
  world_first,         // those of the world before those of groups
  own_losses_first,    // a rank begins with what its own loss uses
  skips_unused,        // a rank skips what its own loss does not reach
  only_direct,         // what is reached through another collective is not entered
  enters_everything,   // nor is anything that nobody's loss reaches left out
  latest_use_only,     // of several gradients of a value the first to arrive stays
  earliest_use_only,   // or the last
  zero_times,          // where a rank has no gradient it enters with zero times the value
  flows_into_ignored,  // what a broadcast ignored has a gradient
};

struct Mutant {
  std::string_view name;         // "gather_reversed": unique
  std::string_view kind;         // "order": what sort of fault it is
  std::string_view description;  // one sentence that says what it does wrong
  Fault fault;
  SumRule sum_rule = SumRule::exact;  // the rule that it claims to follow
  // The ranks of the communicator that is made where these ranks of the world are asked for; null
  // where the right one is made.
  std::vector<int> (*group)(std::vector<int> asked, int world) = nullptr;
  // Gradients; where there is none they are the library's own, over the faulty calls.
  GradientFault gradient = {};
  // Forward windows; without a fault they are the library's own, over the faulty calls.
  WindowFault window = WindowFault::none;
};

// One list for each kind of fault, in a file of its own.
std::vector<Mutant> order_mutants();
std::vector<Mutant> count_mutants();
std::vector<Mutant> zero_row_mutants();
std::vector<Mutant> bit_mutants();
std::vector<Mutant> sum_mutants();
std::vector<Mutant> root_mutants();
std::vector<Mutant> aliasing_mutants();
std::vector<Mutant> agreement_mutants();
std::vector<Mutant> loss_mutants();
std::vector<Mutant> group_mutants();
std::vector<Mutant> state_mutants();
std::vector<Mutant> world_of_one_mutants();
std::vector<Mutant> last_rank_mutants();
std::vector<Mutant> hang_mutants();
std::vector<Mutant> gradient_mutants();

// All of them.
const std::vector<Mutant>& mutants();
// Without any fault, under each sum rule: those that the kit must never catch.
const std::vector<Mutant>& right_backends();

}  // namespace lockstep::zoo
