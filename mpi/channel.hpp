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
// MPI may write into this object until all peers have left, or stop_receiving(): it is kept alive
// until then.
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

  // Withdraws the receives, when nobody has anything more to send.
  void stop_receiving();

  // The rounds of calls: round n is complete when every member, this one included, has sent its
  // call number n. A peer may be one round ahead, since it can pass a round that this rank still
  // waits in.
  bool round_complete();
  // Ends the round and returns its calls, entry r being member r's, valid until the next round
  // ends.
  std::span<const Message> end_round();
  // The members that have sent no call in this round, ascending.
  std::vector<int> absent();

  // Members that will not come again: has anyone said so, and what did this one say?
  bool anyone_gone();
  std::optional<Message> failed(int member);
  std::optional<Message> left(int member);
  bool all_left();

  int size() const { return static_cast<int>(members_.size()); }

 private:
  struct Parcel {
    std::vector<Message> messages;
    std::vector<MPI_Request> requests;
  };
  struct Peer {
    std::array<std::optional<Message>, 2> calls;  // by the parity of their number
    std::optional<Message> failed;
    std::optional<Message> left;
  };
  std::optional<Message>& call_in_round(Peer& peer) { return peer.calls[round_ % 2]; }
  void put(int member, const Message& message);

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
  std::uint64_t round_ = 0;
  int absent_ = 0;  // members without a call in this round
  bool anyone_gone_ = false;
  std::vector<Message> round_calls_;  // of the round that ended last
  // One receive per member, null for those of which nothing more is expected.
  std::vector<Message> incoming_;
  std::vector<MPI_Request> receives_;
  std::vector<int> completed_;
};

}  // namespace lockstep::mpi
