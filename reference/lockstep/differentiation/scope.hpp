// Reverse-mode differentiation of one forward window: what every rank computes between two updates
// of its parameters.
//
//   Scope scope(communicator);               // on every rank
//   auto ranks = scope.communicator();       // records; satisfies the same concepts
//   auto x = scope.variable(my_rows);
//   auto sum = ranks.all_reduce_sum(x);
//   auto gradients = scope.backward({{sum, upstream}});
//   gradients.of(x)
//
// What is differentiated is the sum of all ranks' losses. A rank that has the gradient of its own
// loss with respect to some values passes it to `backward` (as seeds); one without a loss passes
// none, and still enters.
//
// Every collective runs at once and is recorded. `backward` is entered by every rank of the scope's
// communicator. It first agrees, in one small collective, on which recorded collectives anybody's
// loss reaches. Those are entered by all their members, in exactly the reverse of the forward
// order, with +0.0 in every element where a member has no gradient; those that nobody reaches are
// skipped by everybody. So ranks may use different results without waiting for each other for ever.
//
// Errors, on every rank alike and before any gradient moves:
//   ContractError `gradient`     a seed whose dtype or shape is unlike its value's
//   ContractError `window`       members of a communicator recorded different collectives on it
//   InvalidArgument              a second backward, or recording after it
// After a ContractError the window is still open.
//
// A scope is one rank's own. Any thread may use it, but one at a time (InvalidArgument when two do
// at once). It holds on to its values until backward has run, and to its communicators until the
// last handle is gone: a Scope, or a communicator that records on it. Tracked values are no handles,
// so that a pull-back may hold some.
#pragma once

#include <memory>
#include <optional>
#include <ostream>
#include <span>
#include <utility>
#include <vector>

#include <lockstep/collective.hpp>
#include <lockstep/differentiation/tape.hpp>

namespace lockstep::differentiation {

template <class T>
struct Seed;
template <class T>
class Gradients;
template <IntegerTensorCollective C>
class Scope;
template <IntegerTensorCollective C>
class Differentiable;

namespace detail {

// Are both made from one shared_ptr, whether or not its object is still there?
inline bool same_owner(const std::weak_ptr<const void>& a, const std::weak_ptr<const void>& b) {
  return !a.owner_before(b) && !b.owner_before(a);
}

}  // namespace detail

// A tensor and its place on a tape; a constant where it has none. A T becomes a constant by itself.
template <class T>
class Tracked {
 public:
  Tracked(T constant) : value_(std::move(constant)) {}

  const T& value() const { return value_; }
  bool is_constant() const { return node_ == no_node; }

 private:
  template <IntegerTensorCollective C>
  friend class Scope;
  friend class Gradients<T>;

  Tracked(T value, std::weak_ptr<const void> tape, int node)
      : value_(std::move(value)), tape_(std::move(tape)), node_(node) {}

  T value_;
  std::weak_ptr<const void> tape_;
  int node_ = no_node;
};

// The gradient of this rank's loss with respect to one value.
template <class T>
struct Seed {
  Tracked<T> value;
  T upstream;
};

// What backward returns: the gradients with respect to this rank's variables.
template <class T>
class Gradients {
 public:
  // Of a variable of the scope (else InvalidArgument). True zeros where no loss reaches it: that is
  // its gradient, and of the same type on ranks that are reached and ranks that are not.
  T of(const Tracked<T>& variable) const {
    const std::optional<T>& gradient = entry(variable);
    return gradient ? *gradient : TensorOperations<T>::zeros_like(variable.value());
  }
  // Does any rank's loss reach the variable, through whatever collectives?
  bool reach(const Tracked<T>& variable) const { return entry(variable).has_value(); }

 private:
  template <IntegerTensorCollective C>
  friend class Scope;
  Gradients(std::weak_ptr<const void> tape, std::vector<bool> variables,
            std::vector<std::optional<T>> by_node)
      : tape_(std::move(tape)), variables_(std::move(variables)), by_node_(std::move(by_node)) {}

