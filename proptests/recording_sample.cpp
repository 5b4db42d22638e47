#include "recording_sample.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace lockstep::kit {
namespace {

using Picks = std::vector<std::int64_t>;

// Of 0 to length-1 so many, evenly spaced, the first and the last among them.
Picks evenly(std::int64_t length, std::int64_t count) {
  Picks picks;
  count = std::min(length, std::max<std::int64_t>(count, 1));
  for (std::int64_t i = 0; i < count; ++i) {
    picks.push_back(count == 1 ? 0 : i * (length - 1) / (count - 1));
  }
  return picks;
}

// The same picks of each unit, one unit after the other.
Picks repeated(const Picks& picks, std::int64_t units, std::int64_t unit_length) {
  Picks all;
  for (std::int64_t unit = 0; unit < units; ++unit) {
    for (const std::int64_t pick : picks) all.push_back(unit * unit_length + pick);
  }
  return all;
}

// Some rows and columns of a tensor that is seen as `columns` elements in each row.
Tensor part(const Tensor& x, std::int64_t columns, const Picks& rows, const Picks& kept_columns,
            const Shape& shape) {
  Tensor sample = Tensor::uninitialized(x.dtype(), shape);
  const auto size = static_cast<std::size_t>(size_of(x.dtype()));
  std::byte* to = sample.mutable_bytes().data();
  for (const std::int64_t row : rows) {
    for (const std::int64_t column : kept_columns) {
      std::memcpy(to, x.data() + static_cast<std::size_t>(row * columns + column) * size, size);
      to += size;
    }
  }
  return sample;
}

class Sampler {
 public:
  Sampler(SampledCall& call, int ranks, std::int64_t most)
      : sampled_(call), call_(call.call), ranks_(ranks), most_(most) {}

  void run() {
    const Shape shape = call_.input.shape();  // a copy: the input is about to change
    if (is_all_to_all_v(call_.operation)) return exchange();
    if (call_.input.elements() <= most_) return;
    if (!needs_leading_axis(call_.operation)) {
      const Picks picks = evenly(call_.input.elements(), most_);
      return keep(picks, {0}, 1, picks, shape, Shape{static_cast<std::int64_t>(picks.size())});
    }
    if (shape.empty()) return;
    const std::int64_t columns = call_.input.elements() / shape[0];
    const Picks kept_columns = evenly(columns, most_columns);
    const auto kept = static_cast<std::int64_t>(kept_columns.size());
    const bool scatter = call_.operation == Operation::reduce_scatter_sum;
    if (scatter && shape[0] % ranks_ != 0) return mark();
    const std::int64_t unit = scatter ? shape[0] / ranks_ : shape[0];
    const Picks rows = evenly(unit, most_ / kept / (scatter ? ranks_ : 1));
    const Picks all_rows = repeated(rows, ranks_, unit);
    const Shape expected = shape.with_rows(scatter ? unit : shape[0] * ranks_);
    keep(scatter ? all_rows : rows, kept_columns, columns, scatter ? rows : all_rows, expected,
         std::nullopt);
  }

 private:
  static constexpr std::int64_t most_columns = 64;

  void mark() { sampled_.sampled = true; }

  // `shape` is that of all that is kept; rows and columns if nothing.
  void keep(const Picks& input_rows, const Picks& kept_columns, std::int64_t columns,
            const Picks& value_rows, const Shape& expected, std::optional<Shape> shape) {
    mark();
    const auto cut = [&](const Tensor& x, const Picks& rows) {
      const Shape by_rows{static_cast<std::int64_t>(rows.size()),
                          static_cast<std::int64_t>(kept_columns.size())};
      return part(x, columns, rows, kept_columns, shape.value_or(by_rows));
    };
    call_.input = cut(call_.input, input_rows);
    Outcome& outcome = call_.outcome;
    if (outcome.kind != Outcome::Kind::value) return;
    outcome.value = outcome.value.shape() == expected ? cut(outcome.value, value_rows) : Tensor();
  }

  // Blocks are cut by their own lengths, which sender and receiver both know.
  void exchange() {
    const Shape shape = call_.input.shape();  // a copy: the input is about to change
    std::int64_t columns = 1;
    for (std::size_t axis = 1; axis < shape.size(); ++axis) columns *= shape[axis];
    if (shape.empty() || columns == 0) return;
    const Picks kept_columns = evenly(columns, most_columns);
    const std::int64_t block =
        std::max<std::int64_t>(1, most_ / ranks_ / static_cast<std::int64_t>(kept_columns.size()));
    const auto fits = [&](const Picks& counts, const Tensor& x) {
      return !x.shape().empty() && std::ranges::none_of(counts, [](auto n) { return n < 0; }) &&
             std::accumulate(counts.begin(), counts.end(), std::int64_t{0}) == x.rows();
    };
    const auto longest = [](const Picks& counts) {
      return counts.empty() ? 0 : std::ranges::max(counts);
    };
    Outcome& outcome = call_.outcome;
    const bool returned = outcome.kind == Outcome::Kind::value;
    if (columns <= most_columns && longest(call_.send_counts) <= block &&
        (!returned || longest(outcome.receive_counts) <= block)) {
      return;
    }
    mark();
    const bool same_columns =
        returned &&
        shape.with_rows(0) ==
            (outcome.value.shape().empty() ? Shape{} : outcome.value.shape().with_rows(0));
    const auto cut = [&](Tensor& x, Picks& counts) {
      Picks rows;
      std::int64_t first = 0;
      for (std::int64_t& count : counts) {
        for (const std::int64_t pick : evenly(count, block)) rows.push_back(first + pick);
        first += count;
        count = std::min(count, block);
      }
      Shape kept = x.shape().with_rows(static_cast<std::int64_t>(rows.size()));
      if (columns > most_columns) {
        kept = Shape{static_cast<std::int64_t>(rows.size()), most_columns};
      }
      x = part(x, columns, rows, kept_columns, kept);
    };
    if (fits(call_.send_counts, call_.input)) cut(call_.input, call_.send_counts);
    if (!returned) return;
    if (same_columns && fits(outcome.receive_counts, outcome.value)) {
      cut(outcome.value, outcome.receive_counts);
    } else {
      outcome.value = Tensor();
    }
  }

  SampledCall& sampled_;
  RecordedCall& call_;
  const std::int64_t ranks_;
  const std::int64_t most_;
};

}  // namespace

SampledCall sample(RecordedCall call, int ranks, std::int64_t most_elements) {
  SampledCall sampled{std::move(call), {}, {}, {}, {}, {}};
  const RecordedCall& before = sampled.call;
  sampled.input_shape = before.input.shape();
  sampled.send_counts = before.send_counts;
  sampled.value_dtype = before.outcome.value.dtype();
  sampled.value_shape = before.outcome.value.shape();
  sampled.receive_counts = before.outcome.receive_counts;
  Sampler(sampled, ranks, most_elements).run();
  return sampled;
}

}  // namespace lockstep::kit
