#include <algorithm>
#include <numeric>

#include <lockstep/fold.hpp>
#include <lockstep/oracle.hpp>

#include "parallel.hpp"

namespace lockstep::reference {
namespace {

using Calls = std::span<const Call>;
using Results = std::span<Result>;

// An empty list that keeps its memory from call to call: in small calls, allocations would be seen.
// In large ones they are not, and what a thousand threads keep would be. There is one list of a
// type for each thread: it is used up before the next is asked for.
template <class T>
std::vector<T>& scratch() {
  constexpr std::size_t most_kept = 1024;
  static thread_local std::vector<T> list;
  if (list.capacity() > most_kept) list = std::vector<T>();
  list.clear();
  return list;
}

// Every rank holds the same storage.
void give_to_all(Tensor value, Results results) {
  for (Result& result : results.first(results.size() - 1)) result.value = value;
  results.back().value = std::move(value);
}

// Each function below may assume that the calls fit together.

void all_gather(Calls calls, Results results) {
  const Tensor& first = *calls[0].tensor;
  const auto ranks = static_cast<std::int64_t>(calls.size());
  Tensor gathered =
      Tensor::uninitialized(first.dtype(), first.shape().with_rows(ranks * first.rows()));
  const std::int64_t shard = first.size_bytes();
  std::byte* to = gathered.mutable_bytes().data();
  auto& copies = scratch<Copy>();
  for (const Call& call : calls) {
    copies.push_back({to, call.tensor->data(), shard});
    if (shard > 0) to += shard;
  }
  run_copies(copies);
  give_to_all(std::move(gathered), results);
}

// The elementwise sum of all inputs, in one tensor of their shape.
Tensor sum(Calls calls, SumRule rule) {
  const DType dtype = calls[0].tensor->dtype();
  const std::int64_t element = size_of(dtype);
  const auto ranks = static_cast<std::int64_t>(calls.size());
  Tensor total = Tensor::uninitialized(dtype, calls[0].tensor->shape());
  std::byte* out = total.mutable_bytes().data();
  // A part of the output together with the same part of every addend should stay within a core's
  // own cache.
  constexpr std::int64_t part_bytes = 512 * 1024;
  for_parts(total.elements(), element * ranks, part_bytes,
            [&](std::int64_t begin, std::int64_t end) {
              auto& addends = scratch<const std::byte*>();
              for (const Call& call : calls) {
                addends.push_back(call.tensor->data() + begin * element);
              }
              fold(rule, dtype, addends, end - begin, out + begin * element);
            });
  return total;
}

void all_reduce_sum(Calls calls, SumRule rule, Results results) {
  give_to_all(sum(calls, rule), results);
}

void reduce_scatter_sum(Calls calls, SumRule rule, Results results) {
  const Tensor total = sum(calls, rule);
  const std::int64_t rows = total.rows() / static_cast<std::int64_t>(results.size());
  std::int64_t begin = 0;
  for (Result& result : results) {
    result.value = total.slice_rows(begin, begin + rows);
    begin += rows;
  }
}

void broadcast(Calls calls, Results results) {
  const Tensor& value = *calls[static_cast<std::size_t>(calls[0].root)].tensor;
  for (Result& result : results) result.value = value;
}

// Fills in how many rows each rank gets from which, and returns how many it gets in all. The counts
// of N ranks are N*N numbers, which at a thousand ranks is more than their elements may be: they
// are walked along the sources' lists, some at a time so that what is written shares cache lines.
std::vector<std::int64_t>& exchange_counts(Calls calls, Results results) {
  const std::size_t ranks = calls.size();
  auto& rows = scratch<std::int64_t>();
  rows.assign(ranks, 0);
  for (Result& result : results) result.receive_counts.resize(ranks);
  constexpr std::size_t together = 8;
  for (std::size_t first = 0; first < ranks; first += together) {
    const std::size_t last = std::min(first + together, ranks);
    for (std::size_t to = 0; to < ranks; ++to) {
      for (std::size_t from = first; from < last; ++from) {
        const std::int64_t count = calls[from].send_counts[to];
        results[to].receive_counts[from] = count;
        rows[to] += count;
      }
    }
  }
  return rows;
}

// Makes every rank's result, and returns where the elements of each begin.
std::vector<std::byte*>& make_blocks(Calls calls, const std::vector<std::int64_t>& rows,
                                     Results results) {
  // Small results are slices of one tensor, for one allocation instead of N. Large ones are apart,
  // so that a rank that keeps its own does not keep everybody's.
  constexpr std::int64_t most_shared = 32 * 1024;
  std::int64_t bytes = 0, row_bytes = 0;
  for (const Call& call : calls) {
    bytes += std::min(call.tensor->size_bytes(), most_shared + 1);
    row_bytes = std::max(row_bytes, call.tensor->row_bytes());
  }
  auto& begins = scratch<std::byte*>();
  const auto block = [&](std::int64_t count) {
    const Tensor& first = *calls[0].tensor;
    return Tensor::uninitialized(first.dtype(), first.shape().with_rows(count));
  };
  if (bytes <= most_shared) {
    Tensor all = block(std::accumulate(rows.begin(), rows.end(), std::int64_t{0}));
    std::byte* next = all.mutable_bytes().data();
    std::int64_t begin = 0;
    for (std::size_t to = 0; to < rows.size(); ++to) {
      results[to].value = all.slice_rows(begin, begin + rows[to]);
      begin += rows[to];
      begins.push_back(next);
      if (rows[to] > 0) next += rows[to] * row_bytes;
    }
  } else {
    for (std::size_t to = 0; to < rows.size(); ++to) {
      results[to].value = block(rows[to]);
      begins.push_back(results[to].value.mutable_bytes().data());
    }
  }
  return begins;
}

void all_to_all_v(Calls calls, Results results) {
  const std::size_t ranks = calls.size();
  const std::vector<std::int64_t>& rows = exchange_counts(calls, results);
  auto& next = make_blocks(calls, rows, results);

  // Walk each source front to back: its block for rank 0, for rank 1, ... Sources come in rank
  // order, so each destination fills front to back as well.
  auto& copies = scratch<Copy>();
  for (std::size_t from = 0; from < ranks; ++from) {
    const std::byte* source = calls[from].tensor->data();
    const std::int64_t row_bytes = calls[from].tensor->row_bytes();
    for (std::size_t to = 0; to < ranks; ++to) {
      const std::int64_t bytes = calls[from].send_counts[to] * row_bytes;
      if (bytes == 0) continue;
      copies.push_back({next[to], source, bytes});
      next[to] += bytes;
      source += bytes;
    }
  }
  run_copies(copies);
}

}  // namespace

std::optional<Breach> evaluate(Calls calls, SumRule rule, Results results) {
  auto& signatures = scratch<Signature>();
  for (const Call& call : calls) {
    // In place: a signature is large enough for a copy of it to be seen in a small call.
    Signature& signature = signatures.emplace_back();
    signature.operation = call.operation;
    signature.dtype = call.tensor->dtype();
    signature.shape = call.tensor->shape();
    signature.root = call.root;
    signature.send_counts = call.send_counts;
  }
  if (std::optional<Breach> breach = find_breach(signatures)) return breach;

  // A world of one moves its tensor, bit for bit, under every rule.
  if (calls.size() == 1) {
    results[0].value = *calls[0].tensor;
    const std::span<const std::int64_t> counts = calls[0].send_counts;
    results[0].receive_counts.assign(counts.begin(), counts.end());
    return std::nullopt;
  }

  switch (calls[0].operation) {
    case Operation::all_gather_float:
    case Operation::all_gather_int:
      all_gather(calls, results);
      break;
    case Operation::reduce_scatter_sum:
      reduce_scatter_sum(calls, rule, results);
      break;
    case Operation::all_reduce_sum:
      all_reduce_sum(calls, rule, results);
      break;
    case Operation::broadcast_float:
      broadcast(calls, results);
      break;
    case Operation::all_to_all_v_float:
    case Operation::all_to_all_v_int:
      all_to_all_v(calls, results);
      break;
    case Operation::split:
      break;  // moves no tensor
  }
  return std::nullopt;
}

namespace {

// The typed functions: calls out of the arguments, typed results out of the general form.
template <class CallOf>
std::variant<std::vector<Result>, Breach> evaluate_typed(std::size_t ranks, SumRule rule,
                                                         const CallOf& call) {
  std::vector<Call> calls;
  for (std::size_t rank = 0; rank < ranks; ++rank) calls.push_back(call(rank));
  std::vector<Result> results(ranks);
  if (std::optional<Breach> breach = evaluate(calls, rule, results)) return *breach;
  return results;
}

template <class T>
Outcome<T> values(std::variant<std::vector<Result>, Breach> either) {
  if (auto* breach = std::get_if<Breach>(&either)) return std::move(*breach);
  std::vector<T> values;
  for (Result& result : std::get<0>(either)) values.emplace_back(std::move(result.value));
  return values;
}

template <class T>
Outcome<T> without_arguments(Operation operation, std::span<const T> inputs, SumRule rule) {
  return values<T>(evaluate_typed(inputs.size(), rule, [&](std::size_t rank) {
    return Call{operation, &inputs[rank]};
  }));
}

template <class T>
Outcome<VariableTensorExchange<T>> exchange(
    Operation operation, std::span<const T> inputs,
    std::span<const std::vector<std::int64_t>> send_counts) {
  auto either = evaluate_typed(inputs.size(), SumRule::exact, [&](std::size_t rank) {
    return Call{operation, &inputs[rank], 0, send_counts[rank]};
  });
  if (auto* breach = std::get_if<Breach>(&either)) return std::move(*breach);
  std::vector<VariableTensorExchange<T>> exchanges;
  for (Result& result : std::get<0>(either)) {
    exchanges.push_back({T(std::move(result.value)), std::move(result.receive_counts)});
  }
  return exchanges;
}

}  // namespace

Outcome<FloatTensor> all_gather(std::span<const FloatTensor> inputs) {
  return without_arguments(Operation::all_gather_float, inputs, SumRule::exact);
}

Outcome<IntTensor> all_gather(std::span<const IntTensor> inputs) {
  return without_arguments(Operation::all_gather_int, inputs, SumRule::exact);
}

Outcome<FloatTensor> reduce_scatter_sum(std::span<const FloatTensor> inputs, SumRule rule) {
  return without_arguments(Operation::reduce_scatter_sum, inputs, rule);
}

Outcome<FloatTensor> all_reduce_sum(std::span<const FloatTensor> inputs, SumRule rule) {
  return without_arguments(Operation::all_reduce_sum, inputs, rule);
}

Outcome<FloatTensor> broadcast(std::span<const FloatTensor> inputs,
                               std::span<const std::int64_t> roots) {
  return values<FloatTensor>(evaluate_typed(inputs.size(), SumRule::exact, [&](std::size_t rank) {
    return Call{Operation::broadcast_float, &inputs[rank], roots[rank]};
  }));
}

Outcome<VariableTensorExchange<FloatTensor>> all_to_all_v(
    std::span<const FloatTensor> inputs, std::span<const std::vector<std::int64_t>> send_counts) {
  return exchange(Operation::all_to_all_v_float, inputs, send_counts);
}

Outcome<VariableTensorExchange<IntTensor>> all_to_all_v(
    std::span<const IntTensor> inputs, std::span<const std::vector<std::int64_t>> send_counts) {
  return exchange(Operation::all_to_all_v_int, inputs, send_counts);
}

}  // namespace lockstep::reference
