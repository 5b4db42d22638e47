// The ladder of contracts, each adding operations to the one before.
//
// A communicator type C is a small value (copyable, printable, movable to another thread) with the
// member types C::float_tensor and C::int_tensor: its backend's tensors, on a host or on a device.
// Every operation is entered by every rank of the communicator, also by a rank without rows, and
// returns a new value; the argument is never changed. What each needs and returns, with N ranks:
//
//   all_gather_float(x), all_gather_int(x)   equal shapes -> [N*rows, trailing...], rank 0 first
//   reduce_scatter_sum(x)                    equal shapes, rows divisible by N -> the rank's rows/N
//                                            rows of the elementwise sum
//   all_reduce_sum(x)                        equal shapes -> the elementwise sum
//   broadcast_float(x, root)                 equal shapes, equal root -> the root's elements
//   all_to_all_v_float(x, send_counts),      send_counts[d] rows go to rank d, in order; equal
//   all_to_all_v_int(x, send_counts)         trailing axes, none zero -> the rows sent here, source
//                                            rank 0 first, and how many came from each source
//
// A broken contract throws the same ContractError on every rank; a peer that can no longer arrive
// throws TransportError (lockstep/error.hpp).
#pragma once

#include <concepts>
#include <cstdint>
#include <ostream>
#include <span>
#include <type_traits>
#include <vector>

namespace lockstep {

// What an exchange returns.
template <class T>
struct VariableTensorExchange {
  T value;
  std::vector<std::int64_t> receive_counts;  // rows that came from each source rank
};

template <class C>
concept TensorCollective =
    std::copyable<C> && requires(C c, const typename C::float_tensor& x, std::ostream& out) {
      { c.world_size() } -> std::same_as<int>;
      // The scope that records this communicator's collectives for differentiation; false in a
      // condition when there is none, as on every bare communicator.
      { static_cast<bool>(c.autodiff_context()) };
      { c.all_gather_float(x) } -> std::same_as<typename C::float_tensor>;
      { c.reduce_scatter_sum(x) } -> std::same_as<typename C::float_tensor>;
      { out << c } -> std::same_as<std::ostream&>;
    };

template <class C>
concept ReplicatedTensorCollective =
    TensorCollective<C> && requires(C c, const typename C::float_tensor& x) {
      { c.all_reduce_sum(x) } -> std::same_as<typename C::float_tensor>;
    };

template <class C>
concept BroadcastTensorCollective =
    ReplicatedTensorCollective<C> &&
    requires(C c, const typename C::float_tensor& x, std::int64_t root) {
      { c.rank() } -> std::same_as<int>;
      { c.broadcast_float(x, root) } -> std::same_as<typename C::float_tensor>;
    };

template <class C>
concept IntegerTensorCollective =
    BroadcastTensorCollective<C> && requires(C c, const typename C::int_tensor& x) {
      { c.all_gather_int(x) } -> std::same_as<typename C::int_tensor>;
    };

template <class C>
concept VariableTensorCollective =
    IntegerTensorCollective<C> &&
    requires(C c, const typename C::float_tensor& x, const typename C::int_tensor& i,
             std::span<const std::int64_t> send_counts) {
      {
        c.all_to_all_v_float(x, send_counts)
        } -> std::same_as<VariableTensorExchange<typename C::float_tensor>>;
      {
        c.all_to_all_v_int(i, send_counts)
        } -> std::same_as<VariableTensorExchange<typename C::int_tensor>>;
    };

}  // namespace lockstep
