// A two-layer network, y = tanh(x W1) W2, trained with all parameters sharded: every rank holds
// some rows of W1 and W2 and some samples. The parameters are gathered for each step; the gradients
// come back summed and scattered, as the gradient of the gather.
//
// The data are of any length here, so sums are rounded. What one sample contributes is computed
// alike in the sharded and in the unsharded run, to the bit; only the sum over the samples is split
// among the ranks. Both sums of n terms are, in whatever order they are taken, within (n - 1) u
// sum|terms| of the exact one (Jeannerod and Rump, 2013; u = 2^-53), so they are within twice that
// of each other. That is what every loss and every gradient is held to.
#include <cmath>
#include <random>

#include "layers.hpp"
#include "ranks.hpp"

namespace {

using lockstep::FloatTensor;
using lockstep::differentiation::Scope;
constexpr std::int64_t samples = 48, inputs = 24, hidden = 24, outputs = 2;
constexpr int steps = 5;
constexpr double rate = 0.01;

Matrix random_matrix(std::int64_t rows, std::int64_t columns, unsigned seed, double scale) {
  std::mt19937 random(seed);
  return matrix(rows, columns, [&](auto, auto) {
    return scale * (static_cast<double>(random()) / 2147483648.0 - 1);
  });
}

// Is every element of `sharded` within the bound of `whole`? They are sums of n terms, `magnitudes`
// the sums of the absolute values.
bool within_bound(double n, const Matrix& sharded, const Matrix& whole, const Matrix& magnitudes,
                  double& largest) {
  bool within = true;
  for (std::size_t i = 0; i < whole.values.size(); ++i) {
    // Twice the bound; the last factor covers what was lost in computing the magnitude and this.
    const double bound = 2 * (n - 1) * 0x1p-53 * magnitudes.values[i] * (1 + n * 0x1p-51);
    const double distance = std::fabs(sharded.values[i] - whole.values[i]);
    within = within && distance <= bound;
    if (bound > 0) largest = std::max(largest, distance / bound);
  }
  return within;
}

// The unsharded network, sample after sample: the loss and the gradients, and for each the sum of
// the absolute values of what the samples contribute.
struct Unsharded {
  Unsharded(const Matrix& x, const Matrix& target, const Matrix& w1, const Matrix& w2) {
    const Matrix z = times(x, w1);
    const Matrix h = matrix(samples, hidden, [&](auto i, auto j) { return std::tanh(z.at(i, j)); });
    const Matrix y = times(h, w2);
    const auto error = [&](auto i, auto j) { return y.at(i, j) - target.at(i, j); };
    const Matrix dy = matrix(samples, outputs, error);
    const Matrix dh = times(dy, transpose(w2));
    const auto add = [](Matrix& sum, Matrix& magnitude, auto i, auto j, double term) {
      sum.at(i, j) += term;
      magnitude.at(i, j) += std::fabs(term);
    };
    for (std::int64_t n = 0; n < samples; ++n) {
      for (std::int64_t o = 0; o < outputs; ++o) {
        add(loss, loss_magnitude, 0, 0, dy.at(n, o) * dy.at(n, o) / 2);
      }
      for (std::int64_t k = 0; k < hidden; ++k) {
        for (std::int64_t o = 0; o < outputs; ++o) {
          add(d2, d2_magnitude, k, o, h.at(n, k) * dy.at(n, o));
        }
        const double dz = dh.at(n, k) * (1 - h.at(n, k) * h.at(n, k));
        for (std::int64_t i = 0; i < inputs; ++i) add(d1, d1_magnitude, i, k, x.at(n, i) * dz);
      }
    }
  }
  Matrix loss{1, 1}, loss_magnitude{1, 1};
  Matrix d1{inputs, hidden}, d1_magnitude{inputs, hidden};
  Matrix d2{hidden, outputs}, d2_magnitude{hidden, outputs};
};

template <class C>
bool train(C bare) {
  const std::int64_t ranks = bare.world_size();
  if (inputs % ranks != 0) throw lockstep::InvalidArgument("the ranks must divide 24");
  const auto shard = [&](const Matrix& whole) {
    const std::int64_t each = whole.rows / ranks;
    return rows(whole, each * bare.rank(), each * (bare.rank() + 1));
  };
  const Matrix x = random_matrix(samples, inputs, 1, 1);
  const Matrix target = random_matrix(samples, outputs, 2, 1);
  Matrix my_w1 = shard(random_matrix(inputs, hidden, 3, 0.2));
  Matrix my_w2 = shard(random_matrix(hidden, outputs, 4, 0.2));
  bool all_within = true;

  for (int s = 0; s < steps; ++s) {
    const Scope scope(bare);
    const auto c = scope.communicator();
    const Value v1 = scope.variable(my_w1.tensor());
    const Value v2 = scope.variable(my_w2.tensor());
    const Value w1 = c.all_gather_float(v1);
    const Value w2 = c.all_gather_float(v2);
    const Value h = elementwise(
        scope, matmul(scope, shard(x).tensor(), w1), [](double z) { return std::tanh(z); },
        [](double z) { return 1 - std::tanh(z) * std::tanh(z); });
    const Value loss = half_squared_error(scope, matmul(scope, h, w2), shard(target));
    const auto gradients = scope.backward({{loss, one()}});
    const Matrix total(bare.all_reduce_sum(loss.value()));
    const Matrix d1(gradients.of(v1));
    const Matrix d2(gradients.of(v2));

    // The same on one rank, with the parameters as they are now.
    const Unsharded whole(x, target, Matrix(w1.value()), Matrix(w2.value()));
    double largest = 0;
    bool rank_within =
        within_bound(samples * outputs, total, whole.loss, whole.loss_magnitude, largest);
    rank_within &= within_bound(samples, d1, shard(whole.d1), shard(whole.d1_magnitude), largest);
    rank_within &= within_bound(samples, d2, shard(whole.d2), shard(whole.d2_magnitude), largest);
    const bool within = everybody(bare, rank_within);
    all_within = all_within && within;
    if (bare.rank() == 0) {
      std::cout << "step " << s << ": loss " << total.at(0, 0) << ", unsharded "
                << whole.loss.at(0, 0)
                << "; the largest difference of rank 0's loss, dW1 and dW2 is " << largest
                << " of its bound" << (within ? "\n" : ": TOO LARGE\n");
    }
    for (std::size_t i = 0; i < my_w1.values.size(); ++i) my_w1.values[i] -= rate * d1.values[i];
    for (std::size_t i = 0; i < my_w2.values.size(); ++i) my_w2.values[i] -= rate * d2.values[i];
  }
  return all_within;
}

}  // namespace

int main(int argc, char** argv) {
  return run_example(argc, argv, [](auto communicator) { return train(communicator); });
}
