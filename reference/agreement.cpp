#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include <lockstep/agreement.hpp>

namespace lockstep {
namespace {

using Signatures = std::span<const Signature>;

// How many different values a message spells out; a world of a thousand ranks that all disagree
// should still give a message that fits a screen.
constexpr std::size_t most_values_named = 8;

// "rank 0 passed [2, 3]; ranks 1-2 passed [3, 3]" over those ranks for which `concerned` holds.
std::string who_passed_what(Signatures all,
                            const std::function<std::string(const Signature&)>& value,
                            const std::function<bool(const Signature&)>& concerned) {
  std::vector<std::pair<std::string, std::vector<int>>> groups;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (!concerned(all[rank])) continue;
    const std::string text = value(all[rank]);
    auto group = std::ranges::find(groups, text, [](const auto& g) { return g.first; });
    if (group == groups.end()) group = groups.insert(groups.end(), {text, {}});
    group->second.push_back(static_cast<int>(rank));
  }
  std::string text;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (i > 0) text += "; ";
    if (i == most_values_named) {
      return text + "and " + std::to_string(groups.size() - i) + " other values";
    }
    text += rank_list(groups[i].second) + " passed " + groups[i].first;
  }
  return text;
}

std::string who_passed_what(Signatures all,
                            const std::function<std::string(const Signature&)>& value) {
  return who_passed_what(all, value, [](const Signature&) { return true; });
}

std::string describe_shape(const Signature& call) {
  return std::string(name(call.dtype)) + " " + to_string(call.shape);
}

// All that a call says, for ranks that do not even agree on the operation.
std::string describe_call(const Signature& call) {
  if (call.operation == Operation::split) return "split";
  return std::string(name(call.operation)) + " of " + describe_shape(call);
}

// What is wrong with one rank's counts, if anything: negative entries, or a sum that is not `rows`.
// Works without overflow: once the sum passes `rows` it can only grow.
std::optional<std::string> wrong_sum(std::span<const std::int64_t> counts, std::int64_t rows) {
  std::int64_t sum = 0;
  bool overflow = false;
  for (std::size_t rank = 0; rank < counts.size(); ++rank) {
    if (counts[rank] < 0) {
      return "a negative count, " + std::to_string(counts[rank]) + " rows for rank " +
             std::to_string(rank);
    }
    overflow = overflow || __builtin_add_overflow(sum, counts[rank], &sum);
  }
  if (!overflow && sum == rows) return std::nullopt;
  return "counts that add up to " + (overflow ? "more than 2^63-1" : std::to_string(sum)) +
         " for a tensor of " + std::to_string(rows) + " rows";
}

bool has_zero_trailing_axis(const Signature& call) {
  return std::ranges::find(call.shape.trailing(), 0) != call.shape.trailing().end();
}

// Can a tensor of this dtype and shape exist?
bool representable(DType dtype, const Shape& shape) {
  const std::optional<std::int64_t> elements = shape.elements();
  return elements && checked_multiply(*elements, size_of(dtype));
}

std::optional<std::int64_t> rows_received(Signatures all, std::size_t rank) {
  std::optional<std::int64_t> rows = 0;
  for (const Signature& call : all) {
    rows = checked_add(*rows, call.send_counts[rank]);
    if (!rows) break;
  }
  return rows;
}

std::optional<std::string> overflow(Signatures all) {
  const Signature& first = all[0];
  const auto ranks = static_cast<std::int64_t>(all.size());
  if (is_all_gather(first.operation)) {
    const std::optional<std::int64_t> rows = checked_multiply(ranks, first.shape[0]);
    if (rows && representable(first.dtype, first.shape.with_rows(*rows))) return std::nullopt;
    return std::to_string(ranks) + " shards of " + describe_shape(first) +
           " make a tensor beyond 2^63-1 rows, elements or bytes";
  }
  if (is_all_to_all_v(first.operation)) {
    // A tensor of all ranks' rows can nearly always exist, and then each of the results can. That
    // spares adding up N lists of N counts.
    std::optional<std::int64_t> rows = 0;
    for (const Signature& call : all) rows = rows ? checked_add(*rows, call.shape[0]) : rows;
    if (rows && representable(first.dtype, first.shape.with_rows(*rows))) return std::nullopt;
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      rows = rows_received(all, rank);
      if (rows && representable(first.dtype, first.shape.with_rows(*rows))) continue;
      return "rank " + std::to_string(rank) + " would receive a tensor beyond 2^63-1 rows, " +
             "elements or bytes";
    }
  }
  return std::nullopt;  // every other result is no larger than an input, which exists
}

}  // namespace

std::string rank_list(std::span<const int> ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (i > 0) text += ", ";
    text += std::to_string(ranks[i]);
    if (last > i) text += "-" + std::to_string(ranks[last]);
    i = last + 1;
  }
  return text;
}

