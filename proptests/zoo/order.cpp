// Everything arrives, but in another order.
#include <algorithm>
#include <numeric>

#include "spoiling.hpp"

namespace lockstep::zoo {
namespace {

using Order = std::vector<std::size_t> (*)(const Rank&);

std::vector<std::size_t> rank_order(const Rank& rank) {
  std::vector<std::size_t> order(static_cast<std::size_t>(rank.size()));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

std::vector<std::size_t> reversed(const Rank& rank) {
  std::vector<std::size_t> order = rank_order(rank);
  std::ranges::reverse(order);
  return order;
}

std::vector<std::size_t> own_first(const Rank& rank) {
  std::vector<std::size_t> order = rank_order(rank);
  std::ranges::rotate(order, order.begin() + rank.rank());
  return order;
}

// Whoever comes first differs from call to call; here it is a matter of the call's number, so that
// a case that fails fails again.
std::vector<std::size_t> arrival(const Rank& rank) {
  std::vector<std::size_t> order = rank_order(rank);
  const auto first = (rank.here().calls + 1) % order.size();
  std::ranges::rotate(order, order.begin() + static_cast<std::ptrdiff_t>(first));
  return order;
}

// As devices are found on two buses: even ones, then odd ones.
std::vector<std::size_t> device_order(const Rank& rank) {
  std::vector<std::size_t> order = rank_order(rank);
  std::ranges::stable_partition(order, [](std::size_t i) { return i % 2 == 0; });
  return order;
}

Tensor in_order(const std::vector<Tensor>& parts, const std::vector<std::size_t>& order) {
  std::vector<Tensor> ordered;
  for (std::size_t i : order) ordered.push_back(parts[i]);
  return joined(ordered);
}

Fault gathers_in(Order order) {
  return spoiling(is_all_gather, [=](Rank& rank, const Call&, Answer& answer) {
    answer.value = in_order(divided(answer.value, rank.size()), order(rank));
  });
}

// The blocks of an exchange in another order, the counts in rank order as ever.
Fault exchanges_in(Order order) {
  return spoiling(is_all_to_all_v, [=](Rank& rank, const Call&, Answer& answer) {
    answer.value = in_order(divided(answer.value, answer.receive_counts), order(rank));
  });
}

// Row 0 of every rank, then row 1 of every rank.
void interleave(Rank& rank, const Call& call, Answer& answer) {
  std::vector<Tensor> rows;
  for (std::int64_t row = 0; row < call.x.rows(); ++row) {
    for (const Tensor& shard : divided(answer.value, rank.size())) {
      rows.push_back(shard.slice_rows(row, row + 1));
    }
  }
  if (!rows.empty()) answer.value = joined(rows);
}

// Which rank's share of a reduce-scatter this one gets.
Fault scatters(int (*whose)(const Rank&)) {
  return spoiling(
      only<Operation::reduce_scatter_sum>, [=](Rank& rank, const Call& call, Answer& answer) {
        std::vector<Call> calls(rank.everybody().begin(), rank.everybody().end());
        for (Call& other : calls) other.operation = Operation::all_reduce_sum;
        const Tensor sum = rank.had_they_passed(calls).value;
        const std::int64_t rows = call.x.rows() / rank.size();
        answer.value = copied(sum.slice_rows(whose(rank) * rows, (whose(rank) + 1) * rows));
      });
}

// As a list of rows where rows and ranks have changed places in what everybody sends.
void send_reversed(Rank& rank, Call& call) {
  const bool sound = !call.x.shape().empty() &&
                     call.send_counts.size() == static_cast<std::size_t>(rank.size()) &&
                     std::ranges::all_of(call.send_counts, [](auto count) { return count >= 0; }) &&
                     std::accumulate(call.send_counts.begin(), call.send_counts.end(), 0.0) ==
                         static_cast<double>(call.x.rows());
  if (!sound) return;
  std::vector<Tensor> blocks = divided(call.x, call.send_counts);
  std::ranges::reverse(blocks);
  std::ranges::reverse(call.send_counts);
  call.x = joined(blocks);
}

}  // namespace

std::vector<Mutant> order_mutants() {
  constexpr std::string_view kind = "order";
  return {
      {"gather_reversed", kind, "Gathered shards come last rank first.", gathers_in(reversed)},
      {"gather_rotated", kind, "Gathered shards begin with the rank's own.", gathers_in(own_first)},
      {"gather_arrival_order", kind, "Gathered shards come in the order in which ranks arrived.",
       gathers_in(arrival)},
      {"gather_device_order", kind, "Gathered shards come in the order of the devices.",
       gathers_in(device_order)},
      {"gather_interleaved", kind, "Gathered shards are interleaved row by row.",
       spoiling(is_all_gather, interleave)},
      {"exchange_reversed", kind, "Received blocks come last source first.",
       exchanges_in(reversed)},
      {"exchange_own_first", kind, "Received blocks begin with the rank's own.",
       exchanges_in(own_first)},
      {"exchange_sends_reversed", kind, "The first block goes to the last rank.",
       passing(is_all_to_all_v, send_reversed)},
      {"scatter_reversed", kind, "Shares of a reduce-scatter go to the ranks in reverse.",
       scatters([](const Rank& r) { return r.size() - 1 - r.rank(); })},
      {"scatter_rotated", kind,
       "Each rank gets its neighbour's share: a ring stopped a step early.",
       scatters([](const Rank& r) { return (r.rank() + 1) % r.size(); })},
  };
}

}  // namespace lockstep::zoo
