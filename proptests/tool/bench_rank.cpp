#include "bench_rank.hpp"

#include <algorithm>

namespace lockstep::bench {

std::vector<double> measure_rank(const Cell& cell, const Method& method, int rank,
                                 kit::Subject& world) {
  Tensor x = Tensor::uninitialized(cell.dtype, {cell.bytes_per_rank / size_of(cell.dtype)});
  fill(cell.dtype, x.mutable_bytes(), method.data, rank, cell.ranks);

  const auto slowest = [&](double seconds) {
    const FloatTensor all = world.all_gather_float(FloatTensor::of<double>({1}, {seconds}));
    return std::ranges::max(all.values<double>());
  };
  const auto timed = [&](const auto& call) {
    return measure(
        method, [&] { read_result(call().bytes()); }, slowest);
  };

  if (takes_integers(cell.operation)) {
    const IntTensor ints(std::move(x));
    if (is_all_gather(cell.operation)) return timed([&] { return world.all_gather_int(ints); });
    const std::vector<std::int64_t> counts(static_cast<std::size_t>(cell.ranks),
                                           ints.rows() / cell.ranks);
    return timed([&] { return world.all_to_all_v_int(ints, counts).value; });
  }
  const FloatTensor floats(std::move(x));
  switch (cell.operation) {
    case Operation::all_gather_float:
      return timed([&] { return world.all_gather_float(floats); });
    case Operation::reduce_scatter_sum:
      return timed([&] { return world.reduce_scatter_sum(floats); });
    case Operation::all_reduce_sum:
      return timed([&] { return world.all_reduce_sum(floats); });
    case Operation::broadcast_float:
      return timed([&] { return world.broadcast_float(floats, 0); });
    default: {
      const std::vector<std::int64_t> counts(static_cast<std::size_t>(cell.ranks),
                                             floats.rows() / cell.ranks);
      return timed([&] { return world.all_to_all_v_float(floats, counts).value; });
    }
  }
}

}  // namespace lockstep::bench
