#include "clique.hpp"

#include <algorithm>
#include <cstring>

#include "names.hpp"

namespace lockstep::nccl {

// One operation of all the ranks that take part in it.
struct Meeting {
  bool collective = true;
  std::uint64_t number = 0;  // of a collective
  int source = -1;           // of a transfer
  int destination = -1;
  // By rank, or the sender and the receiver.
  std::vector<Clique::Part> parts;
  std::size_t announced = 0;
  std::size_t arrived = 0;
  bool done = false;

  int rank_at(std::size_t seat) const {
    if (collective) return static_cast<int>(seat);
    return seat == 0 ? source : destination;
  }
  const Call& call(std::size_t seat) const { return parts[seat].launch->calls[parts[seat].call]; }
  std::span<const std::byte> input(std::size_t seat, int ranks) const {
    const Clique::Part& part = parts[seat];
    const Extents sizes = *extents(call(seat), part.launch->rank, ranks);
    return {part.launch->inputs[part.call], sizes.sent};
  }
  std::byte* output(std::size_t seat) const {
    return parts[seat].launch->outputs[parts[seat].call];
  }
};

namespace {

// Buffers without bytes may be null, which memmove does not like.
void move_bytes(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes != 0) std::memmove(to, from, bytes);
}

constexpr const char* agree_advice =
    "Every rank must make the same collective calls, with the same arguments, in the same order.";

}  // namespace

Clique::Clique(std::string name, std::vector<Seat> seats, std::uint64_t seed)
    : name_(std::move(name)),
      seats_(std::move(seats)),
      ring_(static_cast<int>(seats_.size()), seed),
      next_collective_(seats_.size(), 0),
      unfinished_(seats_.size()) {}

std::string Clique::describe(int rank) const {
  const Seat& who = seat(rank);
  std::string text = "rank " + std::to_string(rank) + " (device " + std::to_string(who.device);
  if (!who.place.empty()) text += ", " + who.place;
  return text + ")";
}

std::string Clique::row(const Launch& launch, const Call& call) const {
  std::string text = describe(launch.rank) + ": " + nccl::describe(call) + ", its call " +
                     std::to_string(call.number) + ", on " + call.stream;
  if (call.dropped_before != 0) {
    text += ", after " + std::to_string(call.dropped_before) +
            " without elements, which NCCL drops on the spot";
  }
  return text;
}

void Clique::blame(const char* rule, const std::string& what, std::vector<std::string> details,
                   const char* advice, const Launch& launch, const Call& call,
                   ncclResult_t result) {
  devices::report({.rule = rule,
                   .call = {name_of(call.kind), "rank " + std::to_string(launch.rank) + " of " +
                                                    std::to_string(ranks()) + ", " + name_},
                   .device = seat(launch.rank).device,
                   .stream = call.stream,
                   .what = what,
                   .details = std::move(details),
                   .advice = advice});
  fail({result, what, true});
}

void Clique::fail(const Failure& failure) {
  if (failure_) return;
  failure_ = failure;
  for (const Seat& who : seats_) {
    if (who.member != nullptr) who.member->failed(failure);
  }
}

MeetingRef Clique::meeting_for(const Launch& launch, const Call& call, std::size_t& seat) {
  const int rank = launch.rank;
  if (is_collective(call)) {
    seat = static_cast<std::size_t>(rank);
    const std::uint64_t number = next_collective_[seat]++;
    while (first_collective_ + collectives_.size() <= number) {
      auto fresh = std::make_shared<Meeting>();
      fresh->number = first_collective_ + collectives_.size();
      fresh->parts.resize(seats_.size());
      collectives_.push_back(std::move(fresh));
    }
    return collectives_[number - first_collective_];
  }
  const bool sends = call.kind == CallKind::send;
  seat = sends ? 0 : 1;
  auto& open = transfers_[sends ? std::pair(rank, call.peer) : std::pair(call.peer, rank)];
  for (const MeetingRef& waiting : open) {
    if (!waiting->parts[seat].launch) return waiting;
  }
  auto fresh = std::make_shared<Meeting>();
  fresh->collective = false;
  fresh->source = sends ? rank : call.peer;
  fresh->destination = sends ? call.peer : rank;
  fresh->parts.resize(2);
  open.push_back(fresh);
  return fresh;
}

