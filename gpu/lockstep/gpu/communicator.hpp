// The contract on GPUs: NCCL moves the elements, a host communicator of the contract is the control
// plane.
//
//   lockstep::sim::World ranks(4);                     // or mpi::Communicator, one process per
//   rank ranks.run([](lockstep::sim::Communicator host) {
//     lockstep::gpu::Stream stream(host.rank());       // device r for rank r
//     lockstep::gpu::Communicator world(host, stream);
//     auto x = lockstep::FloatTensor::of<float>({1}, {1.0f + host.rank()});
//     auto sum = world.all_reduce_sum(lockstep::gpu::FloatTensor::upload(x, stream));
//     return sum.download();
//   });
//
// docs/gpu.md says when each operation waits for what, and how failures are noticed.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/collective.hpp>
#include <lockstep/gpu/control_plane.hpp>
#include <lockstep/gpu/stream.hpp>
#include <lockstep/gpu/tensor.hpp>
#include <lockstep/sum_rule.hpp>

namespace lockstep::gpu {

struct Seat;

// Must be the same on every rank of a communicator; what is made from it inherits them.
struct Options {
  // `unspecified` is NCCL's own reduction; the other rules exchange the addends and add on the
  // device.
  SumRule sum_rule = SumRule::unspecified;
  // How long NCCL may take over what has been enqueued before it is given up, counted by whoever
  // waits for the result. Without one, a peer that is stuck is waited for as long as it takes. (How
  // long ranks wait for each other on the host is the control plane's own affair.)
  std::optional<std::chrono::nanoseconds> timeout = std::nullopt;
  // Whether the ranks compare their calls before any data moves. Without it, calls that do not fit
  // together are undefined behaviour of NCCL: it may hang until the time limit or move the wrong
  // bytes. What one rank can see by itself is still a ContractError, on that rank alone. Exchanges
  // always agree, since they need each other's counts.
  bool agreement = true;
};

// Satisfies all five concepts of lockstep/collective.hpp, on tensors of this rank's device. Copies
// are the same rank of the same communicator; any thread may use one, but a rank can be in one call
// at a time (InvalidArgument when two threads use it at once).
//
// A call returns when its work has been enqueued on the communicator's stream; the result belongs
// to that stream. The argument may lie on another stream of the same device (InvalidArgument for
// another device), and may be let go of right after the call.
//
// A rank leaves a communicator when the last handle on it and on the groups made from it is gone.
// It waits there for its own enqueued work, which its peers may need.
class Communicator {
 public:
  using float_tensor = FloatTensor;
  using int_tensor = IntTensor;

  // Every rank of `host` makes one, on a stream of a device of its own, and uses `host` for nothing
  // else from then on. NCCL's communicator is made in the first call that moves data.
  template <VariableTensorCollective Host>
  Communicator(Host host, const Stream& stream, Options options = {})
      : Communicator(std::make_unique<HostControlPlane<Host>>(std::move(host)), stream, options) {}
  Communicator(std::unique_ptr<ControlPlane> control, const Stream& stream, Options options = {});

  int world_size() const;
  int rank() const;
  // The control plane's name, the same on every rank.
  const std::string& name() const;
  const Stream& stream() const;
  SumRule sum_rule() const;
  std::nullptr_t autodiff_context() const { return nullptr; }

  FloatTensor all_gather_float(const FloatTensor& x) const;
  IntTensor all_gather_int(const IntTensor& x) const;
  FloatTensor reduce_scatter_sum(const FloatTensor& x) const;
  FloatTensor all_reduce_sum(const FloatTensor& x) const;
  FloatTensor broadcast_float(const FloatTensor& x, std::int64_t root) const;
  VariableTensorExchange<FloatTensor> all_to_all_v_float(
      const FloatTensor& x, std::span<const std::int64_t> send_counts) const;
  VariableTensorExchange<IntTensor> all_to_all_v_int(
      const IntTensor& x, std::span<const std::int64_t> send_counts) const;

  // Entered by every rank: those of equal color become one communicator, ordered by key, then by
  // rank here. On the same stream.
  Communicator split(std::int64_t color, std::int64_t key) const;

  // The communicator of these ranks of this one, in this order, for its members only; returns at
  // once. The same list is the same communicator. On the same stream. Throws InvalidArgument as the
  // control plane does.
  Communicator group(std::span<const int> ranks) const;
  Communicator group(std::initializer_list<int> ranks) const {
    return group(std::span<const int>(ranks.begin(), ranks.size()));
  }

  // Gives the communicator up, from any thread, also while another one is in a call: that call,
  // every later one, and the downloads of results that were not there yet throw TransportError with
  // this reason; so do those of the peers that wait for this rank. Later aborts do nothing.
  void abort(const std::string& reason) const noexcept;

  // Entered by every rank, each with any number of integers: those of rank r are entry r of what
  // everybody gets back. They travel on the control plane, apart from the numbered calls.
  std::vector<std::vector<std::int64_t>> gather_integers(
      std::span<const std::int64_t> integers) const;

 private:
  explicit Communicator(std::shared_ptr<Seat> seat) : seat_(std::move(seat)) {}

  std::shared_ptr<Seat> seat_;
};

// "world, rank 2 of 8, on device 2"
std::ostream& operator<<(std::ostream& out, const Communicator& communicator);

static_assert(VariableTensorCollective<Communicator>);

}  // namespace lockstep::gpu
