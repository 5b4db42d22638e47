#include "meeting.hpp"

#include <algorithm>

namespace lockstep::nccl {

namespace {

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
    if (other->rank != launch.rank && other->thread != 0 && other->thread == launch.thread &&
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
  if (departure == Departure::orderly || departure == Departure::died) {
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
