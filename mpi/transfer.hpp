// Elements under way.
#pragma once

#include <cstddef>
#include <deque>
#include <span>
#include <vector>

#include <lockstep/mpi/c_api.hpp>
#include <lockstep/tensor.hpp>

namespace lockstep::mpi {

// The messages of one step of a call, and the tensors whose memory they read and write. A transfer
// that cannot be completed must be kept for as long as MPI may still touch that memory.
class Transfer {
 public:
  explicit Transfer(MPI_Comm comm) : comm_(comm) {}
  Transfer(Transfer&&) = default;
  Transfer& operator=(Transfer&&) = default;

  // Starts moving bytes to or from a peer; both sides know how many. Larger than one message may be
  // they go in several, none for no bytes. The bytes belong to a tensor given to keep().
  void send(int peer, std::span<const std::byte> bytes);
  void receive(int peer, std::span<std::byte> bytes);
  // Starts moving the root's bytes to everybody else.
  void broadcast(std::span<std::byte> bytes, int root);
  // Starts adding `addend` over all ranks, rank r keeping counts[r] elements of the sum.
  void reduce_scatter(const void* addend, void* sum, std::vector<int> counts, MPI_Datatype type);

  // Holds a handle: neither freed, nor written to by any other holder, until the transfer is gone.
  void keep(const Tensor& tensor) { kept_.push_back(tensor); }

  // Lets MPI work. True when a message was completed.
  bool advance();
  bool done() const { return pending_ == 0; }
  // Peers of uncompleted receives, ascending.
  std::vector<int> awaited() const;

 private:
  MPI_Request* start(int peer);

  MPI_Comm comm_;
  std::vector<MPI_Request> requests_;
  std::vector<int> peers_;  // of each request: the peer that must send, or -1
  std::vector<int> completed_;
  int pending_ = 0;
  std::vector<Tensor> kept_;
  std::deque<std::vector<int>> counts_;  // MPI reads them until the reduction is complete
};

}  // namespace lockstep::mpi
