// A rank's end of a simulated communicator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <lockstep/collective.hpp>
#include <lockstep/tensor.hpp>

namespace lockstep::sim {

struct Seat;

// Satisfies all five concepts of lockstep/collective.hpp. Copies are the same rank of the same
// communicator; any thread may use one, but a rank can be in one call at a time (InvalidArgument
// when two threads use it at once). It keeps alive what it needs, also after its World is gone; by
// then it only answers with TransportError.
//
// Operations throw ContractError and TransportError as lockstep/error.hpp says. A TransportError
// tells who never arrived and what each missing rank did last; when all ranks that still run are
// waiting, it holds the whole table of who waits where for whom.
class Communicator {
 public:
  using float_tensor = FloatTensor;
  using int_tensor = IntTensor;

  int world_size() const;
  int rank() const;
  // "world", "world.group{2, 0}", "world.split@3{1, 4}": the ranks in braces are world ranks.
  const std::string& name() const;
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
  // rank here. A rank that drops its last handle on the result has left that communicator.
  Communicator split(std::int64_t color, std::int64_t key) const;

  // The communicator of these ranks of this one, in this order: entered by its members only, at any
  // time, without waiting for one another. The same list is the same communicator. Throws
  // InvalidArgument for a list that is empty, repeats a rank, names none of this communicator's, or
  // leaves the caller out.
  Communicator group(std::span<const int> ranks) const;
  Communicator group(std::initializer_list<int> ranks) const {
    return group(std::span<const int>(ranks.begin(), ranks.size()));
  }

  // Leaves this communicator, though handles on it are still held: from any thread, also while another
  // one waits in a call, which then fails for everybody. Calls from now on throw TransportError.
  void leave() const;

  // Made by World and make_communicators.
  explicit Communicator(std::shared_ptr<Seat> seat) : seat_(std::move(seat)) {}

 private:
  std::shared_ptr<Seat> seat_;
};

// "world, rank 2 of 8"
std::ostream& operator<<(std::ostream& out, const Communicator& communicator);

static_assert(VariableTensorCollective<Communicator>);

}  // namespace lockstep::sim
