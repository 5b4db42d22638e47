// One rank's end of the backend under test, in host tensors, whatever tensors the backend has.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/collective.hpp>
#include <lockstep/differentiation/gradient.hpp>
#include <lockstep/error.hpp>
#include <lockstep/kit/case.hpp>
#include <lockstep/kit/memory_layout.hpp>
#include <lockstep/kit/window.hpp>
#include <lockstep/tensor.hpp>

namespace lockstep::kit {

class Subject {
 public:
  virtual ~Subject() = default;

  virtual int rank() const = 0;
  virtual int world_size() const = 0;
  // As errors name the communicator: alike on every rank.
  virtual std::string name() const;

  virtual FloatTensor all_gather_float(const FloatTensor& x) = 0;
  virtual IntTensor all_gather_int(const IntTensor& x) = 0;
  virtual FloatTensor reduce_scatter_sum(const FloatTensor& x) = 0;
  virtual FloatTensor all_reduce_sum(const FloatTensor& x) = 0;
  virtual FloatTensor broadcast_float(const FloatTensor& x, std::int64_t root) = 0;
  virtual VariableTensorExchange<FloatTensor> all_to_all_v_float(
      const FloatTensor& x, std::span<const std::int64_t> send_counts) = 0;
  virtual VariableTensorExchange<IntTensor> all_to_all_v_int(
      const IntTensor& x, std::span<const std::int64_t> send_counts) = 0;

  // How the tensors of the calls from now on lie in the backend's memory, as far as its tensors can
  // be views; dense at first. Says nothing about gradients. By default it makes no difference.
  virtual void lay_out_inputs(MemoryLayout layout) { (void)layout; }

  // The gradients, as lockstep/differentiation/gradient.hpp says: `result` is what the forward call
  // returned to this rank, and nothing for an upstream is a loss that does not use it. By default
  // they are the library's own, over the calls above; a backend that brings its own differentiation
  // overrides them. Integers have none: those two throw ContractError (`not_differentiable`).
  virtual FloatTensor all_gather_gradient(const FloatTensor& result,
                                          const std::optional<FloatTensor>& upstream);
  virtual FloatTensor reduce_scatter_gradient(const FloatTensor& result,
                                              const std::optional<FloatTensor>& upstream);
  virtual FloatTensor all_reduce_gradient(const FloatTensor& result,
                                          const std::optional<FloatTensor>& upstream);
  virtual FloatTensor broadcast_gradient(const FloatTensor& result, std::int64_t root,
                                         const std::optional<FloatTensor>& upstream);
  virtual FloatTensor all_to_all_v_gradient(const VariableTensorExchange<FloatTensor>& result,
                                            const std::optional<FloatTensor>& upstream);
  virtual FloatTensor all_gather_int_gradient(const IntTensor& result,
                                              const std::optional<FloatTensor>& upstream);
  virtual FloatTensor all_to_all_v_int_gradient(const VariableTensorExchange<IntTensor>& result,
                                                const std::optional<FloatTensor>& upstream);

  // A new forward window, by default a scope of the library over the calls above.
  virtual std::unique_ptr<SubjectWindow> window();

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

// A communicator type whose own tensors can be strided views of a larger block, when its
// HostTransfer also has
//
//   static my::FloatTensor view(C&, const FloatTensor& block, const StridedView& view);
//   static my::IntTensor view(C&, const IntTensor& block, const StridedView& view);
//
// which take a block of one axis to where the backend keeps its tensors, and return the view of it.
// The kit then passes inputs as views as well, as the case says (lockstep/kit/memory_layout.hpp).
template <class C>
concept HasViews = requires(C c, const FloatTensor& floats, const IntTensor& ints,
                            const StridedView& view) {
  { HostTransfer<C>::view(c, floats, view) } -> std::same_as<typename C::float_tensor>;
  { HostTransfer<C>::view(c, ints, view) } -> std::same_as<typename C::int_tensor>;
};

// A communicator type that can make sub-communicators of chosen ranks.
template <class C>
concept Groupable = requires(C c, std::span<const int> ranks) {
  { c.group(ranks) } -> std::same_as<C>;
};

// Whose own tensors the library can differentiate. Where they lie on the host there is nothing to
// gain from it: the gradients over the calls of a Subject are the same.
template <class C>
concept DifferentiatesDeviceTensors =
    !std::same_as<typename C::float_tensor, FloatTensor> &&
    differentiation::DifferentiableTensor<typename C::float_tensor> &&
    differentiation::TellsIntegers<C>;

// To replace a gradient by the backend's own, derive from this and override it, and `group` as well.
template <VariableTensorCollective C>
class SubjectOf : public Subject {
  using Transfer = HostTransfer<C>;

 public:
  explicit SubjectOf(C communicator) : communicator_(std::move(communicator)) {}

  int rank() const override { return communicator_.rank(); }
  int world_size() const override { return communicator_.world_size(); }
  std::string name() const override { return differentiation::name_of(communicator_); }

