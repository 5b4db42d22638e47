#include <lockstep/gpu/communicator.hpp>

#include <ostream>

#include <lockstep/error.hpp>

#include "movement.hpp"
#include "seat.hpp"

namespace lockstep::gpu {
namespace {

// `send_counts` is only looked at, for as long as the call lasts.
Signature signature(Operation operation, const Tensor& x, std::int64_t root = 0,
                    std::span<const std::int64_t> send_counts = {}) {
  return {operation, x.dtype(), x.shape(), root, send_counts};
}

template <class Body>
auto call(Seat& seat, const Tensor& x, const Signature& mine, const Body& body) {
  const Turn turn = seat.take_turn();
  Link& link = seat.link;
  if (x.device() != link.stream().device()) {
    throw InvalidArgument("a tensor on device " + std::to_string(x.device()) + " was passed to " +
                          link.name() + ", whose rank " + std::to_string(link.rank()) +
                          " is on device " + std::to_string(link.stream().device()));
  }
  return link.call(mine, needs_of(mine, link.size(), link.options().sum_rule), body);
}

template <class T>
VariableTensorExchange<T> exchange(Seat& seat, Operation operation, const T& x,
                                   std::span<const std::int64_t> send_counts) {
  Link& link = seat.link;
  return call(seat, x, signature(operation, x, 0, send_counts),
              [&](const Blocks&, std::int64_t total_rows) {
                std::vector<std::int64_t> receive_counts = link.exchange_counts(send_counts);
                T value(all_to_all_v(link, x, send_counts, receive_counts, total_rows));
                return VariableTensorExchange<T>{std::move(value), std::move(receive_counts)};
              });
}

}  // namespace

Seat& Seat::group(std::span<const int> ranks) {
  std::lock_guard lock(groups_mutex_);
  std::unique_ptr<Seat>& seat = groups_[std::vector<int>(ranks.begin(), ranks.end())];
  if (seat == nullptr) {
    seat = std::make_unique<Seat>(link.control().group(ranks), link.stream(), link.options());
  }
  return *seat;
}

Communicator::Communicator(std::unique_ptr<ControlPlane> control, const Stream& stream,
                           Options options)
    : seat_(std::make_shared<Seat>(std::move(control), stream, options)) {}

int Communicator::world_size() const {
  return seat_->link.size();
}
int Communicator::rank() const {
  return seat_->link.rank();
}
const std::string& Communicator::name() const {
  return seat_->link.name();
}
const Stream& Communicator::stream() const {
  return seat_->link.stream();
}
SumRule Communicator::sum_rule() const {
  return seat_->link.options().sum_rule;
}

FloatTensor Communicator::all_gather_float(const FloatTensor& x) const {
  return call(*seat_, x, signature(Operation::all_gather_float, x),
              [&](const Blocks& blocks, std::int64_t) {
                return FloatTensor(all_gather(seat_->link, x, blocks));
              });
}

IntTensor Communicator::all_gather_int(const IntTensor& x) const {
  return call(*seat_, x, signature(Operation::all_gather_int, x),
              [&](const Blocks& blocks, std::int64_t) {
                return IntTensor(all_gather(seat_->link, x, blocks));
              });
}

FloatTensor Communicator::reduce_scatter_sum(const FloatTensor& x) const {
  return call(*seat_, x, signature(Operation::reduce_scatter_sum, x),
              [&](const Blocks& blocks, std::int64_t) {
                return FloatTensor(reduce_scatter(seat_->link, x, sum_rule(), blocks));
              });
}

FloatTensor Communicator::all_reduce_sum(const FloatTensor& x) const {
  return call(*seat_, x, signature(Operation::all_reduce_sum, x),
              [&](const Blocks& blocks, std::int64_t) {
                return FloatTensor(all_reduce(seat_->link, x, sum_rule(), blocks));
              });
}

FloatTensor Communicator::broadcast_float(const FloatTensor& x, std::int64_t root) const {
  return call(*seat_, x, signature(Operation::broadcast_float, x, root),
              [&](const Blocks& blocks, std::int64_t) {
                return FloatTensor(broadcast(seat_->link, x, static_cast<int>(root), blocks));
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
  const Turn turn = seat_->take_turn();
  Link& link = seat_->link;
  return link.call(Signature(), Needs(), [&](const Blocks&, std::int64_t) {
    return Communicator(link.control().split(color, key), link.stream(), link.options());
  });
}

Communicator Communicator::group(std::span<const int> ranks) const {
  // The handle holds the seat that the group was made from, and shows the group's.
  return Communicator(std::shared_ptr<Seat>(seat_, &seat_->group(ranks)));
}

void Communicator::abort(const std::string& reason) const noexcept {
  seat_->link.abort(reason);
}

std::vector<std::vector<std::int64_t>> Communicator::gather_integers(
    std::span<const std::int64_t> integers) const {
  const Turn turn = seat_->take_turn();
  return seat_->link.gather_integers(integers);
}

std::ostream& operator<<(std::ostream& out, const Communicator& communicator) {
  return out << communicator.name() << ", rank " << communicator.rank() << " of "
             << communicator.world_size() << ", on device " << communicator.stream().device();
}

}  // namespace lockstep::gpu
