// What a scope records, and the walk back over it. Programs use lockstep/differentiation/scope.hpp.
//
// A tape belongs to one rank. Its nodes are values in the order in which they were made: variables,
// results of local operations, and results of collectives. Constants have no node. The window
// beside it holds what other ranks need to know of the collectives (window.hpp).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include <lockstep/collective.hpp>
#include <lockstep/differentiation/gradient.hpp>
#include <lockstep/differentiation/host_integers.hpp>
#include <lockstep/differentiation/tensor_operations.hpp>
#include <lockstep/differentiation/window.hpp>
#include <lockstep/error.hpp>

namespace lockstep::differentiation {

inline constexpr int no_node = -1;  // of a constant

template <IntegerTensorCollective C>
class Tape {
 public:
  using T = typename C::float_tensor;
  using Operations = TensorOperations<T>;
  // The gradients with respect to the inputs of a local operation, in their order, of an upstream
  // gradient of its result.
  using PullBack = std::function<std::vector<T>(const T& upstream)>;
  // Enters the reverse of a collective. Nothing where the rank's input has no part in the result.
  using Reverse = std::function<std::optional<T>(const T& upstream)>;
  struct Seed {
    int node;
    T value;
    T upstream;
  };

  // Held while a thread uses the tape; a pull-back may use it within its thread's own backward.
  // Throws InvalidArgument where another thread is at it.
  class Use {
   public:
    explicit Use(Tape& tape) : user_(tape.user_) {
      std::thread::id user;
      owns_ = user_.compare_exchange_strong(user, std::this_thread::get_id());
      if (owns_ || user == std::this_thread::get_id()) return;
      throw InvalidArgument("two threads use one scope at once; a rank is in one call at a time");
    }
    ~Use() {
      if (owns_) user_.store(std::thread::id());
    }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    std::atomic<std::thread::id>& user_;
    bool owns_;
  };

  explicit Tape(C root) { add_communicator(std::move(root), {}, {}); }

  // --- Recording

  int add_variable(T value) { return add_node({std::move(value), {}, {}, {}, no_collective}); }

  int add_local(T value, std::vector<int> inputs, PullBack pull_back) {
    require_open();
    Frontier frontier;
    for (int input : inputs) frontier = frontiers_.join(frontier, frontier_of(input));
    return add_node({std::move(value), std::move(inputs), std::move(frontier), std::move(pull_back),
                     no_collective});
  }

  // `depends` is false where the result does not depend on what this rank passed.
  int add_collective(int communicator, Operation operation, T value, int input, bool depends,
                     Reverse reverse) {
    Frontier feeds_on = depends ? frontier_of(input) : Frontier();
    const auto number = static_cast<int>(window_.collectives.size());
    frontiers_.add(feeds_on);
    window_.collectives.push_back({communicator, operation, std::move(feeds_on)});
    reverses_.push_back(std::move(reverse));
    return add_node({std::move(value), {input}, {number}, {}, number});
  }

  // --- Communicators, by number; 0 is the scope's own

  C& communicator(int number) { return communicators_[static_cast<std::size_t>(number)]; }

  // `members` are ranks of communicator `parent`.
  int add_group(int parent, std::span<const int> members) {
    std::vector<int> list(members.begin(), members.end());
    const auto known = groups_.find({parent, list});
    if (known != groups_.end()) return known->second;  // the same list is the same communicator
    C made = communicator(parent).group(members);
    const Window::Communicator& from = window_.communicators[static_cast<std::size_t>(parent)];
    std::vector<std::int64_t> origin = from.origin;
    origin.push_back(static_cast<std::int64_t>(list.size()));
    std::vector<int> root_ranks;
    for (int member : list) {
      origin.push_back(member);
      root_ranks.push_back(parent == 0 ? member : from.members[static_cast<std::size_t>(member)]);
    }
    const int number = add_communicator(std::move(made), std::move(root_ranks), std::move(origin));
    groups_.emplace(std::pair(parent, std::move(list)), number);
    return number;
  }

  // Entered by every rank of communicator `parent`.
  int add_split(int parent, std::int64_t color, std::int64_t key) {
    C made = communicator(parent).split(color, key);
    const std::int64_t own_rank[] = {communicator(0).rank()};
    std::vector<int> root_ranks;
    for (const auto& rank : HostIntegers<C>::gather(made, own_rank)) {
      root_ranks.push_back(static_cast<int>(rank[0]));
    }
    std::vector<std::int64_t> origin =
        window_.communicators[static_cast<std::size_t>(parent)].origin;
    // No group has a negative number of members.
    origin.push_back(-1 - splits_[parent]++);
    return add_communicator(std::move(made), std::move(root_ranks), std::move(origin));
  }

  void require_open() const {
    if (!spent_) return;
    throw InvalidArgument(
        "this scope is spent: its backward has run. Record the next forward window in a new one");
  }

  // Which nodes are variables: neither computed nor received.
  std::vector<bool> variables() const {
    std::vector<bool> are;
    for (const Node& node : nodes_) {
      are.push_back(!node.pull_back && node.collective == no_collective);
    }
    return are;
  }