  const std::optional<T>& entry(const Tracked<T>& variable) const {
    const auto node = static_cast<std::size_t>(variable.node_);
    if (variable.is_constant() || !detail::same_owner(variable.tape_, tape_) ||
        !variables_[node]) {
      throw InvalidArgument("gradients are those of the scope's own variables");
    }
    return by_node_[node];
  }

  std::weak_ptr<const void> tape_;
  std::vector<bool> variables_;  // which nodes are
  std::vector<std::optional<T>> by_node_;
};

// A handle; copies are the same scope. `C` is a bare communicator.
template <IntegerTensorCollective C>
class Scope {
 public:
  using T = typename C::float_tensor;
  using PullBack = typename Tape<C>::PullBack;

  explicit Scope(C communicator) : tape_(std::make_shared<Tape<C>>(std::move(communicator))) {}

  // A scope is always there; false is what bare communicators answer.
  explicit operator bool() const { return true; }

  // The scope's communicator, recording.
  Differentiable<C> communicator() const { return Differentiable<C>(*this, 0); }

  // A value to differentiate with respect to.
  Tracked<T> variable(T value) const {
    const typename Tape<C>::Use use(*tape_);
    return track(value, tape_->add_variable(value));
  }

  // The result of an operation of this rank alone: its value, its inputs, and how an upstream
  // gradient of the value becomes one gradient per input, each of that input's dtype and shape
  // (else InvalidArgument in backward). The pull-back runs at most once, and enters no collective.
  Tracked<T> local(T value, const std::vector<Tracked<T>>& inputs, PullBack pull_back) const {
    const typename Tape<C>::Use use(*tape_);
    if (!pull_back) throw InvalidArgument("a local operation needs a pull-back");
    std::vector<int> nodes;
    bool constant = true;
    for (const Tracked<T>& input : inputs) {
      nodes.push_back(node_of(input));
      constant = constant && input.is_constant();
    }
    if (constant) return value;
    return track(value, tape_->add_local(value, std::move(nodes), std::move(pull_back)));
  }

  // Entered by every rank of the scope's communicator. See above.
  Gradients<T> backward(const std::vector<Seed<T>>& seeds) const {
    const typename Tape<C>::Use use(*tape_);
    std::vector<typename Tape<C>::Seed> list;
    for (const Seed<T>& seed : seeds) {
      list.push_back({node_of(seed.value), seed.value.value(), seed.upstream});
    }
    std::vector<bool> variables = tape_->variables();
    return Gradients<T>(tape_, std::move(variables), tape_->backward(list));
  }

 private:
  friend class Differentiable<C>;

  Tracked<T> track(T value, int node) const { return {std::move(value), tape_, node}; }
  int node_of(const Tracked<T>& x) const {
    if (!x.is_constant() && !detail::same_owner(x.tape_, tape_)) {
      throw InvalidArgument("a tracked value of another scope");
    }
    return x.node_;
  }

  std::shared_ptr<Tape<C>> tape_;
};

// A communicator that records on a scope. It offers of the five concepts what C offers, on tracked
// tensors; integers are not tracked, since their collectives have no derivative.
template <IntegerTensorCollective C>
class Differentiable {
 public:
  using T = typename C::float_tensor;
  using float_tensor = Tracked<T>;
  using int_tensor = typename C::int_tensor;

  int world_size() const { return bare().world_size(); }
  int rank() const { return bare().rank(); }
  std::string name() const { return name_of(bare()); }
  Scope<C> autodiff_context() const { return scope_; }

