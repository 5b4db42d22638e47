// What can go wrong, and what the caller can do about it.
//
//   InvalidArgument   this caller alone asked for something that cannot be: nobody else was involved,
//                     nothing happened. Fix the call.
//   ContractError     the ranks' calls did not fit together. Every rank got this same error in this
//                     same call, no data moved, the communicator works on.
//   TransportError    a peer is gone or stuck, so the call can never complete. The communicator is
//                     finished: every later call on it gives this same error at once. Communicators
//                     that do not need the lost peer go on.
#pragma once

#include <cstdint>
#include <exception>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/operation.hpp>

namespace lockstep {

// The ways to break the contract, a closed list. When a call breaks several, the earliest in this
// order is reported, so that every backend reports the same one.
enum class Violation : std::uint8_t {
  operation,            // ranks called different operations
  dtype,                // dtypes differ
  axes,                 // numbers of axes differ
  shape,                // shapes differ (for the exchanges: trailing axes differ)
  leading_axis,         // a tensor without axes where a leading axis is needed
  indivisible_rows,     // reduce_scatter: the rows do not divide among the ranks
  root_out_of_range,    // a root outside 0..N-1
  roots_differ,         // ranks named different roots
  counts_length,        // send_counts does not have one entry per rank
  counts_sum,           // send_counts has a negative entry or does not add up to the rows
  zero_trailing_axis,   // all_to_all_v with a trailing axis of length zero
  size_overflow,        // an axis, the elements or the bytes of a result beyond 2^63-1
  gradient,             // an upstream gradient whose dtype or shape is unlike its result's
  not_differentiable,   // a derivative of an integer operation
  window,               // ranks recorded different collectives
};

inline constexpr Violation all_violations[] = {
    Violation::operation,          Violation::dtype,
    Violation::axes,               Violation::shape,
    Violation::leading_axis,       Violation::indivisible_rows,
    Violation::root_out_of_range,  Violation::roots_differ,
    Violation::counts_length,      Violation::counts_sum,
    Violation::zero_trailing_axis, Violation::size_overflow,
    Violation::gradient,           Violation::not_differentiable,
    Violation::window};

std::string_view name(Violation violation);
std::ostream& operator<<(std::ostream& out, Violation violation);

// The root of all errors that Lockstep throws.
class Error : public std::exception {
 public:
  explicit Error(std::string message) : text_(std::move(message)) {}
  const char* what() const noexcept override { return text_.c_str(); }

  // Adds a line to what(): how other ranks fared, when the first failure of a run is reported.
  void attach(const std::string& note);
  // The lines added, oldest first.
  const std::vector<std::string>& attached() const { return attached_; }

 private:
  std::string text_;
  std::vector<std::string> attached_;
};

class InvalidArgument : public Error {
 public:
  using Error::Error;
};

// A broken contract as the pure functions report it: which rule, in which operation, and which ranks
// passed what. A communicator adds where it happened and throws it as a ContractError.
struct Breach {
  Violation violation;
  Operation operation;
  // One sentence with the ranks and values that differ; ranks are ranks of the communicator.
  std::string explanation;

  friend bool operator==(const Breach&, const Breach&) = default;
};

class ContractError : public Error {
 public:
  // `communicator` is its printed name; `call_number` counts the calls on it from 0.
  ContractError(const Breach& breach, std::string_view communicator, std::uint64_t call_number);
  // In a reverse pass, which is no call with a number, and where it concerns a whole window has no
  // one operation. `place` is "gradient of all_gather_float on world", "backward on world".
  ContractError(Violation violation, std::optional<Operation> operation, std::string_view place,
                std::string_view explanation);

  Violation violation() const { return violation_; }
  std::optional<Operation> operation() const { return operation_; }
  std::optional<std::uint64_t> call_number() const { return call_number_; }

 private:
  Violation violation_;
  std::optional<Operation> operation_;
  std::optional<std::uint64_t> call_number_;
};

class TransportError : public Error {
 public:
  // `lost_ranks` are the ranks, in the communicator's numbering, that did not arrive.
  TransportError(std::string message, std::vector<int> lost_ranks)
      : Error(std::move(message)), lost_ranks_(std::move(lost_ranks)) {}

  const std::vector<int>& lost_ranks() const { return lost_ranks_; }

 private:
  std::vector<int> lost_ranks_;
};

}  // namespace lockstep
