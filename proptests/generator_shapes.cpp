#include "generator_shapes.hpp"

#include <algorithm>
#include <bit>

namespace lockstep::kit {

std::int64_t draw_budget(Dice& dice, int world) {
  const std::int64_t thrown = dice.below(4000);
  if (thrown < 5) return std::min(2'400'000, 8'000'000 / world);  // a megabyte and more
  if (thrown < 11) return 70'000;                                 // beyond what 16 bits count
  if (thrown < 27) return 20'000;  // beyond 64 KiB, where libraries change their algorithm
  if (thrown < 240) return 4'200;  // around a page
  return small_budget;
}

std::vector<std::int64_t> draw_trailing(Dice& dice, std::int64_t budget, ZeroAxes zeros) {
  std::size_t axes = dice.pick<std::size_t>({0, 0, 0, 1, 1, 1, 1, 2, 2, 3, 4});
  // Sizes at thresholds are met exactly by a leading axis alone.
  if (budget >= 20'000 && dice.one_in(2)) axes = 0;
  std::vector<std::int64_t> trailing;
  for (std::size_t axis = 0; axis < axes; ++axis) {
    std::int64_t length = dice.pick<std::int64_t>({1, 1, 2, 2, 3, 4, 5, 7});
    if (zeros == ZeroAxes::allowed && dice.one_in(24)) length = 0;
    length = std::min(length, std::max<std::int64_t>(budget, 1));
    if (length > 0) budget /= length;
    trailing.push_back(length);
  }
  return trailing;
}

std::int64_t draw_rows(Dice& dice, std::int64_t budget) {
  if (budget > 64 && !dice.one_in(8)) {
    if (dice.one_in(2)) return dice.between(budget / 2, budget);
    if (dice.one_in(8)) return std::min<std::int64_t>(1000, budget);
    // Just below, at and just above a power of two: any, or the largest that there is room for,
    // which is where blocks, pools and parallel loops begin.
    const int powers = std::bit_width(static_cast<std::uint64_t>(budget)) - 6;
    const std::int64_t power = std::int64_t{64}
                               << (dice.one_in(2) ? powers - 1 : dice.below(powers));
    return std::min(power + dice.between(-1, 1), budget);
  }
  const std::int64_t rows =
      dice.pick<std::int64_t>({0, 1, 1, 1, 2, 2, 3, 4, 5, 6, 7, 8, 9, 13, 17});
  return std::min(rows, budget);
}

Shape shape_of(std::int64_t rows, const std::vector<std::int64_t>& trailing) {
  std::vector<std::int64_t> axes{rows};
  axes.insert(axes.end(), trailing.begin(), trailing.end());
  return Shape(std::span<const std::int64_t>(axes));
}

std::vector<std::vector<std::int64_t>> draw_counts(Dice& dice, int ranks, std::int64_t budget) {
  const auto n = static_cast<std::size_t>(ranks);
  std::vector<std::vector<std::int64_t>> counts(n, std::vector<std::int64_t>(n, 0));
  // What one block may hold, so that a rank stays within its budget.
  const std::int64_t most = std::max<std::int64_t>(1, budget / ranks);
  const auto block = [&] {
    return std::min(most, draw_rows(dice, std::max<std::int64_t>(most, 4)));
  };
  const auto fill = [&](auto&& count) {
    for (std::size_t s = 0; s < n; ++s) {
      for (std::size_t d = 0; d < n; ++d) counts[s][d] = count(s, d);
    }
  };
  const std::size_t chosen = dice.index(n);
  const std::size_t other = dice.index(n);
  const std::int64_t full = std::max<std::int64_t>(1, block());
  // Where a rank sends a single block, it may take all there is.
  const std::int64_t whole = std::max<std::int64_t>(1, draw_rows(dice, budget));
  switch (dice.below(14)) {
    case 0:  // every block filled, each differently where the budget lets them
      fill([&](std::size_t s, std::size_t d) {
        return 1 + static_cast<std::int64_t>(s * n + d) % std::max<std::int64_t>(most, 3);
      });
      break;
    case 1:  // one sender
      for (std::int64_t& count : counts[chosen]) count = full;
      break;
    case 2:  // one receiver
      for (std::size_t s = 0; s < n; ++s) counts[s][chosen] = block();
      break;
    case 3:
      break;  // all empty
    case 4:   // one filled block
      counts[chosen][other] = whole;
      break;
    case 5:  // checkerboard
      fill([&](std::size_t s, std::size_t d) {
        return (s + d) % 2 == 0 ? static_cast<std::int64_t>(s) % most + 1 : std::int64_t{0};
      });
      break;
    case 6:  // ring
      fill([&](std::size_t s, std::size_t d) { return d == (s + 1) % n ? whole : 0; });
      break;
    case 7:  // everybody to itself
      fill([&](std::size_t s, std::size_t d) { return s == d ? block() : 0; });
      break;
    case 8:  // equal blocks: what everybody tests
      fill([&](std::size_t, std::size_t) { return full; });
      break;
    case 9:  // little to most, much to one
      fill([&](std::size_t, std::size_t d) { return d == chosen ? budget : std::int64_t{1}; });
      break;
    case 10:  // a number of its own for each sender
      fill([&](std::size_t s, std::size_t) { return static_cast<std::int64_t>(s) % most + 1; });
      break;
    default:  // anything, half of it empty, sometimes with an empty row and column
      fill([&](std::size_t, std::size_t) { return dice.one_in(2) ? 0 : block(); });
      if (dice.one_in(2)) {
        std::ranges::fill(counts[chosen], 0);
        for (std::size_t s = 0; s < n; ++s) counts[s][other] = 0;
      }
  }
  return counts;
}

std::vector<std::int64_t> draw_division(Dice& dice, int ranks, std::int64_t rows) {
  std::vector<std::int64_t> cuts{0, rows};
  for (int i = 1; i < ranks; ++i) cuts.push_back(dice.between(0, rows));
  std::ranges::sort(cuts);
  std::vector<std::int64_t> division;
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) division.push_back(cuts[i + 1] - cuts[i]);
  return division;
}

}  // namespace lockstep::kit