bool Clique::check(const Meeting& meeting, const Launch& launch, const Call& call) {
  for (std::size_t at = 0; at < meeting.parts.size(); ++at) {
    const LaunchRef& other = meeting.parts[at].launch;
    if (!other || other.get() == &launch) continue;
    const Call& theirs = meeting.call(at);
    const char* rule = nullptr;
    if (meeting.collective) {
      rule = disagreement(theirs, call);
    } else if (theirs.datatype != call.datatype) {
      rule = "datatype";
    } else if (theirs.count != call.count) {
      rule = "count";
    }
    if (rule != nullptr) {
      std::vector<std::string> rows;
      for (std::size_t who = 0; who < meeting.parts.size(); ++who) {
        if (meeting.parts[who].launch)
          rows.push_back(row(*meeting.parts[who].launch, meeting.call(who)));
      }
      const std::string what =
          meeting.collective
              ? "the ranks disagree on the " + std::string(rule) + " of collective " +
                    std::to_string(meeting.number) + " of " + name_
              : "sender and receiver disagree on the " + std::string(rule) +
                    " of a transfer from rank " + std::to_string(meeting.source) + " to rank " +
                    std::to_string(meeting.destination) + " of " + name_;
      blame(meeting.collective ? "mismatched-collective" : "mismatched-transfer", what,
            std::move(rows),
            meeting.collective
                ? agree_advice
                : "Every ncclSend needs an ncclRecv of the same datatype and count at its peer.",
            launch, call, ncclInvalidUsage);
      return false;
    }
    if (other->rank != launch.rank && other->thread == launch.thread &&
        other->group != launch.group) {
      blame("missing-group",
            "one thread makes the calls of rank " + std::to_string(other->rank) + " and of rank " +
                std::to_string(launch.rank) + " of " + name_ +
                " one after the other, outside a group; the first may wait for the second for ever",
            {row(*other, theirs), row(launch, call)},
            "A thread that drives several ranks puts their calls between ncclGroupStart and "
            "ncclGroupEnd.",
            launch, call, ncclInvalidUsage);
      return false;
    }
  }
  return true;
}

void Clique::announce(const LaunchRef& launch) {
  const auto self = static_cast<std::size_t>(launch->rank);
  unfinished_[self].push_back(launch);
  launch->open = launch->calls.size();
  launch->meetings.resize(launch->calls.size());
  for (std::size_t at = 0; at < launch->calls.size(); ++at) {
    const Call& call = launch->calls[at];
    std::size_t seat = 0;
    const MeetingRef meeting = meeting_for(*launch, call, seat);
    meeting->parts[seat] = {launch, at};
    ++meeting->announced;
    launch->meetings[at] = meeting;
    if (!failure_ && !check(*meeting, *launch, call)) return;
    if (failure_) continue;
    for (std::size_t who = 0; who < meeting->parts.size(); ++who) {
      const int rank = meeting->rank_at(who);
      if (meeting->parts[who].launch || seats_[static_cast<std::size_t>(rank)].left.empty()) {
        continue;
      }
      blame("rank-left",
            nccl::describe(call) + " waits for rank " + std::to_string(rank) + ", which " +
                seats_[static_cast<std::size_t>(rank)].left,
            {row(*launch, call)}, "Every rank must make its calls before it leaves.", *launch, call,
            ncclRemoteError);
      return;
    }
  }
  // Others may have arrived and wait for just this.
  for (const MeetingRef& meeting : launch->meetings) {
    if (meeting->arrived != 0) {
      launch->demanded = true;
      if (Member* member = seats_[self].member) member->demanded(launch->number);
      break;
    }
  }
}

