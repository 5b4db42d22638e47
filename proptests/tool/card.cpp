#include "card.hpp"

#include <algorithm>
#include <cstdio>

namespace lockstep::tool {
namespace {

std::string padded(std::string text, std::size_t width) {
  if (text.size() < width) text.append(width - text.size(), ' ');
  return text;
}

std::string right(const std::string& text, std::size_t width) {
  return text.size() < width ? std::string(width - text.size(), ' ') + text : text;
}

}  // namespace

std::string card(const VerifyRun& run) {
  char speed[64];
  std::snprintf(speed, sizeof speed, "%.1f s, %.0f cases/s", run.seconds,
                static_cast<double>(run.report.cases) / std::max(run.seconds, 1e-3));
  std::string text = "Conformance of " + run.backend + ": sums " + std::string(name(run.sum_rule)) +
                     ", seed " + std::to_string(run.seed) + ", worlds of " +
                     std::to_string(run.ranks.fewest) + " to " + std::to_string(run.ranks.most) +
                     ", " + std::to_string(run.report.cases) + " cases in " + speed + "\n\n";
  for (std::size_t i = 0; i < run.report.properties.size(); ++i) {
    const kit::PropertyReport& property = run.report.properties[i];
    text += "  " + padded(std::string(name(property.verdict)), 13) + property.clause + "\n";
    if (property.counterexample) text += std::string(15, ' ') + run.counterexamples[i] + "\n";
  }
  text += "\nCases that visited each corner:\n\n";
  // Two columns, filled downwards.
  constexpr std::size_t half = (kit::corner_count + 1) / 2;
  for (std::size_t row = 0; row < half; ++row) {
    for (std::size_t i = row; i < kit::corner_count; i += half) {
      const auto entry = right(std::to_string(run.report.visits[i]), 8) + "  " +
                         std::string(description(static_cast<kit::Corner>(i)));
      text += i + half < kit::corner_count ? padded(entry, 44) : entry;
    }
    text += "\n";
  }
  return text;
}

}  // namespace lockstep::tool
