// A backend to verify. Put your own world and communicator in place of the simulator's.
#include <lockstep/kit/backend.hpp>
#include <lockstep/sim/world.hpp>

namespace mine = lockstep::sim;

class MyBackend : public lockstep::kit::ThreadBackend {
  lockstep::kit::BackendInfo info() const override {
    return {.name = "mine", .sum_rule = lockstep::SumRule::rank_order};
  }

  // Starts a world of so many ranks, each on a thread, and hands each rank's communicator over.
  void launch(int ranks, const RankBody& body) override {
    mine::World world(ranks, {.sum_rule = lockstep::SumRule::rank_order});
    world.run([&](mine::Communicator communicator) {
      lockstep::kit::SubjectOf<mine::Communicator> subject(communicator);
      body(communicator.rank(), subject);
    });
  }
};
LOCKSTEP_BACKEND(MyBackend);
