// The workload of `lockstep bench` on MPI itself:
//
//   mpirun --oversubscribe -np 8 bench/open-mpi --bytes 64,16Mi
//
// MPI's own settings are left as they are. (With more processes than slots Open MPI's mpirun makes
// waiting processes yield their core, the setting mpi_yield_when_idle.)
#include <vector>

#include <lockstep/error.hpp>
#include <lockstep/mpi/c_api.hpp>

#include "peer.hpp"

namespace lockstep::bench {
namespace {

void require(int code, const char* call) {
  if (code != MPI_SUCCESS) throw Error(std::string(call) + " failed");
}

int count(std::size_t elements) {
  if (elements > INT32_MAX) throw Error("MPI counts up to 2^31-1 elements");
  return static_cast<int>(elements);
}

class Mpi final : public Peer {
 public:
  Mpi() {
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks_);
    counts_.resize(static_cast<std::size_t>(ranks_));
    offsets_.resize(counts_.size());
  }

  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }
  bool offers(Operation) const override { return true; }

  void call(Operation operation, std::span<const float> send, std::span<float> receive) override {
    switch (operation) {
      case Operation::all_gather_float:
        return require(MPI_Allgather(send.data(), count(send.size()), MPI_FLOAT, receive.data(),
                                     count(send.size()), MPI_FLOAT, MPI_COMM_WORLD),
                       "MPI_Allgather");
      case Operation::reduce_scatter_sum:
        return require(MPI_Reduce_scatter_block(send.data(), receive.data(), count(receive.size()),
                                                MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD),
                       "MPI_Reduce_scatter_block");
      case Operation::all_reduce_sum:
        return require(MPI_Allreduce(send.data(), receive.data(), count(send.size()), MPI_FLOAT,
                                     MPI_SUM, MPI_COMM_WORLD),
                       "MPI_Allreduce");
      case Operation::broadcast_float: {
        // The root only reads its buffer, though MPI takes no const here.
        float* buffer = rank_ == 0 ? const_cast<float*>(send.data()) : receive.data();
        return require(MPI_Bcast(buffer, count(send.size()), MPI_FLOAT, 0, MPI_COMM_WORLD),
                       "MPI_Bcast");
      }
      default:
        return exchange(send, receive);
    }
  }

  double slowest(double seconds) override {
    double most = 0;
    require(MPI_Allreduce(&seconds, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD),
            "MPI_Allreduce");
    return most;
  }

 private:
  void exchange(std::span<const float> send, std::span<float> receive) {
    const int part = count(send.size()) / ranks_;
    for (int rank = 0; rank < ranks_; ++rank) {
      counts_[static_cast<std::size_t>(rank)] = part;
      offsets_[static_cast<std::size_t>(rank)] = rank * part;
    }
    require(MPI_Alltoallv(send.data(), counts_.data(), offsets_.data(), MPI_FLOAT, receive.data(),
                          counts_.data(), offsets_.data(), MPI_FLOAT, MPI_COMM_WORLD),
            "MPI_Alltoallv");
  }

  int rank_ = 0;
  int ranks_ = 1;
  std::vector<int> counts_;
  std::vector<int> offsets_;
};

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) {
  using namespace lockstep::bench;
  MPI_Init(&argc, &argv);
  const int status = peer_main(argc, argv, [](const PeerArguments& arguments) {
    Mpi mpi;
    measure_peer("open_mpi", mpi, arguments);
  });
  // A process that failed alone would wait for the others for ever.
  if (status != 0) MPI_Abort(MPI_COMM_WORLD, status);
  MPI_Finalize();
  return status;
}
