// A two-layer network, y = relu(x W1) W2, with its hidden layer sharded: every rank holds some
// columns of W1 and the same rows of W2, computes its part of the hidden layer from all of x, and
// an all-reduce adds up the parts of y.
//
// Only rank 0 has a loss. Its gradient reaches everybody through the all-reduce, and comes back to
// x, which rank 0 broadcast. All data are small multiples of 1/16, so every sum is exact and the
// sharded run must give the very bits of the unsharded one.
#include "layers.hpp"
#include "ranks.hpp"

namespace {

using lockstep::differentiation::Scope;
constexpr std::int64_t batch = 5, inputs = 4, hidden = 24, outputs = 3;
constexpr int steps = 4;

template <class C>
bool train(C bare) {
  const std::int64_t ranks = bare.world_size();
  if (hidden % ranks != 0) throw lockstep::InvalidArgument("the ranks must divide 24");
  const std::int64_t begin = hidden / ranks * bare.rank();
  const std::int64_t end = begin + hidden / ranks;

  const Matrix x = matrix(batch, inputs, [](auto i, auto j) { return small_number(i, j, 1); });
  const Matrix target =
      matrix(batch, outputs, [](auto i, auto j) { return small_number(i, j, 2); });
  Matrix w1 = matrix(inputs, hidden, [](auto i, auto j) { return small_number(i, j, 3); });
  Matrix w2 = matrix(hidden, outputs, [](auto i, auto j) { return small_number(i, j, 4); });
  Matrix my_w1 = columns(w1, begin, end);
  Matrix my_w2 = rows(w2, begin, end);
  bool same = true;

  for (int s = 0; s < steps; ++s) {
    // Sharded.
    const Scope scope(bare);
    const auto c = scope.communicator();
    const Value my_x = scope.variable((bare.rank() == 0 ? x : Matrix(batch, inputs)).tensor());
    const Value v1 = scope.variable(my_w1.tensor());
    const Value v2 = scope.variable(my_w2.tensor());
    const Value h = relu(scope, matmul(scope, c.broadcast_float(my_x, 0), v1));
    const Value y = c.all_reduce_sum(matmul(scope, h, v2));
    const Value loss = half_squared_error(scope, y, target);
    std::vector<lockstep::differentiation::Seed<lockstep::FloatTensor>> seeds;
    if (bare.rank() == 0) seeds.push_back({loss, one()});
    const auto gradients = scope.backward(seeds);

    // The same on one rank.
    const Scope whole(bare.group({bare.rank()}));
    const Value whole_x = whole.variable(x.tensor());
    const Value u1 = whole.variable(w1.tensor());
    const Value u2 = whole.variable(w2.tensor());
    const Value whole_h = relu(whole, matmul(whole, whole_x, u1));
    const Value whole_loss = half_squared_error(whole, matmul(whole, whole_h, u2), target);
    const auto whole_gradients = whole.backward({{whole_loss, one()}});

    const Matrix d1(whole_gradients.of(u1));
    const Matrix d2(whole_gradients.of(u2));
    const lockstep::FloatTensor dx =
        bare.rank() == 0 ? whole_gradients.of(whole_x) : Matrix(batch, inputs).tensor();
    const bool rank_same = same_bits(loss.value(), whole_loss.value()) &&
                           same_bits(gradients.of(v1), columns(d1, begin, end).tensor()) &&
                           same_bits(gradients.of(v2), rows(d2, begin, end).tensor()) &&
                           same_bits(gradients.of(my_x), dx);
    const bool step_same = everybody(bare, rank_same);
    same = same && step_same;
    if (bare.rank() == 0) {
      std::cout << "step " << s << ": loss " << Matrix(loss.value()).at(0, 0) << ", unsharded "
                << Matrix(whole_loss.value()).at(0, 0) << "; loss, dW1, dW2 and dx "
                << (step_same ? "bit for bit equal\n" : "DIFFER\n");
    }
    step(my_w1, gradients.of(v1));
    step(my_w2, gradients.of(v2));
    step(w1, whole_gradients.of(u1));
    step(w2, whole_gradients.of(u2));
  }
  return same;
}

}  // namespace

int main(int argc, char** argv) {
  return run_example(argc, argv, [](auto communicator) { return train(communicator); });
}