void Clique::arrive(const LaunchRef& launch) {
  launch->arrived = true;
  if (failure_) return;
  for (std::size_t at = 0; at < launch->calls.size(); ++at) {
    const MeetingRef meeting = launch->meetings[at];
    if (meeting == nullptr) continue;
    ++meeting->arrived;
    if (meeting->arrived == meeting->parts.size()) carry_out(*meeting);
    if (failure_) return;
  }
  if (launch->finished || find_deadlock(*launch)) return;
  demand_missing(*launch);
}

void Clique::demand_missing(const Launch& launch) {
  for (const LaunchRef& other : missing(launch)) {
    if (other->demanded) continue;
    other->demanded = true;
    if (Member* member = seats_[static_cast<std::size_t>(other->rank)].member) {
      member->demanded(other->number);
    }
  }
}

void Clique::carry_out_reduction(Meeting& meeting) {
  const Call& call = meeting.call(0);
  const auto ranks = static_cast<std::size_t>(this->ranks());
  const std::size_t block = call.count * size_of(call.datatype);
  std::vector<Addends> addends(ranks);
  std::vector<std::byte> result(block);
  const bool scatters = call.kind == CallKind::reduce_scatter;
  for (std::size_t to = 0; to < (scatters ? ranks : 1); ++to) {
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const Clique::Part& part = meeting.parts[rank];
      addends[rank] = {meeting.input(rank, this->ranks()).subspan(to * block, block),
                       meeting.call(rank).op, part.launch->scalars[part.call]};
    }
    if (scatters) {
      reduce_around(ring_, addends, call.datatype, ring_.position_of(static_cast<int>(to)) + 1, 0,
                    result);
      move_bytes(meeting.output(to), result.data(), block);
    } else if (call.kind == CallKind::reduce) {
      reduce_around(ring_, addends, call.datatype, ring_.position_of(call.peer) + 1, 0, result);
      move_bytes(meeting.output(static_cast<std::size_t>(call.peer)), result.data(), block);
    } else {
      reduce_around(ring_, addends, call.datatype, 1, 1, result);
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        move_bytes(meeting.output(rank), result.data(), block);
      }
    }
  }
}

void Clique::carry_out(Meeting& meeting) {
  const Call& call = meeting.call(0);
  const std::size_t block = call.count * size_of(call.datatype);
  const auto ranks = static_cast<std::size_t>(this->ranks());
  const auto root = static_cast<std::size_t>(call.peer);
  const auto from = [&](std::size_t seat) { return meeting.input(seat, this->ranks()).data(); };
  switch (call.kind) {
    case CallKind::all_reduce:
    case CallKind::reduce:
    case CallKind::reduce_scatter:
      carry_out_reduction(meeting);
      break;
    case CallKind::broadcast:
      for (std::size_t to = 0; to < ranks; ++to) move_bytes(meeting.output(to), from(root), block);
      break;
    case CallKind::all_gather:
      for (std::size_t to = 0; to < ranks; ++to) {
        for (std::size_t source = 0; source < ranks; ++source) {
          move_bytes(meeting.output(to) + source * block, from(source), block);
        }
      }
      break;
    case CallKind::all_to_all:
      for (std::size_t to = 0; to < ranks; ++to) {
        for (std::size_t source = 0; source < ranks; ++source) {
          move_bytes(meeting.output(to) + source * block, from(source) + to * block, block);
        }
      }
      break;
    case CallKind::gather:
      for (std::size_t source = 0; source < ranks; ++source) {
        move_bytes(meeting.output(root) + source * block, from(source), block);
      }
      break;
    case CallKind::scatter:
      for (std::size_t to = 0; to < ranks; ++to) {
        move_bytes(meeting.output(to), from(root) + to * block, block);
      }
      break;
    case CallKind::send:
    case CallKind::receive:
      move_bytes(meeting.output(1), from(0), block);
      break;
  }

  // What came before on the ranks that gave happened before what comes next on those that took; in
  // one direction only where only one rank gives or takes, but no rule is lost by much there.
  std::vector<devices::NodeRef> nodes;
  for (const Part& part : meeting.parts) {
    if (part.launch->node) nodes.push_back(part.launch->node);
  }
  devices::Engine::instance().meet(nodes);

  meeting.done = true;
  if (meeting.collective) {
    while (!collectives_.empty() && collectives_.front()->done) {
      collectives_.pop_front();
      ++first_collective_;
    }
  } else {
    std::erase_if(transfers_[{meeting.source, meeting.destination}],
                  [&](const MeetingRef& other) { return other.get() == &meeting; });
  }
  for (const Part& part : meeting.parts) {
    Launch& launch = *part.launch;
    if (--launch.open != 0) continue;
    launch.finished = true;
    std::erase_if(unfinished_[static_cast<std::size_t>(launch.rank)],
                  [&](const LaunchRef& other) { return other.get() == &launch; });
    if (Member* member = seats_[static_cast<std::size_t>(launch.rank)].member) {
      member->finished(launch);
    }
  }
  // A launch knows its meetings and they know it.
  meeting.parts.clear();
}

