#include <algorithm>

#include <lockstep/error.hpp>
#include <lockstep/signature_wire.hpp>

namespace lockstep {
namespace {

bool counts_fit(std::span<const std::int64_t> counts, std::int64_t rows, int world_size) {
  if (counts.size() != static_cast<std::size_t>(world_size)) return false;
  std::int64_t left = rows;
  for (std::int64_t count : counts) {
    if (count < 0 || count > left) return false;
    left -= count;
  }
  return left == 0;
}

std::span<const std::int64_t> axes_of(const SignatureDigest& digest) {
  return std::span(digest.axes).first(digest.axis_count);
}

// The digest without what ranks may differ in: the rows and the length of an exchange.
SignatureDigest common_part(SignatureDigest digest) {
  digest.encoded_words = 0;
  if (is_all_to_all_v(digest.operation)) digest.axes[0] = 0;
  return digest;
}

// Can a tensor of `rows` rows with the trailing axes and the dtype of `like` exist?
bool representable(const SignatureDigest& like, std::optional<std::int64_t> rows) {
  if (!rows) return false;
  SignatureDigest result = like;
  result.axes[0] = *rows;
  const std::optional<std::int64_t> elements = Shape::product(axes_of(result));
  return elements && checked_multiply(*elements, size_of(like.dtype));
}

}  // namespace

SignatureDigest digest_of(const Signature& signature, int world_size) {
  const std::span<const std::int64_t> axes = signature.shape.axes();
  SignatureDigest digest;
  std::ranges::copy(axes.first(std::min(axes.size(), digest.axes.size())), digest.axes.begin());
  digest.root = signature.root;
  digest.encoded_words = static_cast<std::int64_t>(5 + axes.size() + signature.send_counts.size());
  digest.axis_count = static_cast<std::uint32_t>(axes.size());
  digest.operation = signature.operation;
  digest.dtype = signature.dtype;
  digest.counts_fit = is_all_to_all_v(signature.operation) && !axes.empty() &&
                      counts_fit(signature.send_counts, axes[0], world_size);
  return digest;
}

bool certainly_fit(std::span<const SignatureDigest> digests) {
  const SignatureDigest& first = digests[0];
  const auto ranks = static_cast<std::int64_t>(digests.size());
  if (first.operation == Operation::split) {  // which asks for nothing more of a tensor
    return std::ranges::all_of(
        digests, [](const SignatureDigest& d) { return d.operation == Operation::split; });
  }
  const SignatureDigest common = common_part(first);
  const bool alike = std::ranges::all_of(
      digests, [&](const SignatureDigest& d) { return common_part(d) == common; });
  if (!alike || first.axis_count > SignatureDigest::most_axes) return false;
  if (needs_leading_axis(first.operation) && first.axis_count == 0) return false;

  switch (first.operation) {
    case Operation::all_gather_float:
    case Operation::all_gather_int:
      return representable(first, checked_multiply(ranks, first.axes[0]));
    case Operation::reduce_scatter_sum:
      return first.axes[0] % ranks == 0;
    case Operation::broadcast_float:
      return first.root >= 0 && first.root < ranks;
    case Operation::all_to_all_v_float:
    case Operation::all_to_all_v_int: {
      const std::span<const std::int64_t> trailing = axes_of(first).subspan(1);
      if (!first.counts_fit || std::ranges::find(trailing, 0) != trailing.end()) return false;
      std::optional<std::int64_t> rows = 0;  // of all ranks: the most that one can receive
      for (const SignatureDigest& digest : digests) {
        if (rows) rows = checked_add(*rows, digest.axes[0]);
      }
      return representable(first, rows);
    }
    case Operation::all_reduce_sum:
    case Operation::split:
      return true;
  }
  return false;
}

// Layout: operation, dtype, number of axes, the axes, root, number of counts, the counts.
std::vector<std::int64_t> encode(const Signature& signature) {
  const std::span<const std::int64_t> axes = signature.shape.axes();
  const std::span<const std::int64_t> counts = signature.send_counts;
  std::vector<std::int64_t> words;
  words.reserve(5 + axes.size() + counts.size());
  words.push_back(static_cast<std::int64_t>(signature.operation));
  words.push_back(static_cast<std::int64_t>(signature.dtype));
  words.push_back(static_cast<std::int64_t>(axes.size()));
  words.insert(words.end(), axes.begin(), axes.end());
  words.push_back(signature.root);
  words.push_back(static_cast<std::int64_t>(counts.size()));
  words.insert(words.end(), counts.begin(), counts.end());
  return words;
}

DecodedSignature decode_signature(std::span<const std::int64_t> words) {
  const auto refuse = [] { throw InvalidArgument("these words are not an encoded signature"); };
  const auto take = [&](std::int64_t count) {
    if (count < 0 || static_cast<std::size_t>(count) > words.size()) refuse();
    const std::span<const std::int64_t> taken = words.first(static_cast<std::size_t>(count));
    words = words.subspan(taken.size());
    return taken;
  };
  const auto take_below = [&](std::int64_t limit) {
    const std::int64_t value = take(1)[0];
    if (value < 0 || value >= limit) refuse();
    return value;
  };

  DecodedSignature decoded;
  Signature& signature = decoded.signature;
  signature.operation =
      static_cast<Operation>(take_below(static_cast<std::int64_t>(Operation::split) + 1));
  signature.dtype = static_cast<DType>(take_below(std::size(all_dtypes)));
  signature.shape = Shape(take(take(1)[0]));
  signature.root = take(1)[0];
  const std::span<const std::int64_t> counts = take(take(1)[0]);
  if (!words.empty()) refuse();
  decoded.send_counts.assign(counts.begin(), counts.end());
  signature.send_counts = decoded.send_counts;
  return decoded;
}

}  // namespace lockstep
