// Shapes and count matrices for generated calls.
#pragma once

#include <cstdint>
#include <vector>

#include <lockstep/shape.hpp>

#include "dice.hpp"

namespace lockstep::kit {

// About how many elements a rank may pass: few in most cases, thousands in some, rarely a megabyte
// of them (less in a large world). Thousands of cases a second, and still every threshold is
// crossed.
std::int64_t draw_budget(Dice& dice, int world);
// The budget of most cases.
inline constexpr std::int64_t small_budget = 40;

enum class ZeroAxes : bool { forbidden, allowed };

// Trailing axes (0 to 4 of them) of at most `budget` elements.
std::vector<std::int64_t> draw_trailing(Dice& dice, std::int64_t budget, ZeroAxes zeros);

// The length of a leading axis, `budget` at most, often at the edge of a power of two.
std::int64_t draw_rows(Dice& dice, std::int64_t budget);

// A shape of the given leading and trailing axes.
Shape shape_of(std::int64_t rows, const std::vector<std::int64_t>& trailing);

// counts[s][d] rows go from rank s to rank d: one of the patterns at which exchanges break.
std::vector<std::vector<std::int64_t>> draw_counts(Dice& dice, int ranks, std::int64_t budget);

// `rows` divided among `ranks`, at random.
std::vector<std::int64_t> draw_division(Dice& dice, int ranks, std::int64_t rows);

}  // namespace lockstep::kit