std::vector<LaunchRef> Clique::missing(const Launch& launch) const {
  std::vector<LaunchRef> result;
  for (const MeetingRef& meeting : launch.meetings) {
    if (meeting == nullptr || meeting->done) continue;
    for (const Part& part : meeting->parts) {
      if (part.launch && !part.launch->arrived) result.push_back(part.launch);
    }
  }
  std::sort(result.begin(), result.end());
  result.erase(std::unique(result.begin(), result.end()), result.end());
  return result;
}

std::vector<int> Clique::awaited_ranks(const Launch& launch) const {
  std::vector<int> result;
  for (const MeetingRef& meeting : launch.meetings) {
    if (meeting == nullptr || meeting->done) continue;
    for (std::size_t at = 0; at < meeting->parts.size(); ++at) {
      const Part& part = meeting->parts[at];
      if (!part.launch || !part.launch->arrived) result.push_back(meeting->rank_at(at));
    }
  }
  std::sort(result.begin(), result.end());
  result.erase(std::unique(result.begin(), result.end()), result.end());
  return result;
}

bool Clique::awaits_others(const Launch& launch) const {
  if (failure_) return false;
  for (const int rank : awaited_ranks(launch)) {
    const Seat& who = seat(rank);
    if (who.member != nullptr && who.member->remote()) return true;
  }
  return false;
}

std::string Clique::awaited(const Launch& launch) const {
  if (failure_) return "nobody, since " + name_ + " has failed: " + failure_->what;
  std::string text;
  for (const MeetingRef& meeting : launch.meetings) {
    if (meeting == nullptr || meeting->done) continue;
    for (std::size_t at = 0; at < meeting->parts.size(); ++at) {
      const Part& part = meeting->parts[at];
      if (part.launch && part.launch->arrived) continue;
      if (text.size() > 2000) return text + " ...";
      if (!text.empty()) text += "; ";
      const int rank = meeting->rank_at(at);
      text += describe(rank);
      if (part.launch) {
        text += ", whose stream has not come to its call " +
                std::to_string(part.launch->calls[part.call].number);
      } else if (meeting->collective) {
        text += ", which has not called it";
      } else {
        text += at == 0 ? ", which has not called ncclSend" : ", which has not called ncclRecv";
        text += " for rank " + std::to_string(launch.rank);
      }
    }
  }
  return text;
}

