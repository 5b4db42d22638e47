// Breaks a call that fits the contract.
#pragma once

#include <lockstep/kit/case.hpp>

#include "dice.hpp"

namespace lockstep::kit {

// Changes what some or all members pass so that one to three rules of the contract are broken,
// those that can be for this operation and number of members. (Which one a backend must report is
// the oracle's business.) The step has tensors of its own, no references to earlier steps.
void break_call(Dice& dice, Step& step);

}  // namespace lockstep::kit
