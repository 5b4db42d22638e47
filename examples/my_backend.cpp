// A backend to verify: sums by gathering and adding up in rank order, the rest from the simulator.
#include <lockstep/kit/backend.hpp>
#include <lockstep/oracle.hpp>
#include <lockstep/sim/world.hpp>

using namespace lockstep;

struct MyCommunicator : sim::Communicator {
  explicit MyCommunicator(sim::Communicator base) : sim::Communicator(std::move(base)) {}

  FloatTensor all_reduce_sum(const FloatTensor& x) const {
    Shape row = x.shape();
    if (row.empty()) row = Shape{1};  // a tensor without axes has no rows to gather
    const FloatTensor all = all_gather_float(x.reshape(row));
    std::vector<FloatTensor> addends;
    for (int r = 0; r < world_size(); ++r) {
      addends.push_back(all.slice_rows(r * row[0], (r + 1) * row[0]).reshape(x.shape()));
    }
    return reference::all_reduce_sum(addends, SumRule::rank_order).results()[0];
  }
};

class MyBackend : public kit::ThreadBackend {
  kit::BackendInfo info() const override {
    return {.name = "mine", .sum_rule = SumRule::rank_order, .offers_groups = false};
  }
  void launch(int ranks, const RankBody& body) override {
    sim::World world(ranks, {.sum_rule = SumRule::rank_order});
    world.run([&](sim::Communicator c) {
      kit::SubjectOf<MyCommunicator> subject{MyCommunicator(c)};
      body(c.rank(), subject);
    });
  }
};
LOCKSTEP_BACKEND(MyBackend);