// Launches of one rank run one after the other. So when a rank has arrived and waits for a later
// launch of a rank that has itself arrived and waits, and so on in a circle, none can ever finish.
bool Clique::find_deadlock(const Launch& launch) {
  const auto waiting_launch = [&](int rank) -> LaunchRef {
    const auto& queue = unfinished_[static_cast<std::size_t>(rank)];
    return !queue.empty() && queue.front()->arrived ? queue.front() : nullptr;
  };
  const auto waits_for_stuck = [&](const Launch& mine, const std::vector<bool>& stuck) {
    for (const int rank : awaited_ranks(mine)) {
      if (rank != mine.rank && stuck[static_cast<std::size_t>(rank)]) return true;
      if (rank == mine.rank) return true;  // its own later launch
    }
    return false;
  };

  std::vector<bool> stuck(seats_.size());
  for (int rank = 0; rank < ranks(); ++rank) {
    stuck[static_cast<std::size_t>(rank)] = waiting_launch(rank) != nullptr;
  }
  // Nearly always this rank waits for ranks that are still on their way.
  if (!waits_for_stuck(launch, stuck)) return false;
  for (bool changed = true; changed;) {
    changed = false;
    for (int rank = 0; rank < ranks(); ++rank) {
      if (!stuck[static_cast<std::size_t>(rank)]) continue;
      if (waits_for_stuck(*waiting_launch(rank), stuck)) continue;
      stuck[static_cast<std::size_t>(rank)] = false;
      changed = true;
    }
  }
  if (!stuck[static_cast<std::size_t>(launch.rank)]) return false;

  std::vector<std::string> rows;
  for (int rank = 0; rank < ranks(); ++rank) {
    if (!stuck[static_cast<std::size_t>(rank)]) continue;
    const LaunchRef theirs = waiting_launch(rank);
    for (std::size_t at = 0; at < theirs->calls.size(); ++at) {
      if (!theirs->meetings[at]->done) {
        rows.push_back(row(*theirs, theirs->calls[at]) + ", waits for " + awaited(*theirs));
        break;
      }
    }
  }
  blame("deadlock", "ranks of " + name_ + " wait for each other's later calls in a circle",
        std::move(rows),
        "Transfers that depend on each other belong into one group; calls of different ranks must "
        "come in the same order.",
        launch, launch.calls.front(), ncclInvalidUsage);
  return true;
}

bool Clique::has_others() const {
  for (const Seat& who : seats_) {
    if (who.member != nullptr && who.member->remote()) return true;
  }
  return false;
}

// The first operation, with its launch, that still needs the rank.
std::optional<std::pair<LaunchRef, std::size_t>> Clique::waiting_for(int rank) const {
  for (const auto& queue : unfinished_) {
    for (const LaunchRef& launch : queue) {
      if (launch->rank == rank) continue;
      for (std::size_t at = 0; at < launch->calls.size(); ++at) {
        const MeetingRef& meeting = launch->meetings[at];
        if (meeting == nullptr || meeting->done) continue;
        for (std::size_t seat = 0; seat < meeting->parts.size(); ++seat) {
          const Part& part = meeting->parts[seat];
          const bool here = part.launch && part.launch->arrived;
          if (meeting->rank_at(seat) == rank && !here) return std::pair(launch, at);
        }
      }
    }
  }
  return std::nullopt;
}

void Clique::leave(int rank, const std::string& how, Departure departure) {
  Seat& who = seats_[static_cast<std::size_t>(rank)];
  if (who.member == nullptr) return;
  who.member = nullptr;
  who.left = how;
  if (failure_) return;
  const auto waits = waiting_for(rank);
  if (departure == Departure::orderly && !waits) return;

  std::string what = describe(rank) + " of " + name_ + " " + how;
  std::vector<std::string> rows;
  if (waits) {
    const auto& [launch, at] = *waits;
    what = nccl::describe(launch->calls[at]) + " waits for " + describe(rank) + ", which " + how;
    rows.push_back(row(*launch, launch->calls[at]));
  }
  if (departure != Departure::on_purpose) {
    devices::report(
        {.rule = departure == Departure::died ? "rank-died" : "rank-left",
         .call = {"NCCL",
                  "rank " + std::to_string(rank) + " of " + std::to_string(ranks()) + ", " + name_},
         .device = who.device,
         .what = what,
         .details = std::move(rows),
         .advice = departure == Departure::died
                       ? "Find out why its process ended before it destroyed its communicator."
                       : "Every rank must make its calls before it leaves."});
  }
  fail({ncclRemoteError, what, departure != Departure::on_purpose});
}

}  // namespace lockstep::nccl
