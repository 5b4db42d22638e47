// The contract between processes: one process is one rank, tensors lie on the host, MPI moves them.
//
//   lockstep::mpi::Environment mpi;
//   lockstep::mpi::Communicator world(mpi);
//   auto x = lockstep::FloatTensor::of<float>({1}, {1.0f + world.rank()});
//   auto sum = world.all_reduce_sum(x);
//
// docs/mpi.md says what is guaranteed and how far a lost peer is noticed.
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

#include <lockstep/collective.hpp>
#include <lockstep/mpi/c_api.hpp>
#include <lockstep/mpi/environment.hpp>
#include <lockstep/sum_rule.hpp>
#include <lockstep/tensor.hpp>

namespace lockstep::mpi {

struct Seat;

// Must be the same on every rank of a communicator; what is made from it inherits them.
struct Options {
  // `unspecified` lets MPI add f32 and f64; the other rules bring the addends together and add
  // here.
  SumRule sum_rule = SumRule::unspecified;
  // How long a rank waits in one call without anything arriving before it gives up. Without one, a
  // peer that is stuck in its own code is waited for as long as it takes.
  std::optional<std::chrono::nanoseconds> timeout = std::nullopt;
};

// Satisfies all five concepts of lockstep/collective.hpp. Copies are the same rank of the same
// communicator; any thread may use one, but a rank can be in one call at a time (InvalidArgument
// when two threads use it at once).
//
// A rank leaves a communicator when the last handle on it and on the groups made from it is gone,
// also by an exception. Peers that wait for it, or call it later, then get a TransportError.
class Communicator {
 public:
  using float_tensor = FloatTensor;
  using int_tensor = IntTensor;

  // A private communicator of all ranks of MPI_COMM_WORLD, or of `parent` (an intracommunicator,
  // which stays the caller's). Entered by every rank. TransportError where MPI fails or the others
  // do not arrive within the time limit.
  explicit Communicator(const Environment& environment, Options options = {});
  Communicator(const Environment& environment, MPI_Comm parent, Options options = {});

  int world_size() const;
  int rank() const;
  // The same on every rank: "world", "world.group{2, 0}", "world.split@3{1, 4}". The ranks in
  // braces are ranks of the communicator that the name starts with, `call 3` is where it was split.
  // A wrapped MPI communicator is called "comm".
  const std::string& name() const;
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
  // rank here. Leaving the result does not leave this communicator, nor the other way round.
  Communicator split(std::int64_t color, std::int64_t key) const;

  // The communicator of these ranks of this one, in this order, for its members only; returns at
  // once, and the members meet in their first call on it. The same list is the same communicator.
  // Works also after this communicator has lost a rank that is not on the list. Throws
  // InvalidArgument for a list that is empty, repeats a rank, names none of this communicator's, or
  // leaves the caller out.
  Communicator group(std::span<const int> ranks) const;
  Communicator group(std::initializer_list<int> ranks) const {
    return group(std::span<const int>(ranks.begin(), ranks.size()));
  }

 private:
  explicit Communicator(std::shared_ptr<Seat> seat) : seat_(std::move(seat)) {}

  std::shared_ptr<Seat> seat_;
};

// "world, rank 2 of 8"
std::ostream& operator<<(std::ostream& out, const Communicator& communicator);

static_assert(VariableTensorCollective<Communicator>);

}  // namespace lockstep::mpi
