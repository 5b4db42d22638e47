// The control messages between this rank and its peers.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include <lockstep/mpi/c_api.hpp>

#include "message.hpp"

namespace lockstep::mpi {

// Direct messages from each rank to each other, so that a rank always knows from whom it has heard
// and from whom not, and needs nobody in between to hear of a departure. Per call and rank that
// costs one message per peer: linear in the ranks, like MPI's own linear all-gather.
//
// A receive for each peer is posted whenever somebody waits, so departures are noticed in any wait.
// MPI may write into this object until all peers have left: it is kept alive until then.
class Channel {
 public:
  // Between `members`, ranks of `comm`, of which this process is entry `me`. Messages of another
  // conversation than this one are ignored.
  Channel(MPI_Comm comm, std::vector<int> members, int me, int tag, std::uint64_t conversation);
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  // Sends `message` to every other member; with `rows`, entry r goes to member r. A second message
  // of one kind may be sent when the first is sent().
  void send(Message message, std::span<const std::int64_t> rows = {});
  // Have all messages of this kind gone?
  bool sent(Kind kind);

  // Lets MPI work. True when a message came.
  bool receive();

  // What a member has sent: a call that was not taken yet, or that it will not come again.
  std::optional<Message> came_from(int member, Kind kind);
  // Has any member sent that it will not come again?
  bool anyone_gone();
  // Has every member, this one included, sent a call that was not taken yet?
  bool all_called();
  // Takes these, entry r being member r's.
  void take_calls(std::vector<Message>& calls);
  // The other members that have sent no such message, ascending.
  std::vector<int> without(Kind kind);

  int size() const { return static_cast<int>(members_.size()); }

 private:
  struct Parcel {
    std::vector<Message> messages;
    std::vector<MPI_Request> requests;
  };
  struct Peer {
    std::array<std::optional<Message>, 3> came;  // by Kind
  };
  const std::optional<Message>& came(int member, Kind kind) const {
    return peers_[static_cast<std::size_t>(member)].came[static_cast<std::size_t>(kind)];
  }

  // A group is formed in the first call on it, perhaps by another thread than the one that is
  // inside the communicator it comes from.
  std::mutex mutex_;
  MPI_Comm comm_;
  std::vector<int> members_;
  int me_;
  int tag_;
  std::uint64_t conversation_;
  std::array<Parcel, 3> outgoing_;  // by Kind
  std::vector<Peer> peers_;
  bool anyone_gone_ = false;
  int calls_missing_ = 0;  // members, this one included, without a call that was not taken yet
  // One receive per member, null for those of which nothing more is expected.
  std::vector<Message> incoming_;
  std::vector<MPI_Request> receives_;
  std::vector<int> completed_;
};

}  // namespace lockstep::mpi
