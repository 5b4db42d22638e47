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
      calls_missing_(size()),
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
      peers_[member].came[static_cast<std::size_t>(message.kind)] = message;
      if (message.kind == Kind::call) --calls_missing_;
      continue;
    }
    parcel.messages[member] = message;
    check(MPI_Isend(&parcel.messages[member], message_bytes, MPI_BYTE, members_[member], tag_,
                    comm_, &parcel.requests[member]),
          "MPI_Isend");
  }
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
    if (member == me_ || receives_[i] != MPI_REQUEST_NULL || came(member, Kind::left)) continue;
    check(
        MPI_Irecv(&incoming_[i], message_bytes, MPI_BYTE, members_[i], tag_, comm_, &receives_[i]),
        "MPI_Irecv");
  }
  int count = 0;
  check(MPI_Testsome(size(), receives_.data(), &count, completed_.data(), MPI_STATUSES_IGNORE),
        "MPI_Testsome");
  if (count == MPI_UNDEFINED) return false;
  for (int k = 0; k < count; ++k) {
    const auto i = static_cast<std::size_t>(completed_[static_cast<std::size_t>(k)]);
    const Message& message = incoming_[i];
    if (message.conversation != conversation_) continue;
    peers_[i].came[static_cast<std::size_t>(message.kind)] = message;
    if (message.kind == Kind::call) {
      --calls_missing_;
    } else {
      anyone_gone_ = true;
    }
  }
  return count > 0;
}

std::optional<Message> Channel::came_from(int member, Kind kind) {
  std::lock_guard lock(mutex_);
  return came(member, kind);
}

bool Channel::anyone_gone() {
  std::lock_guard lock(mutex_);
  return anyone_gone_;
}

bool Channel::all_called() {
  std::lock_guard lock(mutex_);
  return calls_missing_ == 0;
}

void Channel::take_calls(std::vector<Message>& calls) {
  std::lock_guard lock(mutex_);
  calls.resize(members_.size());
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    std::optional<Message>& call = peers_[i].came[static_cast<std::size_t>(Kind::call)];
    calls[i] = *call;
    call.reset();
  }
  calls_missing_ = size();
}

std::vector<int> Channel::without(Kind kind) {
  std::lock_guard lock(mutex_);
  std::vector<int> members;
  for (int member = 0; member < size(); ++member) {
    if (member != me_ && !came(member, kind)) members.push_back(member);
  }
  return members;
}

}  // namespace lockstep::mpi
