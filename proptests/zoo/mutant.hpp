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
