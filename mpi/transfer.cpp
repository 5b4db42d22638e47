#include "transfer.hpp"

#include <algorithm>

#include "check.hpp"
#include "limits.hpp"
#include "tags.hpp"

namespace lockstep::mpi {
namespace {

// Calls function(part) for consecutive parts that each fit one message.
template <class Byte, class Function>
void for_each_message(std::span<Byte> bytes, Function function) {
  const auto most = static_cast<std::size_t>(limits().message_bytes);
  for (std::size_t begin = 0; begin < bytes.size(); begin += most) {
    function(bytes.subspan(begin, std::min(most, bytes.size() - begin)));
  }
}

}  // namespace

Limits& limits() {
  static Limits limits;
  return limits;
}

MPI_Request* Transfer::start(int peer) {
  requests_.push_back(MPI_REQUEST_NULL);
  peers_.push_back(peer);
  ++pending_;
  return &requests_.back();
}

void Transfer::send(int peer, std::span<const std::byte> bytes) {
  for_each_message(bytes, [&](std::span<const std::byte> part) {
    check(MPI_Isend(part.data(), static_cast<int>(part.size()), MPI_BYTE, peer, tags::data, comm_,
                    start(-1)),
          "MPI_Isend");
  });
}

void Transfer::receive(int peer, std::span<std::byte> bytes) {
  for_each_message(bytes, [&](std::span<std::byte> part) {
    check(MPI_Irecv(part.data(), static_cast<int>(part.size()), MPI_BYTE, peer, tags::data, comm_,
                    start(peer)),
          "MPI_Irecv");
  });
}

void Transfer::broadcast(std::span<std::byte> bytes, int root) {
  for_each_message(bytes, [&](std::span<std::byte> part) {
    check(MPI_Ibcast(part.data(), static_cast<int>(part.size()), MPI_BYTE, root, comm_, start(-1)),
          "MPI_Ibcast");
  });
}

void Transfer::reduce_scatter(const void* addend, void* sum, std::vector<int> counts,
                              MPI_Datatype type) {
  counts_.push_back(std::move(counts));
  check(MPI_Ireduce_scatter(addend, sum, counts_.back().data(), type, MPI_SUM, comm_, start(-1)),
        "MPI_Ireduce_scatter");
}

bool Transfer::advance() {
  if (done()) return false;
  completed_.resize(requests_.size());
  int count = 0;
  check(MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count,
                     completed_.data(), MPI_STATUSES_IGNORE),
        "MPI_Testsome");
  if (count == MPI_UNDEFINED) count = pending_;  // nothing active: all were complete at the start
  pending_ -= count;
  return count > 0;
}

std::vector<int> Transfer::awaited() const {
  std::vector<int> peers;
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i] != MPI_REQUEST_NULL && peers_[i] >= 0) peers.push_back(peers_[i]);
  }
  std::ranges::sort(peers);
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  return peers;
}

}  // namespace lockstep::mpi