std::optional<Breach> find_breach(Signatures all) {
  const Signature& first = all[0];
  const auto ranks = static_cast<std::int64_t>(all.size());
  const auto breach = [&](Violation violation, std::string explanation) {
    return Breach{violation, first.operation, std::move(explanation)};
  };
  const auto differ = [&](auto&& value) {
    return std::ranges::any_of(all,
                               [&](const Signature& call) { return value(call) != value(first); });
  };

  // In the order of the enumeration: the first rule that fails is the one reported. Rules on what a
  // single rank passes come after those on what all must share, so by then the ranks are alike.
  if (differ([](const Signature& call) { return call.operation; })) {
    return breach(Violation::operation, "every rank must call the same operation; " +
                                            who_passed_what(all, describe_call));
  }
  if (first.operation == Operation::split) return std::nullopt;
  if (differ([](const Signature& call) { return call.dtype; })) {
    return breach(Violation::dtype,
                  "every rank must pass the same dtype; " + who_passed_what(all, describe_shape));
  }
  if (differ([](const Signature& call) { return call.shape.size(); })) {
    return breach(Violation::axes, "every rank must pass the same number of axes; " +
                                       who_passed_what(all, describe_shape));
  }
  const bool exchange = is_all_to_all_v(first.operation);
  const bool shapes_differ = std::ranges::any_of(all, [&](const Signature& call) {
    if (!exchange || call.shape.empty()) return call.shape != first.shape;
    return !std::ranges::equal(call.shape.trailing(), first.shape.trailing());
  });
  if (shapes_differ) {
    return breach(Violation::shape, std::string("every rank must pass the same ") +
                                        (exchange ? "trailing axes; " : "shape; ") +
                                        who_passed_what(all, describe_shape));
  }
  if (needs_leading_axis(first.operation) && first.shape.empty()) {
    return breach(Violation::leading_axis,
                  "a tensor without axes has no rows to " +
                      std::string(is_all_gather(first.operation) ? "gather" : "divide") + "; " +
                      who_passed_what(all, describe_shape));
  }
  if (first.operation == Operation::reduce_scatter_sum && first.shape[0] % ranks != 0) {
    return breach(Violation::indivisible_rows,
                  std::to_string(first.shape[0]) + " rows do not divide among " +
                      std::to_string(ranks) + " ranks; " + who_passed_what(all, describe_shape));
  }
  if (first.operation == Operation::broadcast_float) {
    const auto root = [](const Signature& call) { return "root " + std::to_string(call.root); };
    const auto outside = [&](const Signature& call) { return call.root < 0 || call.root >= ranks; };
    if (std::ranges::any_of(all, outside)) {
      return breach(Violation::root_out_of_range, "the root must be one of ranks 0 to " +
                                                      std::to_string(ranks - 1) + "; " +
                                                      who_passed_what(all, root, outside));
    }
    if (differ([](const Signature& call) { return call.root; })) {
      return breach(Violation::roots_differ,
                    "every rank must name the same root; " + who_passed_what(all, root));
    }
  }
  if (exchange) {
    const auto wrong_length = [&](const Signature& call) {
      return static_cast<std::int64_t>(call.send_counts.size()) != ranks;
    };
    const auto length = [](const Signature& call) {
      return std::to_string(call.send_counts.size()) + " counts";
    };
    if (std::ranges::any_of(all, wrong_length)) {
      return breach(Violation::counts_length, "send_counts must have one entry for each of the " +
                                                  std::to_string(ranks) + " ranks; " +
                                                  who_passed_what(all, length, wrong_length));
    }
    const auto sum = [](const Signature& call) {
      return wrong_sum(call.send_counts, call.shape[0]).value_or("");
    };
    const auto sum_is_wrong = [&](const Signature& call) { return !sum(call).empty(); };
    if (std::ranges::any_of(all, sum_is_wrong)) {
      return breach(Violation::counts_sum,
                    "send_counts must be zero or more and add up to the rows; " +
                        who_passed_what(all, sum, sum_is_wrong));
    }
    if (has_zero_trailing_axis(first)) {
      return breach(Violation::zero_trailing_axis,
                    "the trailing axes of an exchange must not be zero; " +
                        who_passed_what(all, describe_shape));
    }
  }
  if (std::optional<std::string> explanation = overflow(all)) {
    return breach(Violation::size_overflow, std::move(*explanation));
  }
  return std::nullopt;
}

Shape result_shape(Signatures all, int rank) {
  const Signature& call = all[static_cast<std::size_t>(rank)];
  const auto ranks = static_cast<std::int64_t>(all.size());
  if (is_all_gather(call.operation)) return call.shape.with_rows(ranks * call.shape[0]);
  if (call.operation == Operation::reduce_scatter_sum) {
    return call.shape.with_rows(call.shape[0] / ranks);
  }
  if (is_all_to_all_v(call.operation)) {
    return call.shape.with_rows(*rows_received(all, static_cast<std::size_t>(rank)));
  }
  return call.shape;
}

}  // namespace lockstep