  FloatTensor all_gather_float(const FloatTensor& x) override {
    return download(communicator_.all_gather_float(passed(x)));
  }
  IntTensor all_gather_int(const IntTensor& x) override {
    return download(communicator_.all_gather_int(passed(x)));
  }
  FloatTensor reduce_scatter_sum(const FloatTensor& x) override {
    return download(communicator_.reduce_scatter_sum(passed(x)));
  }
  FloatTensor all_reduce_sum(const FloatTensor& x) override {
    return download(communicator_.all_reduce_sum(passed(x)));
  }
  FloatTensor broadcast_float(const FloatTensor& x, std::int64_t root) override {
    return download(communicator_.broadcast_float(passed(x), root));
  }
  VariableTensorExchange<FloatTensor> all_to_all_v_float(
      const FloatTensor& x, std::span<const std::int64_t> send_counts) override {
    auto exchange = communicator_.all_to_all_v_float(passed(x), send_counts);
    return {download(std::move(exchange.value)), std::move(exchange.receive_counts)};
  }
  VariableTensorExchange<IntTensor> all_to_all_v_int(
      const IntTensor& x, std::span<const std::int64_t> send_counts) override {
    auto exchange = communicator_.all_to_all_v_int(passed(x), send_counts);
    return {download(std::move(exchange.value)), std::move(exchange.receive_counts)};
  }

  void lay_out_inputs(MemoryLayout layout) override { layout_ = layout; }

  FloatTensor all_gather_gradient(const FloatTensor& result,
                                  const std::optional<FloatTensor>& upstream) override {
    if constexpr (DifferentiatesDeviceTensors<C>) {
      return download(
          differentiation::all_gather_gradient(communicator_, upload(result), uploaded(upstream)));
    } else {
      return Subject::all_gather_gradient(result, upstream);
    }
  }
  FloatTensor reduce_scatter_gradient(const FloatTensor& result,
                                      const std::optional<FloatTensor>& upstream) override {
    if constexpr (DifferentiatesDeviceTensors<C>) {
      return download(differentiation::reduce_scatter_gradient(communicator_, upload(result),
                                                               uploaded(upstream)));
    } else {
      return Subject::reduce_scatter_gradient(result, upstream);
    }
  }
  FloatTensor all_reduce_gradient(const FloatTensor& result,
                                  const std::optional<FloatTensor>& upstream) override {
    if constexpr (DifferentiatesDeviceTensors<C>) {
      return download(
          differentiation::all_reduce_gradient(communicator_, upload(result), uploaded(upstream)));
    } else {
      return Subject::all_reduce_gradient(result, upstream);
    }
  }
  FloatTensor broadcast_gradient(const FloatTensor& result, std::int64_t root,
                                 const std::optional<FloatTensor>& upstream) override {
    if constexpr (DifferentiatesDeviceTensors<C>) {
      return download(differentiation::broadcast_gradient(communicator_, upload(result), root,
                                                          uploaded(upstream)));
    } else {
      return Subject::broadcast_gradient(result, root, upstream);
    }
  }
  FloatTensor all_to_all_v_gradient(const VariableTensorExchange<FloatTensor>& result,
                                    const std::optional<FloatTensor>& upstream) override {
    if constexpr (DifferentiatesDeviceTensors<C>) {
      return download(differentiation::all_to_all_v_gradient(
          communicator_,
          VariableTensorExchange<typename C::float_tensor>{upload(result.value),
                                                           result.receive_counts},
          uploaded(upstream)));
    } else {
      return Subject::all_to_all_v_gradient(result, upstream);
    }
  }

  std::unique_ptr<SubjectWindow> window() override {
    if constexpr (DifferentiatesDeviceTensors<C>) {
      return std::make_unique<ScopeWindow<C, Transfer>>(communicator_);
    } else {
      return Subject::window();
    }
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
  // An input in its layout.
  template <class T>
  decltype(auto) passed(const T& x) {
    if constexpr (HasViews<C>) {
      const Laid laid = laid_out(x, layout_);
      return Transfer::view(communicator_, T(laid.block), laid.view);
    } else {
      return upload(x);
    }
  }
  template <class T>
  auto download(T x) {
    return Transfer::download(communicator_, std::move(x));
  }
  std::optional<typename C::float_tensor> uploaded(const std::optional<FloatTensor>& x) {
    if (!x) return std::nullopt;
    return upload(*x);
  }

  MemoryLayout layout_ = MemoryLayout::dense;

 protected:
  C communicator_;
};

// What one world rank saw of a case: entry s is its outcome in step s, nothing where it is no member.
using RankTranscript = std::vector<std::optional<Outcome>>;

// Ends a rank's part where its case says that it throws.
class InjectedFault : public Error {
 public:
  using Error::Error;
};

// Plays one world rank's part of a case on its communicator of the whole world, and notes in
// `transcript` what became of it. Ends early when the case says that the rank leaves: by returning,
// by throwing InjectedFault, or, where it stalls, by calling `stall`, which returns when all ranks
// that do not stall are through, and then returning. Dropping `world` is what its peers must notice
// (of a rank that stalls, that it does not come).
void perform(const Case& c, int world_rank, Subject& world, RankTranscript& transcript,
             const std::function<void()>& stall);

// Every rank's part put together. `ranks` has one entry per world rank.
Transcript assemble(const Case& c, std::span<const RankTranscript> ranks);

}  // namespace lockstep::kit
