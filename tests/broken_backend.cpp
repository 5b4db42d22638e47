// Backends that are wrong on purpose, for the tests of the tool: the simulator, but for one fault.
// LOCKSTEP_FAULT chooses it:
//
//   own_part    reduce_scatter_sum leaves the rank's own addend out of its rows
//   hang        a call of all_gather_int never returns
//   dies        no world can be started
//   exits       all_reduce_sum ends the process as if all were well
//   crashes     all_reduce_sum aborts it
//   rank        the last rank is counted from 1
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include <lockstep/kit/backend.hpp>
#include <lockstep/sim/world.hpp>

namespace {

using lockstep::FloatTensor;
using lockstep::IntTensor;

std::string fault() {
  const char* chosen = std::getenv("LOCKSTEP_FAULT");
  return chosen == nullptr ? "" : chosen;
}

class FaultyCommunicator {
 public:
  using float_tensor = FloatTensor;
  using int_tensor = IntTensor;

  explicit FaultyCommunicator(lockstep::sim::Communicator right) : right_(std::move(right)) {}

  int world_size() const { return right_.world_size(); }
  int rank() const { return right_.rank(); }
  std::nullptr_t autodiff_context() const { return nullptr; }

  FloatTensor all_gather_float(const FloatTensor& x) const { return right_.all_gather_float(x); }
  IntTensor all_gather_int(const IntTensor& x) const {
    while (fault() == "hang") std::this_thread::sleep_for(std::chrono::seconds(1));
    return right_.all_gather_int(x);
  }
  FloatTensor reduce_scatter_sum(const FloatTensor& x) const {
    if (fault() != "own_part" || x.shape().empty() || x.rows() % world_size() != 0) {
      return right_.reduce_scatter_sum(x);
    }
    FloatTensor without = x;
    const auto own = without.mutable_bytes().subspan(
        static_cast<std::size_t>(x.size_bytes() / world_size() * rank()),
        static_cast<std::size_t>(x.size_bytes() / world_size()));
    std::fill(own.begin(), own.end(), std::byte{0});
    return right_.reduce_scatter_sum(without);
  }
  FloatTensor all_reduce_sum(const FloatTensor& x) const {
    // By one rank only: exit() is not to be called twice at a time.
    if (fault() == "exits" && rank() == 0) std::exit(0);
    if (fault() == "crashes" && rank() == 0) std::abort();
    return right_.all_reduce_sum(x);
  }
  FloatTensor broadcast_float(const FloatTensor& x, std::int64_t root) const {
    return right_.broadcast_float(x, root);
  }
  lockstep::VariableTensorExchange<FloatTensor> all_to_all_v_float(
      const FloatTensor& x, std::span<const std::int64_t> counts) const {
    return right_.all_to_all_v_float(x, counts);
  }
  lockstep::VariableTensorExchange<IntTensor> all_to_all_v_int(
      const IntTensor& x, std::span<const std::int64_t> counts) const {
    return right_.all_to_all_v_int(x, counts);
  }
  friend std::ostream& operator<<(std::ostream& out, const FaultyCommunicator& c) {
    return out << c.right_;
  }

 private:
  lockstep::sim::Communicator right_;
};

class BrokenBackend final : public lockstep::kit::ThreadBackend {
 public:
  lockstep::kit::BackendInfo info() const override {
    lockstep::kit::BackendInfo info;
    info.name = "broken";
    info.description = "wrong on purpose";
    info.offers_groups = false;
    info.most_ranks = 6;
    if (fault() == "unavailable") info.unavailable = "this test says so";
    return info;
  }

  void launch(int ranks, const RankBody& body) override {
    if (fault() == "dies") throw lockstep::kit::BackendBroken("rank 1 died of a test");
    lockstep::sim::World(ranks).run([&](lockstep::sim::Communicator right) {
      int rank = right.rank();
      if (fault() == "rank" && rank == ranks - 1) rank = ranks;
      lockstep::kit::SubjectOf<FaultyCommunicator> subject{FaultyCommunicator(std::move(right))};
      body(rank, subject);
    });
  }
};

}  // namespace

LOCKSTEP_BACKEND(BrokenBackend);
