#include <lockstep/differentiation/gradient.hpp>

#include <cstddef>
#include <iterator>

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

}  // namespace lockstep::differentiation
