// Generated cases as a RapidCheck generator, for properties of one's own:
//
//   rc::check("gathering keeps every bit", [] {
//     const Case c = *lockstep::kit::cases_for("all_gather_float", {.most_ranks = 4});
//     ...
//   });
#pragma once

#include <ostream>
#include <string>

#include <rapidcheck.h>

#include <lockstep/kit/case_file.hpp>
#include <lockstep/kit/generator.hpp>

namespace lockstep::kit {

// Simpler cases as RapidCheck walks them.
class SimplerSequence {
 public:
  explicit SimplerSequence(const Case& c) : simplifications_(c) {}

  rc::Maybe<rc::Shrinkable<Case>> operator()();

 private:
  Simplifications simplifications_;
};

inline rc::Shrinkable<Case> shrinkable_case(Case c) {
  return rc::shrinkable::lambda([c] { return c; }, [c] { return rc::makeSeq<SimplerSequence>(c); });
}

inline rc::Maybe<rc::Shrinkable<Case>> SimplerSequence::operator()() {
  std::optional<Case> candidate = simplifications_.next();
  if (!candidate) return rc::Nothing;
  return shrinkable_case(std::move(*candidate));
}

// Cases for one property (see draw_case), shrinking through `simpler`.
inline rc::Gen<Case> cases_for(std::string property, GeneratorLimits limits = {}) {
  return [property = std::move(property), limits](const rc::Random& random, int) {
    return shrinkable_case(draw_case(property, limits, rc::Random(random).next()));
  };
}

// How RapidCheck shows a case: as its case file.
inline void showValue(const Case& c, std::ostream& out) {
  out << write_case(c);
}

}  // namespace lockstep::kit
