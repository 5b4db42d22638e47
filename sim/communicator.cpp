#include <lockstep/sim/communicator.hpp>

#include <ostream>

#include <lockstep/turn.hpp>

#include "rendezvous.hpp"

namespace lockstep::sim {
namespace {

// Every collective is one of these.
template <class Body>
auto enter(const Seat& seat, const Body& body) {
  Rank& who = *seat.who;
  const Turn turn(who.busy, seat.rank, seat.rendezvous->name());
  if (who.has_dropped) who.announce_dropped();
  return body(*seat.rendezvous, who);
}

reference::Result call(const Seat& seat, Operation operation, const Tensor& x,
                       std::int64_t root = 0, std::span<const std::int64_t> send_counts = {}) {
  return enter(seat, [&](Rendezvous& rendezvous, Rank& who) {
    return rendezvous.meet(seat.rank, who, {operation, &x, root, send_counts});
  });
}

template <class T>
VariableTensorExchange<T> exchange(reference::Result result) {
  return {T(std::move(result.value)), std::move(result.receive_counts)};
}

}  // namespace

int Communicator::world_size() const {
  return static_cast<int>(seat_->rendezvous->members().size());
}
int Communicator::rank() const {
  return seat_->rank;
}
const std::string& Communicator::name() const {
  return seat_->rendezvous->name();
}

FloatTensor Communicator::all_gather_float(const FloatTensor& x) const {
  return FloatTensor(call(*seat_, Operation::all_gather_float, x).value);
}

IntTensor Communicator::all_gather_int(const IntTensor& x) const {
  return IntTensor(call(*seat_, Operation::all_gather_int, x).value);
}

FloatTensor Communicator::reduce_scatter_sum(const FloatTensor& x) const {
  return FloatTensor(call(*seat_, Operation::reduce_scatter_sum, x).value);
}

FloatTensor Communicator::all_reduce_sum(const FloatTensor& x) const {
  return FloatTensor(call(*seat_, Operation::all_reduce_sum, x).value);
}

FloatTensor Communicator::broadcast_float(const FloatTensor& x, std::int64_t root) const {
  return FloatTensor(call(*seat_, Operation::broadcast_float, x, root).value);
}

VariableTensorExchange<FloatTensor> Communicator::all_to_all_v_float(
    const FloatTensor& x, std::span<const std::int64_t> send_counts) const {
  return exchange<FloatTensor>(call(*seat_, Operation::all_to_all_v_float, x, 0, send_counts));
}

VariableTensorExchange<IntTensor> Communicator::all_to_all_v_int(
    const IntTensor& x, std::span<const std::int64_t> send_counts) const {
  return exchange<IntTensor>(call(*seat_, Operation::all_to_all_v_int, x, 0, send_counts));
}

Communicator Communicator::split(std::int64_t color, std::int64_t key) const {
  auto [rendezvous, rank] = enter(*seat_, [&](Rendezvous& parent, Rank& who) {
    return parent.split(seat_->rank, who, color, key);
  });
  return Communicator(std::make_shared<Seat>(std::move(rendezvous), rank, seat_->who, true));
}

Communicator Communicator::group(std::span<const int> ranks) const {
  auto [rendezvous, rank] = seat_->rendezvous->group(seat_->rank, ranks);
  return Communicator(std::make_shared<Seat>(std::move(rendezvous), rank, seat_->who, false));
}

void Communicator::leave() const {
  seat_->rendezvous->depart(seat_->rank, "left this communicator");
}

std::ostream& operator<<(std::ostream& out, const Communicator& communicator) {
  return out << communicator.name() << ", rank " << communicator.rank() << " of "
             << communicator.world_size();
}

}  // namespace lockstep::sim
