// A mixture of eight experts, y = relu(x W_e) for a token routed to expert e. Tokens are spread
// over the ranks, the last of which may have none; so are the experts, and half of them are sent
// nothing. Every rank sorts its tokens by expert, exchanges them, computes what it received, and
// exchanges the results back by the receive counts.
//
// Every rank's loss is over its own tokens. All data are small multiples of 1/16, so every sum is
// exact and the sharded run must give the very bits of the unsharded one.
#include <algorithm>
#include <numeric>

#include "layers.hpp"
#include "ranks.hpp"

namespace {

using lockstep::IntTensor;
using lockstep::differentiation::Scope;
constexpr std::int64_t experts = 8, tokens = 20, width = 4;
constexpr int steps = 4;

// Experts 0, 3, 4 and 7 are idle.
std::int64_t expert_of(std::int64_t token) {
  constexpr std::int64_t busy[] = {1, 2, 5, 6};
  return busy[(token * token + token / 3) % 4];
}
std::int64_t owner_of(std::int64_t expert, std::int64_t ranks) {
  return expert * ranks / experts;
}

// Every row times the weights of its expert; an expert is a block of `width` rows of `weights`. The
// gradient of an expert without rows is zero.
template <class S>
Value apply_experts(const S& scope, const Value& rows_of, const Value& weights,
                    const std::vector<std::int64_t>& expert) {
  const Matrix x(rows_of.value());
  const Matrix w(weights.value());
  const auto product = [=](std::int64_t i, std::int64_t j) {
    double sum = 0;
    for (std::int64_t k = 0; k < width; ++k) {
      sum += x.at(i, k) * w.at(expert[static_cast<std::size_t>(i)] * width + k, j);
    }
    return sum;
  };
  const auto pull_back = [=](const lockstep::FloatTensor& upstream) {
    const Matrix dy(upstream);
    Matrix dx(x.rows, width);
    Matrix dw(w.rows, width);
    for (std::int64_t i = 0; i < x.rows; ++i) {
      const std::int64_t block = expert[static_cast<std::size_t>(i)] * width;
      for (std::int64_t j = 0; j < width; ++j) {
        for (std::int64_t k = 0; k < width; ++k) {
          dx.at(i, k) += dy.at(i, j) * w.at(block + k, j);
          dw.at(block + k, j) += dy.at(i, j) * x.at(i, k);
        }
      }
    }
    return std::vector{dx.tensor(), dw.tensor()};
  };
  return scope.local(matrix(x.rows, width, product).tensor(), {rows_of, weights}, pull_back);
}

template <class C>
bool train(C bare) {
  const std::int64_t ranks = bare.world_size();
  const std::int64_t each = (tokens + ranks - 1) / ranks;
  const std::int64_t begin = std::min(tokens, each * bare.rank());
  const std::int64_t end = std::min(tokens, begin + each);
  std::int64_t first_expert = 0;
  while (first_expert < experts && owner_of(first_expert, ranks) < bare.rank()) ++first_expert;
  std::int64_t end_expert = first_expert;
  while (end_expert < experts && owner_of(end_expert, ranks) == bare.rank()) ++end_expert;

  const Matrix x = matrix(tokens, width, [](auto i, auto j) { return small_number(i, j, 1); });
  const Matrix target = matrix(tokens, width, [](auto i, auto j) { return small_number(i, j, 2); });
  Matrix w = matrix(experts * width, width, [](auto i, auto j) { return small_number(i, j, 3); });
  Matrix my_w = rows(w, first_expert * width, end_expert * width);
  bool same = true;

  // This rank's tokens in the order of their experts, which is the order of the owners too.
  std::vector<std::int64_t> order(static_cast<std::size_t>(end - begin));
  std::iota(order.begin(), order.end(), begin);
  std::ranges::stable_sort(order, {}, expert_of);
  const auto sorted = [&](const Matrix& all) {
    return matrix(end - begin, width,
                  [&](auto i, auto j) { return all.at(order[static_cast<std::size_t>(i)], j); });
  };
  std::vector<std::int64_t> send_counts(static_cast<std::size_t>(ranks), 0);
  std::vector<std::int64_t> wanted;
  for (std::int64_t token : order) {
    ++send_counts[static_cast<std::size_t>(owner_of(expert_of(token), ranks))];
    wanted.push_back(expert_of(token));
  }

  for (int s = 0; s < steps; ++s) {
    // Sharded.
    const Scope scope(bare);
    const auto c = scope.communicator();
    const Value my_x = scope.variable(sorted(x).tensor());
    const Value v = scope.variable(my_w.tensor());
    const auto there = c.all_to_all_v_float(my_x, send_counts);
    const IntTensor for_experts =
        c.all_to_all_v_int(IntTensor::of<std::int64_t>({end - begin}, wanted), send_counts).value;
    std::vector<std::int64_t> expert;
    for (std::int64_t e : for_experts.values<std::int64_t>()) expert.push_back(e - first_expert);
    const Value computed = relu(scope, apply_experts(scope, there.value, v, expert));
    const Value y = c.all_to_all_v_float(computed, there.receive_counts).value;
    const Value loss = half_squared_error(scope, y, sorted(target));
    const auto gradients = scope.backward({{loss, one()}});
    const lockstep::FloatTensor total = bare.all_reduce_sum(loss.value());

    // The same on one rank.
    const Scope whole(bare.group({bare.rank()}));
    const Value whole_x = whole.variable(x.tensor());
    const Value u = whole.variable(w.tensor());
    std::vector<std::int64_t> routes;
    for (std::int64_t token = 0; token < tokens; ++token) routes.push_back(expert_of(token));
    const Value whole_y = relu(whole, apply_experts(whole, whole_x, u, routes));
    const Value whole_loss = half_squared_error(whole, whole_y, target);
    const auto whole_gradients = whole.backward({{whole_loss, one()}});

    const Matrix du(whole_gradients.of(u));
    const bool rank_same =
        same_bits(total, whole_loss.value()) &&
        same_bits(gradients.of(v), rows(du, first_expert * width, end_expert * width).tensor()) &&
        same_bits(gradients.of(my_x), sorted(Matrix(whole_gradients.of(whole_x))).tensor());
    const bool step_same = everybody(bare, rank_same);
    same = same && step_same;
    if (bare.rank() == 0) {
      std::cout << "step " << s << ": loss " << Matrix(total).at(0, 0) << ", unsharded "
                << Matrix(whole_loss.value()).at(0, 0) << "; loss, dW and dx "
                << (step_same ? "bit for bit equal\n" : "DIFFER\n");
    }
    step(my_w, gradients.of(v));
    step(w, whole_gradients.of(u));
  }
  return same;
}

}  // namespace

int main(int argc, char** argv) {
  return run_example(argc, argv, [](auto communicator) { return train(communicator); });
}
