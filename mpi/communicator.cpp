#include <lockstep/mpi/communicator.hpp>

#include <algorithm>
#include <numeric>
#include <ostream>

#include <lockstep/error.hpp>

#include "check.hpp"
#include "movement.hpp"
#include "seat.hpp"

namespace lockstep::mpi {
namespace {

// A private copy of `parent`. Entered by every rank; waits for them no longer than `limit`.
MPI_Comm duplicate(MPI_Comm parent, Patience::Limit limit) {
  // MPI writes the new handle when the others have come, which may be after this rank gave up.
  auto comm = std::make_unique<MPI_Comm>(MPI_COMM_NULL);
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Comm_idup(parent, comm.get(), &request), "MPI_Comm_idup");
  Patience patience(limit);
  while (true) {
    int done = 0;
    check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Comm_idup");
    if (done != 0) return *comm;
    if (!patience.pause()) {
      static_cast<void>(comm.release());
      throw TransportError("timed out while the communicator was made: not every rank came", {});
    }
  }
}

std::shared_ptr<Seat> root_seat(const Environment& environment, MPI_Comm parent, std::string name,
                                const Options& options) {
  if (!environment.runtime()->is_open()) throw InvalidArgument("the mpi::Environment has ended");
  auto link =
      std::make_shared<Link>(duplicate(parent, options.timeout), std::move(name), options.timeout);
  std::vector<int> ranks(static_cast<std::size_t>(link->size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return std::make_shared<Seat>(environment.runtime(), options, std::move(link), std::move(ranks));
}

// `send_counts` is only looked at, for as long as the call lasts.
Signature signature(Operation operation, const Tensor& x, std::int64_t root = 0,
                    std::span<const std::int64_t> send_counts = {}) {
  return {operation, x.dtype(), x.shape(), root, send_counts};
}

template <class T>
VariableTensorExchange<T> exchange(Seat& seat, Operation operation, const T& x,
                                   std::span<const std::int64_t> send_counts) {
  return seat.call(
      signature(operation, x, 0, send_counts), [&](Link& link, std::span<const Message> messages) {
        std::vector<std::int64_t> receive_counts(messages.size());
        std::ranges::transform(messages, receive_counts.begin(), &Message::rows_for_receiver);
        T value(all_to_all_v(link, x, send_counts, receive_counts));
        return VariableTensorExchange<T>{std::move(value), std::move(receive_counts)};
      });
}

}  // namespace

Communicator::Communicator(const Environment& environment, Options options)
    : seat_(root_seat(environment, MPI_COMM_WORLD, "world", options)) {}

Communicator::Communicator(const Environment& environment, MPI_Comm parent, Options options)
    : seat_(root_seat(environment, parent, "comm", options)) {}

int Communicator::world_size() const {
  return static_cast<int>(seat_->members.size());
}
int Communicator::rank() const {
  return seat_->rank;
}
const std::string& Communicator::name() const {
  return seat_->name;
}
SumRule Communicator::sum_rule() const {
  return seat_->options.sum_rule;
}

FloatTensor Communicator::all_gather_float(const FloatTensor& x) const {
  return seat_->call(signature(Operation::all_gather_float, x),
                     [&](Link& link, auto) { return FloatTensor(all_gather(link, x)); });
}

IntTensor Communicator::all_gather_int(const IntTensor& x) const {
  return seat_->call(signature(Operation::all_gather_int, x),
                     [&](Link& link, auto) { return IntTensor(all_gather(link, x)); });
}

FloatTensor Communicator::reduce_scatter_sum(const FloatTensor& x) const {
  return seat_->call(signature(Operation::reduce_scatter_sum, x), [&](Link& link, auto) {
    return FloatTensor(reduce_scatter(link, x, sum_rule()));
  });
}

FloatTensor Communicator::all_reduce_sum(const FloatTensor& x) const {
  return seat_->call(signature(Operation::all_reduce_sum, x), [&](Link& link, auto) {
    return FloatTensor(all_reduce(link, x, sum_rule()));
  });
}

FloatTensor Communicator::broadcast_float(const FloatTensor& x, std::int64_t root) const {
  return seat_->call(signature(Operation::broadcast_float, x, root), [&](Link& link, auto) {
    return FloatTensor(broadcast(link, x, static_cast<int>(root)));
  });
}

VariableTensorExchange<FloatTensor> Communicator::all_to_all_v_float(
    const FloatTensor& x, std::span<const std::int64_t> send_counts) const {
  return exchange(*seat_, Operation::all_to_all_v_float, x, send_counts);
}

VariableTensorExchange<IntTensor> Communicator::all_to_all_v_int(
    const IntTensor& x, std::span<const std::int64_t> send_counts) const {
  return exchange(*seat_, Operation::all_to_all_v_int, x, send_counts);
}

Communicator Communicator::split(std::int64_t color, std::int64_t key) const {
  // Colors and keys travel where other operations have roots and axes.
  Signature mine;
  mine.operation = Operation::split;
  mine.root = color;
  mine.shape = Shape{key};
  return seat_->call(mine, [&](Link& link, std::span<const Message> messages) {
    std::vector<int> ranks;
    for (int rank = 0; rank < link.size(); ++rank) {
      if (messages[static_cast<std::size_t>(rank)].digest.root == color) ranks.push_back(rank);
    }
    std::ranges::stable_sort(ranks, {}, [&](int rank) {
      return messages[static_cast<std::size_t>(rank)].digest.axes[0];
    });
    std::vector<int> outer_ranks;
    for (int rank : ranks) {
      outer_ranks.push_back(seat_->outer_ranks[static_cast<std::size_t>(rank)]);
    }
    const std::string part_name =
        name() + ".split@" + std::to_string(link.call_number()) + braced(outer_ranks);
    auto part = std::make_shared<Link>(link.form(ranks, part_name, true), part_name,
                                       seat_->options.timeout);
    return Communicator(
        std::make_shared<Seat>(seat_->runtime, seat_->options, std::move(part), outer_ranks));
  });
}

Communicator Communicator::group(std::span<const int> ranks) const {
  // The handle holds the root seat, as this one does, and shows the group's.
  return Communicator(std::shared_ptr<Seat>(seat_, &seat_->group(ranks)));
}

std::ostream& operator<<(std::ostream& out, const Communicator& communicator) {
  return out << communicator.name() << ", rank " << communicator.rank() << " of "
             << communicator.world_size();
}

}  // namespace lockstep::mpi