  // --- The reverse pass, entered by every rank of the scope's communicator

  // Entry n is the gradient with respect to node n where that is a variable; nothing where no loss
  // reaches it.
  std::vector<std::optional<T>> backward(const std::vector<Seed>& seeds) {
    require_open();
    const std::vector<bool> reached = agree(seeds);
    spent_ = true;
    gradients_.assign(nodes_.size(), std::nullopt);
    for (const Seed& seed : seeds) accumulate(seed.node, seed.upstream, "the upstream");
    // Inputs come before results on the tape, so a node's gradient is complete when its turn comes,
    // and collectives are entered in exactly the reverse order of the forward calls.
    while (!nodes_.empty()) {
      const Node node = std::move(nodes_.back());
      nodes_.pop_back();  // what it holds is given back on the way
      walk_back(node, gradients_[nodes_.size()], reached);
    }
    reverses_.clear();
    return std::move(gradients_);
  }

 private:
  static constexpr int no_collective = -1;

  struct Node {
    T value;
    std::vector<int> inputs;
    Frontier frontier;
    PullBack pull_back;  // of a local operation
    int collective;      // its number in the window, or no_collective
  };

  int add_node(Node node) {
    require_open();
    nodes_.push_back(std::move(node));
    return static_cast<int>(nodes_.size()) - 1;
  }

  Frontier frontier_of(int node) const {
    return node == no_node ? Frontier() : nodes_[static_cast<std::size_t>(node)].frontier;
  }

  int add_communicator(C made, std::vector<int> root_ranks, std::vector<std::int64_t> origin) {
    communicators_.push_back(std::move(made));
    window_.communicators.push_back({std::move(root_ranks), std::move(origin)});
    return static_cast<int>(communicators_.size()) - 1;
  }

  // Tells all ranks what this one recorded, and returns which of its collectives are reached by
  // anybody's loss. All ranks throw the same ContractError where windows or upstreams do not fit.
  std::vector<bool> agree(const std::vector<Seed>& seeds) {
    window_.loss.clear();
    window_.unlike.clear();
    for (const Seed& seed : seeds) {
      window_.loss = frontiers_.join(window_.loss, frontier_of(seed.node));
      if (const auto unlike = find_unlike(seed.value, seed.upstream)) {
        window_.unlike.push_back(*unlike);
      }
    }
    C& root = communicator(0);
    auto either = find_reached(HostIntegers<C>::gather(root, encode(window_)), root.rank());
    if (const auto* breach = std::get_if<WindowBreach>(&either)) {
      // As the functions for single gradients have it, where ranks ask for one of those.
      const bool mixed = breach->violation == Violation::operation;
      throw ContractError(breach->violation, std::nullopt,
                          (mixed ? "gradient on " : "backward on ") + name_of(root),
                          breach->explanation);
    }
    return std::get<0>(std::move(either));
  }

  void walk_back(const Node& node, std::optional<T>& gradient, const std::vector<bool>& reached) {
    if (node.collective != no_collective) {
      const auto number = static_cast<std::size_t>(node.collective);
      if (!reached[number]) return;  // on no member
      // True zeros where this rank has no gradient of a result that another one's loss reaches.
      const T upstream =
          gradient ? *std::exchange(gradient, std::nullopt) : Operations::zeros_like(node.value);
      if (auto back = reverses_[number](upstream)) {
        accumulate(node.inputs[0], *std::move(back), "the reverse of a collective");
      }
    } else if (node.pull_back && gradient) {
      const T upstream = *std::exchange(gradient, std::nullopt);
      std::vector<T> back = node.pull_back(upstream);
      if (back.size() != node.inputs.size()) {
        throw InvalidArgument("a pull-back gave " + std::to_string(back.size()) +
                              " gradients for " + std::to_string(node.inputs.size()) + " inputs");
      }
      for (std::size_t i = 0; i < back.size(); ++i) {
        accumulate(node.inputs[i], std::move(back[i]), "a pull-back");
      }
    }
  }

  void accumulate(int node, T gradient, const char* source) {
    if (node == no_node) return;
    const auto n = static_cast<std::size_t>(node);
    if (const auto unlike = find_unlike(nodes_[n].value, gradient)) {
      throw InvalidArgument(std::string(source) + " gave a gradient " +
                            to_string(unlike->upstream) + " for a value " +
                            to_string(unlike->value));
    }
    std::optional<T>& sum = gradients_[n];
    sum = sum ? Operations::add(*sum, gradient) : std::move(gradient);
  }

  std::vector<Node> nodes_;
  std::vector<Reverse> reverses_;  // per collective of the window
  Window window_;
  Frontiers frontiers_;
  std::vector<C> communicators_;
  std::map<std::pair<int, std::vector<int>>, int> groups_;
  std::map<int, std::int64_t> splits_;  // so many of each communicator
  std::vector<std::optional<T>> gradients_;
  bool spent_ = false;
  std::atomic<std::thread::id> user_{};  // the thread that is using it, if one is
};

}  // namespace lockstep::differentiation
