// Four ranks on threads: average a vector, then send everybody a row.
#include <iostream>
#include <vector>

#include <lockstep/sim/world.hpp>

int main() {
  using lockstep::FloatTensor, lockstep::sim::Communicator;
  lockstep::sim::World world(4);

  auto results = world.run([](Communicator ranks) {
    const float r = static_cast<float>(ranks.rank());
    const auto x = FloatTensor::of<float>({4, 2}, {r, 1, r, 2, r, 3, r, 4});
    const FloatTensor sum = ranks.all_reduce_sum(x);  // the same bits on every rank
    const std::vector<std::int64_t> one_row_each = {1, 1, 1, 1};
    return ranks.all_to_all_v_float(sum, one_row_each).value;
  });

  for (const FloatTensor& result : results) std::cout << result << '\n';
}
