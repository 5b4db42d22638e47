#include "arguments.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "exit_status.hpp"

namespace lockstep::tool {
namespace {

[[noreturn]] void refuse(const std::string& option, const std::string& text,
                         const std::string& rule) {
  throw Failure(bad_usage, option + ": '" + text + "': " + rule);
}

template <class Number>
std::optional<Number> number(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

RankRange parse_ranks(const std::string& text) {
  const std::size_t dots = text.find("..");
  const std::optional<int> fewest = number<int>(text.substr(0, dots));
  const std::optional<int> most =
      dots == std::string::npos ? fewest : number<int>(text.substr(dots + 2));
  if (!fewest || !most)
    refuse("--ranks", text, "not a range of world sizes such as 1..8, or one such as 4");
  if (*fewest < 1 || *most < 1) refuse("--ranks", text, "a world has at least one rank");
  if (*most < *fewest) refuse("--ranks", text, "the range is empty; the smaller world comes first");
  return {*fewest, *most};
}

std::vector<std::string> parse_list(const std::string& option, const std::string& text) {
  std::vector<std::string> list;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    list.push_back(text.substr(begin, end - begin));
    if (list.back().empty()) refuse(option, text, "not a list such as A,B: an entry is empty");
    begin = end + 1;
  }
  return list;
}

std::vector<int> parse_rank_list(const std::string& text) {
  std::vector<int> list;
  for (const std::string& entry : parse_list("--ranks", text)) {
    const RankRange range = parse_ranks(entry);
    for (int ranks = range.fewest; ranks <= range.most; ++ranks) list.push_back(ranks);
  }
  return list;
}

std::vector<std::int64_t> parse_sizes(const std::string& option, const std::string& text) {
  constexpr std::string_view suffixes[] = {"Ki", "Mi", "Gi", "Ti"};
  std::vector<std::int64_t> list;
  for (std::string entry : parse_list(option, text)) {
    int shift = 0;
    for (int i = 0; i < 4; ++i) {
      if (!entry.ends_with(suffixes[i])) continue;
      shift = 10 * (i + 1);
      entry.resize(entry.size() - 2);
    }
    const std::optional<std::int64_t> size = number<std::int64_t>(entry);
    if (!size || *size < 0 || *size > (INT64_MAX >> shift)) {
      refuse(option, text, "not a list of sizes in bytes such as 64,16Mi");
    }
    list.push_back(*size << shift);
  }
  return list;
}

std::int64_t parse_number(const std::string& option, const std::string& text, std::int64_t least) {
  const std::optional<std::int64_t> value = number<std::int64_t>(text);
  if (!value || *value < least) {
    refuse(option, text, "not a whole number of " + std::to_string(least) + " or more");
  }
  return *value;
}

std::uint64_t parse_seed(const std::string& text) {
  const std::optional<std::uint64_t> value = number<std::uint64_t>(text);
  if (!value) refuse("--seed", text, "not a whole number of 0 to 2^64-1");
  return *value;
}

double parse_seconds(const std::string& option, const std::string& text) {
  const std::optional<double> value = number<double>(text);
  if (!value || !(*value > 0) || !std::isfinite(*value)) {
    refuse(option, text, "not a number of seconds above 0");
  }
  return *value;
}

std::string shell_quoted(const std::string& text) {
  constexpr std::string_view plain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+./:=,@%^";
  if (!text.empty() && text.find_first_not_of(plain) == std::string::npos) return text;
  std::string quoted = "'";
  for (char c : text) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

}  // namespace lockstep::tool