  Tracked<T> all_gather_float(const Tracked<T>& x) const {
    const Recording recording(*this, x);
    return record(
        Operation::all_gather_float, recording, bare().all_gather_float(x.value()), true,
        [c = bare()](const T& upstream) { return reverse_all_gather(c, upstream); });
  }
  Tracked<T> reduce_scatter_sum(const Tracked<T>& x) const {
    const Recording recording(*this, x);
    return record(
        Operation::reduce_scatter_sum, recording, bare().reduce_scatter_sum(x.value()), true,
        [c = bare()](const T& upstream) { return reverse_reduce_scatter(c, upstream); });
  }
  Tracked<T> all_reduce_sum(const Tracked<T>& x) const {
    const Recording recording(*this, x);
    return record(Operation::all_reduce_sum, recording, bare().all_reduce_sum(x.value()), true,
                  [c = bare()](const T& upstream) { return reverse_all_reduce(c, upstream); });
  }
  Tracked<T> broadcast_float(const Tracked<T>& x, std::int64_t root) const {
    const Recording recording(*this, x);
    return record(
        Operation::broadcast_float, recording, bare().broadcast_float(x.value(), root),
        rank() == root,
        [c = bare(), root](const T& upstream) { return reverse_broadcast(c, upstream, root); });
  }
  int_tensor all_gather_int(const int_tensor& x) const {
    const Recording recording(*this);
    return bare().all_gather_int(x);
  }
  VariableTensorExchange<Tracked<T>> all_to_all_v_float(
      const Tracked<T>& x,
      std::span<const std::int64_t> send_counts) const requires VariableTensorCollective<C> {
    const Recording recording(*this, x);
    auto exchange = bare().all_to_all_v_float(x.value(), send_counts);
    auto value = record(Operation::all_to_all_v_float, recording, std::move(exchange.value), true,
                        [c = bare(), counts = exchange.receive_counts](const T& upstream) {
                          return reverse_all_to_all_v(c, upstream, counts);
                        });
    return {std::move(value), std::move(exchange.receive_counts)};
  }
  VariableTensorExchange<int_tensor> all_to_all_v_int(
      const int_tensor& x,
      std::span<const std::int64_t> send_counts) const requires VariableTensorCollective<C> {
    const Recording recording(*this);
    return bare().all_to_all_v_int(x, send_counts);
  }

  // Sub-communicators that record on the same scope, as those of C are made.
  Differentiable group(std::span<const int> ranks) const requires requires(C c) { c.group(ranks); }
  {
    const Recording recording(*this);
    return Differentiable(scope_, scope_.tape_->add_group(number_, ranks));
  }
  Differentiable group(std::initializer_list<int> ranks) const requires
      requires(C c, std::span<const int> list) {
    c.group(list);
  }
  { return group(std::span<const int>(ranks.begin(), ranks.size())); }
  // Entered by every rank of this communicator.
  Differentiable split(std::int64_t color, std::int64_t key) const requires requires(C c) {
    c.split(color, key);
  }
  {
    const Recording recording(*this);
    return Differentiable(scope_, scope_.tape_->add_split(number_, color, key));
  }

  friend std::ostream& operator<<(std::ostream& out, const Differentiable& c) {
    return out << c.bare() << ", differentiable";
  }

 private:
  friend class Scope<C>;
  Differentiable(Scope<C> scope, int number) : scope_(std::move(scope)), number_(number) {}

  C& bare() const { return scope_.tape_->communicator(number_); }

  // The scope in use for one call. All that can be wrong on this rank alone is found before the call
  // is entered.
  struct Recording {
    explicit Recording(const Differentiable& c) : use(*c.scope_.tape_) {
      c.scope_.tape_->require_open();
    }
    Recording(const Differentiable& c, const Tracked<T>& x) : Recording(c) {
      input = c.scope_.node_of(x);
    }

    typename Tape<C>::Use use;
    int input = no_node;
  };

  Tracked<T> record(Operation operation, const Recording& recording, T value, bool depends,
                    typename Tape<C>::Reverse reverse) const {
    const int node = scope_.tape_->add_collective(number_, operation, value, recording.input,
                                                  depends, std::move(reverse));
    return scope_.track(std::move(value), node);
  }

  Scope<C> scope_;
  int number_;  // on the tape
};

}  // namespace lockstep::differentiation
