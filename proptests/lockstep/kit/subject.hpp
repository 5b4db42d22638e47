// One rank's end of the backend under test, in host tensors, whatever tensors the backend has.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <lockstep/collective.hpp>
#include <lockstep/kit/case.hpp>
#include <lockstep/tensor.hpp>

namespace lockstep::kit {

class Subject {
 public:
  virtual ~Subject() = default;

  virtual FloatTensor all_gather_float(const FloatTensor& x) = 0;
  virtual IntTensor all_gather_int(const IntTensor& x) = 0;
  virtual FloatTensor reduce_scatter_sum(const FloatTensor& x) = 0;
  virtual FloatTensor all_reduce_sum(const FloatTensor& x) = 0;
  virtual FloatTensor broadcast_float(const FloatTensor& x, std::int64_t root) = 0;
  virtual VariableTensorExchange<FloatTensor> all_to_all_v_float(
      const FloatTensor& x, std::span<const std::int64_t> send_counts) = 0;
  virtual VariableTensorExchange<IntTensor> all_to_all_v_int(
      const IntTensor& x, std::span<const std::int64_t> send_counts) = 0;

  // The sub-communicator of these ranks of this one, in this order; only its members ask for it, and
  // the same list is the same communicator. Null when the backend has none.
  virtual std::unique_ptr<Subject> group(std::span<const int> ranks) = 0;
};

// How host tensors become a backend's tensors and back. The primary template is for backends whose
// tensors are FloatTensor and IntTensor themselves; others specialize it.
template <class C>
struct HostTransfer {
  static const FloatTensor& upload(C&, const FloatTensor& x) { return x; }
  static const IntTensor& upload(C&, const IntTensor& x) { return x; }
  static FloatTensor download(C&, FloatTensor x) { return x; }
  static IntTensor download(C&, IntTensor x) { return x; }
};

// A communicator type that can make sub-communicators of chosen ranks.
template <class C>
concept Groupable = requires(C c, std::span<const int> ranks) {
  { c.group(ranks) } -> std::same_as<C>;
};

template <VariableTensorCollective C>
class SubjectOf final : public Subject {
  using Transfer = HostTransfer<C>;

 public:
  explicit SubjectOf(C communicator) : communicator_(std::move(communicator)) {}

  FloatTensor all_gather_float(const FloatTensor& x) override {
    return download(communicator_.all_gather_float(upload(x)));
  }
  IntTensor all_gather_int(const IntTensor& x) override {
    return download(communicator_.all_gather_int(upload(x)));
  }
  FloatTensor reduce_scatter_sum(const FloatTensor& x) override {
    return download(communicator_.reduce_scatter_sum(upload(x)));
  }
  FloatTensor all_reduce_sum(const FloatTensor& x) override {
    return download(communicator_.all_reduce_sum(upload(x)));
  }
  FloatTensor broadcast_float(const FloatTensor& x, std::int64_t root) override {
    return download(communicator_.broadcast_float(upload(x), root));
  }
  VariableTensorExchange<FloatTensor> all_to_all_v_float(
      const FloatTensor& x, std::span<const std::int64_t> send_counts) override {
    auto exchange = communicator_.all_to_all_v_float(upload(x), send_counts);
    return {download(std::move(exchange.value)), std::move(exchange.receive_counts)};
  }
  VariableTensorExchange<IntTensor> all_to_all_v_int(
      const IntTensor& x, std::span<const std::int64_t> send_counts) override {
    auto exchange = communicator_.all_to_all_v_int(upload(x), send_counts);
    return {download(std::move(exchange.value)), std::move(exchange.receive_counts)};
  }
  std::unique_ptr<Subject> group(std::span<const int> ranks) override {
    if constexpr (Groupable<C>) {
      return std::make_unique<SubjectOf>(communicator_.group(ranks));
    } else {
      return nullptr;
    }
  }

 private:
  template <class T>
  decltype(auto) upload(const T& x) {
    return Transfer::upload(communicator_, x);
  }
  template <class T>
  auto download(T x) {
    return Transfer::download(communicator_, std::move(x));
  }

  C communicator_;
};

// What one world rank saw of a case: entry s is its outcome in step s, nothing where it is no member.
using RankTranscript = std::vector<std::optional<Outcome>>;

// Plays one world rank's part of a case on its communicator of the whole world. Returns early when
// the case says that the rank leaves: dropping `world` is then what its peers must notice.
RankTranscript perform(const Case& c, int world_rank, Subject& world);

// Every rank's part put together. `ranks` has one entry per world rank.
Transcript assemble(const Case& c, std::span<const RankTranscript> ranks);

}  // namespace lockstep::kit
