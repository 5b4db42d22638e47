// Cases out of thin air, biased to the corners where collectives break, and simpler ones near them.
//
// Everything here is a function of a seed. For properties inside a RapidCheck test, see
// lockstep/kit/rapidcheck.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include <lockstep/kit/case.hpp>

namespace lockstep::kit {

// A clause of the contract that cases are generated for and judged by.
struct Property {
  std::string_view name;    // for --property and the JSON report
  std::string_view clause;  // what the conformance card says that holds or is broken
};
std::span<const Property> properties();

// What cases may ask of the backend.
struct GeneratorLimits {
  int fewest_ranks = 1;
  int most_ranks = 8;
  bool groups = true;  // steps on sub-communicators
};

// A case for one property: valid calls, or for the clauses on errors also broken ones. The same
// arguments give the same case. Throws InvalidArgument for a property that is not listed, and for
// limits that no world satisfies.
Case draw_case(std::string_view property, const GeneratorLimits& limits, std::uint64_t seed);

// The seed of one case of a run: different for every property and index, and independent of which
// other properties run.
std::uint64_t case_seed(std::uint64_t run_seed, std::string_view property, std::uint64_t index);

// The candidates that are simpler than a failing case, one after the other and made only when asked
// for: fewer steps, fewer ranks, fewer rows, fewer and shorter axes, plainer values, f32 or i32,
// root 0. Boldest first. All are case files like the case itself, without `expected`; some may be
// calls that break the contract, or refer to a value that is no longer there. Every chain of
// candidates ends: each is smaller than the one it came from in a well-founded order (see
// shrink.cpp).
class Simplifications {
 public:
  explicit Simplifications(Case c);

  // Nothing when there are no more.
  std::optional<Case> next();

 private:
  struct Moves;
  std::shared_ptr<const Moves> moves_;
  std::size_t position_ = 0;
  std::size_t way_ = 0;  // of making the same move
};
inline Simplifications simpler(Case c) {
  return Simplifications(std::move(c));
}

}  // namespace lockstep::kit
