#include "window.hpp"

#include <algorithm>
#include <numeric>

#include <lockstep/differentiation/tensor_operations.hpp>
#include <lockstep/differentiation/window.hpp>

#include "spoiling.hpp"

namespace lockstep::zoo {
namespace {

using Upstreams = std::span<const std::optional<FloatTensor>>;

// A tape of calls alone. It agrees on what is reached as the library does.
class FaultyWindow final : public kit::SubjectWindow {
 public:
  FaultyWindow(WindowFault fault, const Communicator& world)
      : fault_(fault), world_(world), communicators_{{{}, world}} {
    description_.communicators.push_back({});
  }

  Returned call(std::span<const int> group, Operation operation, const Input& input,
                std::int64_t root, std::span<const std::int64_t> send_counts) override {
    const auto communicator = number_of({group.begin(), group.end()});
    Made made;
    made.communicator = communicator;
    made.from_call = input.from_call;
    made.passed.operation = operation;
    made.passed.x =
        input.from_call ? calls_[index(*input.from_call)].result.value : input.tensor;
    made.passed.root = root;
    made.passed.send_counts.assign(send_counts.begin(), send_counts.end());
    made.result = communicators_[communicator].second.call(made.passed);
    calls_.push_back(std::move(made));
    return {calls_.back().result.value, calls_.back().result.receive_counts};
  }

  std::vector<std::optional<FloatTensor>> backward(Upstreams upstream) override {
    const std::vector<bool> reached = agree(upstream);
    sums_.assign(upstream.begin(), upstream.end());
    sums_.resize(calls_.size());
    std::vector<std::optional<FloatTensor>> back(calls_.size());
    for (const std::size_t i : order()) {
      const Made& call = calls_[i];
      if (takes_integers(call.passed.operation)) continue;
      if (!reached[i] && fault_ != WindowFault::enters_everything) continue;
      if (fault_ == WindowFault::skips_unused && !sums_[i]) continue;
      if (!sums_[i]) sums_[i] = without_gradient(call);
      back[i] = reverse(call, *sums_[i]);
      if (back[i] && call.from_call) add_to(index(*call.from_call), *back[i]);
    }
    return back;
  }

 private:
  struct Made {
    std::size_t communicator;
    std::optional<int> from_call;
    Call passed;
    Answer result;
  };

  static std::size_t index(int number) { return static_cast<std::size_t>(number); }

  std::size_t number_of(const std::vector<int>& group) {
    const auto known = std::ranges::find(communicators_, group,
                                         [](const auto& entry) { return entry.first; });
    if (known != communicators_.end()) return static_cast<std::size_t>(known - communicators_.begin());
    communicators_.emplace_back(group, world_.group(group));
    description_.communicators.push_back({group, {static_cast<std::int64_t>(group.size())}});
    return communicators_.size() - 1;
  }

  // Calls in the order in which they are taken back.
  std::vector<std::size_t> order() const {
    std::vector<std::size_t> order(calls_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    if (fault_ != WindowFault::forward_order) std::ranges::reverse(order);
    if (fault_ == WindowFault::own_losses_first) {
      std::ranges::stable_partition(order, [&](std::size_t i) { return sums_[i].has_value(); });
    }
    if (fault_ == WindowFault::world_first) {
      std::ranges::stable_partition(order,
                                    [&](std::size_t i) { return calls_[i].communicator == 0; });
    }
    return order;
  }

  std::vector<bool> agree(Upstreams upstream) {
    differentiation::Window window = description_;
    std::vector<int> numbers;  // of the calls, in the window
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      const Made& call = calls_[i];
      numbers.push_back(static_cast<int>(window.collectives.size()));
      if (takes_integers(call.passed.operation)) continue;
      differentiation::Frontier feeds_on;
      if (call.from_call && depends(call) && fault_ != WindowFault::only_direct) {
        feeds_on.push_back(numbers[index(*call.from_call)]);
      }
      window.collectives.push_back(
          {static_cast<int>(call.communicator), call.passed.operation, std::move(feeds_on)});
      if (!upstream[i]) continue;
      window.loss.insert(window.loss.begin(), numbers[i]);
      const FloatTensor result(call.result.value);
      if (const auto unlike = differentiation::find_unlike(result, *upstream[i])) {
        window.unlike.push_back(*unlike);
      }
    }
    const auto all = world_.tell_all(differentiation::encode(window));
    const auto either = differentiation::find_reached(all, world_.rank());
    if (const auto* breach = std::get_if<differentiation::WindowBreach>(&either)) {
      throw ContractError(breach->violation, std::nullopt, "backward", breach->explanation);
    }
    const std::vector<bool>& of_window = std::get<0>(either);
    std::vector<bool> reached;
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      reached.push_back(!takes_integers(calls_[i].passed.operation) && of_window[index(numbers[i])]);
    }
    return reached;
  }

  bool depends(const Made& call) const {
    return call.passed.operation != Operation::broadcast_float ||
           communicators_[call.communicator].second.rank() == call.passed.root;
  }

  FloatTensor without_gradient(const Made& call) const {
    FloatTensor x(call.result.value);
    if (fault_ != WindowFault::zero_times) return FloatTensor(zeros_like(x));
    Tensor product = copied(x);
    for (std::int64_t i = 0; i < x.elements(); ++i) set_number(product, i, 0 * number(x, i));
    return FloatTensor(product);
  }

  std::optional<FloatTensor> reverse(const Made& call, const FloatTensor& upstream) const {
    const Communicator& c = communicators_[call.communicator].second;
    switch (call.passed.operation) {
      case Operation::all_gather_float:
        return differentiation::reverse_all_gather(c, upstream);
      case Operation::reduce_scatter_sum:
        return differentiation::reverse_reduce_scatter(c, upstream);
      case Operation::all_reduce_sum:
        return differentiation::reverse_all_reduce(c, upstream);
      case Operation::broadcast_float: {
        auto back = differentiation::reverse_broadcast(c, upstream, call.passed.root);
        if (fault_ == WindowFault::flows_into_ignored && !back) return upstream;
        return back;
      }
      default:
        return differentiation::reverse_all_to_all_v(c, upstream, call.result.receive_counts);
    }
  }

  void add_to(std::size_t i, const FloatTensor& back) {
    std::optional<FloatTensor>& sum = sums_[i];
    if (fault_ == WindowFault::latest_use_only && sum) return;
    if (fault_ == WindowFault::earliest_use_only || !sum) {
      sum = back;
    } else {
      sum = differentiation::TensorOperations<FloatTensor>::add(*sum, back);
    }
  }

  const WindowFault fault_;
  Communicator world_;
  std::vector<std::pair<std::vector<int>, Communicator>> communicators_;
  differentiation::Window description_;  // its communicators
  std::vector<Made> calls_;
  std::vector<std::optional<FloatTensor>> sums_;  // per call, of what came back to its result
};

}  // namespace

std::unique_ptr<kit::SubjectWindow> faulty_window(WindowFault fault, const Communicator& world) {
  return std::make_unique<FaultyWindow>(fault, world);
}

}  // namespace lockstep::zoo
