// The end of a chain of simpler cases.
#pragma once

#include <optional>
#include <utility>

#include <lockstep/kit/generator.hpp>

namespace lockstep::kit {

// Takes the first simpler case for which `fails` holds, until there is none.
template <class Fails>
Case shrunk(Case c, Fails fails) {
  for (bool descended = true; descended;) {
    descended = false;
    Simplifications candidates(c);
    while (std::optional<Case> candidate = candidates.next()) {
      if (!fails(*candidate)) continue;
      c = std::move(*candidate);
      descended = true;
      break;
    }
  }
  return c;
}

}  // namespace lockstep::kit
