#include <lockstep/differentiation/gradient.hpp>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

#include <lockstep/agreement.hpp>

namespace lockstep::differentiation {
namespace {

// A message names so many; a world of a thousand ranks that are all wrong should still fit a
// screen.
constexpr int most_named = 8;

void put(std::vector<std::int64_t>& integers, const TensorType& type) {
  integers.push_back(static_cast<std::int64_t>(type.dtype));
  integers.push_back(static_cast<std::int64_t>(type.shape.size()));
  integers.insert(integers.end(), type.shape.axes().begin(), type.shape.axes().end());
}

TensorType take_type(std::span<const std::int64_t>& integers) {
  const auto length = static_cast<std::int64_t>(integers.size());
  if (length < 2 || integers[0] < 0 ||
      integers[0] >= static_cast<std::int64_t>(std::size(all_dtypes)) || integers[1] < 0 ||
      integers[1] > length - 2) {
    refuse_integers("no dtype and shape");
  }
  const auto dtype = static_cast<DType>(integers[0]);
  const auto axes = static_cast<std::size_t>(integers[1]);
  TensorType type{dtype, Shape(integers.subspan(2, axes))};
  integers = integers.subspan(2 + axes);
  return type;
}

}  // namespace

void refuse_integers(const std::string& what) {
  throw Error(
      "ranks cannot read what they told each other before a reverse pass: all_gather_int returned " +
      what);
}

std::vector<std::int64_t> encode(std::span<const UnlikeUpstream> unlike) {
  std::vector<std::int64_t> integers;
  for (const UnlikeUpstream& one : unlike) {
    put(integers, one.value);
    put(integers, one.upstream);
  }
  return integers;
}

std::vector<UnlikeUpstream> decode_unlike(std::span<const std::int64_t> integers) {
  std::vector<UnlikeUpstream> unlike;
  while (!integers.empty()) {
    TensorType value = take_type(integers);
    TensorType upstream = take_type(integers);
    unlike.push_back({std::move(value), std::move(upstream)});
  }
  return unlike;
}

std::optional<std::string> explain_unlike(std::span<const std::vector<UnlikeUpstream>> ranks) {
  std::string who;
  int named = 0;
  int more = 0;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    for (const UnlikeUpstream& unlike : ranks[rank]) {
      if (named == most_named) {
        ++more;
        continue;
      }
      ++named;
      who += "; rank " + std::to_string(rank) + " passed " + to_string(unlike.upstream) + " for " +
             to_string(unlike.value);
    }
  }
  if (named == 0) return std::nullopt;
  if (more > 0) who += "; and " + std::to_string(more) + " more";
  return "an upstream gradient must have the dtype and shape of its result" + who;
}

std::optional<std::string> explain_asked(std::span<const std::vector<std::int64_t>> told) {
  constexpr auto operations = static_cast<std::int64_t>(std::size(tensor_operations));
  std::vector<std::pair<std::int64_t, std::vector<int>>> groups;
  for (std::size_t rank = 0; rank < told.size(); ++rank) {
    if (told[rank].empty() || told[rank][0] < asks_for_window || told[rank][0] >= operations) {
      refuse_integers("no question");
    }
    const std::int64_t asked = told[rank][0];
    auto group = std::ranges::find(groups, asked, [](const auto& one) { return one.first; });
    if (group == groups.end()) group = groups.insert(groups.end(), {asked, {}});
    group->second.push_back(static_cast<int>(rank));
  }
  if (groups.size() == 1) return std::nullopt;
  std::string text = "every rank must ask for the same gradient";
  for (const auto& [asked, ranks] : groups) {
    text += "; " + rank_list(ranks) + " asked for that of ";
    text += asked == asks_for_window ? "a whole window" : name(static_cast<Operation>(asked));
  }
  return text;
}

std::vector<std::int64_t> encode_question(Operation operation, std::int64_t root,
                                          std::span<const UnlikeUpstream> unlike) {
  std::vector<std::int64_t> integers = {static_cast<std::int64_t>(operation), root};
  const std::vector<std::int64_t> rest = encode(unlike);
  integers.insert(integers.end(), rest.begin(), rest.end());
  return integers;
}

std::optional<GradientBreach> find_breach_of_questions(
    std::span<const std::vector<std::int64_t>> told) {
  if (std::optional<std::string> explanation = explain_asked(told)) {
    return GradientBreach{Violation::operation, *std::move(explanation)};
  }
  std::vector<Signature> roots;
  std::vector<std::vector<UnlikeUpstream>> unlike;
  for (const std::vector<std::int64_t>& question : told) {
    if (question.size() < 2) refuse_integers("half a question");
    unlike.push_back(decode_unlike(std::span(question).subspan(2)));
    Signature& signature = roots.emplace_back();
    signature.operation = Operation::broadcast_float;
    signature.dtype = DType::f32;
    signature.root = question[1];
  }
  if (told[0][0] == static_cast<std::int64_t>(Operation::broadcast_float)) {
    if (std::optional<Breach> breach = find_breach(roots)) {
      return GradientBreach{breach->violation, std::move(breach->explanation)};
    }
  }
  if (std::optional<std::string> explanation = explain_unlike(unlike)) {
    return GradientBreach{Violation::gradient, *std::move(explanation)};
  }
  return std::nullopt;
}

}  // namespace lockstep::differentiation
