// The kit's own promises: every generated case is a case file, deterministic and performable; every
// simplification is one too, and every chain of them ends; the corners are visited.
#include <algorithm>
#include <array>
#include <chrono>
#include <iostream>
#include <string>

#include <rapidcheck.h>

#include <lockstep/kit/case_file.hpp>
#include <lockstep/kit/corners.hpp>
#include <lockstep/kit/generator.hpp>
#include <lockstep/kit/judge.hpp>
#include <lockstep/kit/program_oracle.hpp>
#include <lockstep/kit/rapidcheck.hpp>
#include <lockstep/kit/verification.hpp>

namespace lockstep::kit {
namespace {

Case any_case(int most_ranks = 6) {
  std::vector<std::string> names;
  for (const Property& property : properties()) names.emplace_back(property.name);
  const std::string property = *rc::gen::elementOf(names);
  // Drawn without shrinking: what fails here is the kit, and its own shrinking is under test.
  return *rc::gen::noShrink(cases_for(property, {.most_ranks = most_ranks}));
}

std::int64_t elements(const Case& c) {
  std::int64_t elements = 0;
  for (const Step& step : c.steps) {
    for (const std::optional<Input>& input : step.inputs) {
      if (input) elements += input->tensor.elements();
    }
    for (const Outcome& outcome : step.expected) elements += outcome.value.elements();
  }
  return elements;
}

// For properties that write and read a case hundreds of times.
Case any_small_case() {
  Case c = any_case();
  RC_PRE(elements(c) < 2000);
  return c;
}

// Valid, and the same when it has been written and read.
void require_case_file(const Case& c) {
  const std::string text = write_case(c);
  RC_ASSERT(write_case(read_case(text)) == text);
}

bool generated_cases() {
  return rc::check("a generated case is a case file, and the oracle has an answer", [] {
    const Case c = any_case(9);
    const Case answered = with_expected(c);  // throws where a reference has no value
    // Megabytes as text take minutes.
    if (elements(answered) < 200'000) {
      require_case_file(c);
      require_case_file(answered);
    }
    // What the oracle says holds against the oracle.
    const auto divergence = judge(c, expected_transcript(c, SumRule::exact), SumRule::exact);
    RC_ASSERT(!divergence.has_value());
  });
}

// What tells a case from another: the file, or for one that takes long to write its elements.
std::string identity(const Case& c) {
  if (elements(c) < 20'000) return write_case(c);
  std::string bytes;
  for (const Step& step : c.steps) {
    for (const std::optional<Input>& input : step.inputs) {
      if (!input) continue;
      const auto held = input->tensor.bytes();
      bytes.append(reinterpret_cast<const char*>(held.data()), held.size());
    }
  }
  return bytes;
}

bool same_seed_same_case() {
  return rc::check("the same seed gives the same case, another seed another", [] {
    const auto seed = *rc::gen::arbitrary<std::uint64_t>();
    for (const Property& property : properties()) {
      const std::string once = identity(draw_case(property.name, {}, seed));
      RC_ASSERT(identity(draw_case(property.name, {}, seed)) == once);
      RC_ASSERT(identity(draw_case(property.name, {}, seed + 1)) != once);
    }
  });
}

bool limits_are_kept() {
  return rc::check("worlds and groups stay within the limits", [] {
    const int fewest = *rc::gen::inRange(1, 40);
    const int most = fewest + *rc::gen::inRange(0, 40);
    const auto seed = *rc::gen::arbitrary<std::uint64_t>();
    for (const Property& property : properties()) {
      const Case c = draw_case(property.name, {fewest, most, false}, seed);
      RC_ASSERT(c.world >= fewest);
      RC_ASSERT(c.world <= most);
      for (const Step& step : c.steps) RC_ASSERT(step.group.empty() || property.name == "groups");
    }
  });
}

bool simplifications_are_cases() {
  return rc::check("a simpler case is a case file, and no candidate is the case itself", [] {
    const Case c = any_small_case();
    const std::string text = write_case(c);
    Simplifications candidates(c);
    for (int i = 0; i < 200; ++i) {
      const std::optional<Case> candidate = candidates.next();
      if (!candidate) break;
      require_case_file(*candidate);
      RC_ASSERT(write_case(*candidate) != text);
    }
  });
}

// A failure that does not depend on anything lets every first candidate be taken: the longest way
// down that a shrinker can go.
bool chains_end() {
  return rc::check("a chain of candidates ends", [] {
    Case c = any_small_case();
    const auto stride = *rc::gen::inRange(1, 5);  // not always the first
    int length = 0;
    for (;; ++length) {
      RC_ASSERT(length < 10'000);
      Simplifications candidates(c);
      std::optional<Case> chosen = candidates.next();
      for (int skip = 1; chosen && skip < stride; ++skip) {
        std::optional<Case> further = candidates.next();
        if (!further) break;
        chosen = std::move(further);
      }
      if (!chosen) break;
      c = std::move(*chosen);
    }
    // At the end there is nothing left to take away.
    RC_ASSERT(c.world == 1);
    RC_ASSERT(c.steps.size() == 1u);
  });
}

// The cases of `lockstep verify` as it is without options.
bool corners_are_visited() {
  std::array<std::int64_t, corner_count> visits{};
  const std::uint64_t cases_each =
      static_cast<std::uint64_t>(VerifyOptions().cases) / properties().size();
  for (const Property& property : properties()) {
    for (std::uint64_t i = 0; i < cases_each; ++i) {
      const Case c = draw_case(property.name, {1, 64, true}, case_seed(1, property.name, i));
      const Corners visited = corners(c, expected_transcript(c, SumRule::exact));
      for (std::size_t corner = 0; corner < corner_count; ++corner) {
        visits[corner] += visited[corner] ? 1 : 0;
      }
    }
  }
  bool all = true;
  for (std::size_t corner = 0; corner < corner_count; ++corner) {
    if (visits[corner] > 0) continue;
    std::cout << "no case visits " << name(static_cast<Corner>(corner)) << "\n";
    all = false;
  }
  return all;
}

}  // namespace
}  // namespace lockstep::kit

int main() {
  using namespace lockstep::kit;
  bool ok = generated_cases();
  ok &= same_seed_same_case();
  ok &= limits_are_kept();
  ok &= simplifications_are_cases();
  ok &= chains_end();
  ok &= corners_are_visited();
  return ok ? 0 : 1;
}
