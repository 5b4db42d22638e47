#include "channel.hpp"

#include <algorithm>

#include "check.hpp"

namespace lockstep::mpi {
namespace {

constexpr int message_bytes = static_cast<int>(sizeof(Message));

}  // namespace

Channel::Channel(MPI_Comm comm, std::vector<int> members, int me, int tag,
                 std::uint64_t conversation)
    : comm_(comm),
      members_(std::move(members)),
      me_(me),
      tag_(tag),
      conversation_(conversation),
      peers_(members_.size()),
      absent_(size()),
      incoming_(members_.size()),
      receives_(members_.size(), MPI_REQUEST_NULL),
      completed_(members_.size()) {
  for (Parcel& parcel : outgoing_) {
    parcel.messages.resize(members_.size());
    parcel.requests.resize(members_.size(), MPI_REQUEST_NULL);
  }
}

void Channel::send(Message message, std::span<const std::int64_t> rows) {
  std::lock_guard lock(mutex_);
  message.conversation = conversation_;
  Parcel& parcel = outgoing_[static_cast<std::size_t>(message.kind)];
  // Starting with the next member spreads the first messages of all ranks over all ranks.
  for (int step = 1; step <= size(); ++step) {
    const auto member = static_cast<std::size_t>((me_ + step) % size());
    if (!rows.empty()) message.rows_for_receiver = rows[member];
    if (static_cast<int>(member) == me_) {
      put(me_, message);
      continue;
    }
    parcel.messages[member] = message;
    check(MPI_Isend(&parcel.messages[member], message_bytes, MPI_BYTE, members_[member], tag_,
                    comm_, &parcel.requests[member]),
          "MPI_Isend");
  }
}

void Channel::put(int member, const Message& message) {
  Peer& peer = peers_[static_cast<std::size_t>(member)];
  switch (message.kind) {
    case Kind::call:
      peer.calls[message.number % 2] = message;
      if (message.number == round_) --absent_;
      return;
    case Kind::failed:
      peer.failed = message;
      break;
    case Kind::left:
      peer.left = message;
      break;
  }
  if (member != me_) anyone_gone_ = true;
}

bool Channel::sent(Kind kind) {
  std::lock_guard lock(mutex_);
  int done = 0;
  check(MPI_Testall(size(), outgoing_[static_cast<std::size_t>(kind)].requests.data(), &done,
                    MPI_STATUSES_IGNORE),
        "MPI_Testall");
  return done != 0;
}

bool Channel::receive() {
  std::lock_guard lock(mutex_);
  for (int member = 0; member < size(); ++member) {
    const auto i = static_cast<std::size_t>(member);
    if (member == me_ || receives_[i] != MPI_REQUEST_NULL || peers_[i].left) continue;
    check(
        MPI_Irecv(&incoming_[i], message_bytes, MPI_BYTE, members_[i], tag_, comm_, &receives_[i]),
        "MPI_Irecv");
  }
  int count = 0;
  check(MPI_Testsome(size(), receives_.data(), &count, completed_.data(), MPI_STATUSES_IGNORE),
        "MPI_Testsome");
  if (count == MPI_UNDEFINED) return false;  // no receive is posted
  for (int k = 0; k < count; ++k) {
    const int member = completed_[static_cast<std::size_t>(k)];
    const Message& message = incoming_[static_cast<std::size_t>(member)];
    if (message.conversation == conversation_) put(member, message);
  }
  return count > 0;
}

void Channel::stop_receiving() {
  std::lock_guard lock(mutex_);
  for (MPI_Request& receive : receives_) {
    if (receive == MPI_REQUEST_NULL) continue;
    check(MPI_Cancel(&receive), "MPI_Cancel");
    check(MPI_Wait(&receive, MPI_STATUS_IGNORE), "MPI_Wait");  // local, for a cancelled receive
  }
}

bool Channel::round_complete() {
  std::lock_guard lock(mutex_);
  return absent_ == 0;
}

std::span<const Message> Channel::end_round() {
  std::lock_guard lock(mutex_);
  round_calls_.clear();
  for (Peer& peer : peers_) {
    round_calls_.push_back(*call_in_round(peer));
    call_in_round(peer).reset();
  }
  ++round_;
  absent_ = static_cast<int>(
      std::ranges::count_if(peers_, [&](Peer& peer) { return !call_in_round(peer); }));
  return round_calls_;
}

std::vector<int> Channel::absent() {
  std::lock_guard lock(mutex_);
  std::vector<int> members;
  for (int member = 0; member < size(); ++member) {
    if (!call_in_round(peers_[static_cast<std::size_t>(member)])) members.push_back(member);
  }
  return members;
}

bool Channel::anyone_gone() {
  std::lock_guard lock(mutex_);
  return anyone_gone_;
}

std::optional<Message> Channel::failed(int member) {
  std::lock_guard lock(mutex_);
  return peers_[static_cast<std::size_t>(member)].failed;
}

std::optional<Message> Channel::left(int member) {
  std::lock_guard lock(mutex_);
  return peers_[static_cast<std::size_t>(member)].left;
}

bool Channel::all_left() {
  std::lock_guard lock(mutex_);
  return std::ranges::all_of(peers_, [](const Peer& peer) { return peer.left.has_value(); });
}

}  // namespace lockstep::mpi
