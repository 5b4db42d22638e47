#include "link.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>

#include <lockstep/tensor.hpp>

#include "check.hpp"
#include "tags.hpp"

namespace lockstep::mpi {
namespace {

std::vector<int> all_ranks(int size) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

std::string rank_list(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    text += (i > 0 ? ", " : "") + std::to_string(ranks[i]);
  }
  return text;
}

std::string milliseconds(std::chrono::nanoseconds duration) {
  const double value = std::chrono::duration<double, std::milli>(duration).count();
  std::string text = std::to_string(value);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text + " ms";
}

}  // namespace

Link::Link(MPI_Comm comm, std::string name, Patience::Limit timeout)
    : comm_(comm), name_(std::move(name)), timeout_(timeout) {
  check(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
  check(MPI_Comm_size(comm_, &size_), "MPI_Comm_size");
  channel_ = std::make_unique<Channel>(comm_, all_ranks(size_), rank_, tags::control, 0);
}

// "all_reduce_sum, call 5 on world"
std::string Link::position() const {
  return std::string(lockstep::name(last_.operation)) + ", call " + std::to_string(call_number()) +
         " on " + name_;
}

// Peers without which the call that was entered last cannot be completed: those that will not enter
// it, and those that gave up in it. A peer that has left but has been through this call is not one
// of them; nor is one that left in the middle of it without giving up, since it did so for want of
// a third rank, of which this rank hears as well.
std::vector<Link::Departure> Link::departures() {
  std::vector<Departure> gone;
  if (!channel_->anyone_gone()) return gone;
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    const auto failed = channel_->failed(peer);
    const auto left = channel_->left(peer);
    if (failed && failed->completed <= call_number()) {
      gone.push_back({peer, describe_departure(*failed), failed->reason == Reason::timed_out});
    } else if (left && left->number <= call_number()) {
      gone.push_back({peer, describe_departure(*left), false});
    }
  }
  return gone;
}

// The steps that a rank waits for.

struct Link::Meeting {  // every peer has entered this call
  Link& link;

  // Takes all that has come: whoever enters late finds that the others have entered, and right
  // behind that, that they have given up since.
  bool advance() {
    bool came = false;
    while (link.channel_->receive()) came = true;
    return came;
  }
  bool done() {
    return link.channel_->round_complete() && link.channel_->sent(Kind::call) &&
           link.departures().empty();
  }
  std::vector<Departure> departures() { return link.departures(); }
  std::vector<int> awaited() { return link.channel_->absent(); }
  std::string position() { return link.position(); }
  std::string last_seen() {
    if (link.entered_ == 1) return ", never seen in any call";
    return ", last seen in call " + std::to_string(link.entered_ - 2) + " (" +
           std::string(lockstep::name(link.previous_)) + ")";
  }
  void end(const TransportError& error, std::optional<Reason> reason) { link.end(error, reason); }
};

struct Link::Delivery {  // the data of this call have moved
  Link& link;
  Transfer& transfer;

  bool advance() { return transfer.advance(); }
  bool done() { return transfer.done(); }
  std::vector<Departure> departures() {
    link.channel_->receive();
    return link.departures();
  }
  std::vector<int> awaited() { return transfer.awaited(); }
  std::string position() { return link.position(); }
  std::string last_seen() { return ", seen entering this call"; }
  void end(const TransportError& error, std::optional<Reason> reason) { link.end(error, reason); }
};

struct Link::Forming {  // every member is forming the same communicator
  Link& link;
  Channel& roll;
  const std::vector<int>& members;
  const std::string& name;
  bool inside_call;  // of the link: a split; else a group's first call

  bool advance() {
    const bool link_news = link.channel_->receive();
    return roll.receive() || link_news;
  }
  bool done() { return roll.round_complete() && roll.sent(Kind::call); }
  // A split fails as a call of the link. A group may outlive the failure of the link that it comes
  // from, so only members that will never come again, or gave up on the group itself, count.
  std::vector<Departure> departures() {
    if (inside_call) return link.departures();
    std::vector<Departure> gone;
    for (int member : roll.absent()) {
      const int rank = members[static_cast<std::size_t>(member)];
      if (const auto left = link.channel_->left(rank)) {
        gone.push_back({member,
                        "(rank " + std::to_string(rank) + " of " + link.name_ + ") " +
                            describe_departure(*left) + " there",
                        false});
      } else if (roll.failed(member)) {
        gone.push_back({member, "gave up waiting for the others", true});
      }
    }
    return gone;
  }
  std::vector<int> awaited() {
    std::vector<int> absent = roll.absent();
    if (!inside_call) return absent;
    for (int& member : absent) member = members[static_cast<std::size_t>(member)];
    std::ranges::sort(absent);
    return absent;
  }
  std::string position() { return inside_call ? link.position() : "first call on " + name; }
  std::string last_seen() {
    return inside_call ? ", seen entering this call" : ", never seen in any call";
  }
  void end(const TransportError& error, std::optional<Reason> reason) {
    Message message;
    message.kind = Kind::failed;
    roll.send(message);
    if (inside_call) link.end(error, reason);
  }
};

template <class Step>
void Link::wait(Step step) {
  const auto fail = [&](const std::string& what, std::vector<int> lost,
                        std::optional<Reason> reason) {
    const TransportError error(step.position() + ": " + what, std::move(lost));
    step.end(error, reason);
    throw error;
  };
  Patience patience(timeout_);
  while (true) {
    const bool advanced = step.advance();
    if (step.done()) return;
    const std::vector<Departure> gone = step.departures();
    if (!gone.empty()) {
      std::string text;
      std::vector<int> lost;
      for (const Departure& departure : gone) {
        text += (text.empty() ? "rank " : "; rank ") + std::to_string(departure.rank) + " " +
                departure.text;
        lost.push_back(departure.rank);
      }
      if (std::ranges::any_of(gone, &Departure::timed_out)) {
        // The peer's clock ran out a moment before this rank's, because of those that are still
        // missing here.
        std::vector<int> missing = step.awaited();
        std::erase_if(missing, [&](int rank) { return std::ranges::count(lost, rank) > 0; });
        if (!missing.empty()) {
          text += "; " + rank_list(missing) + (missing.size() == 1 ? " has" : " have") +
                  " not come" + step.last_seen();
          lost.insert(lost.end(), missing.begin(), missing.end());
          std::ranges::sort(lost);
        }
      }
      fail(text, std::move(lost), std::nullopt);
    }
    if (advanced) {
      patience.renew();
    } else if (!patience.pause()) {
      const std::vector<int> awaited = step.awaited();
      fail("timed out after " + milliseconds(*timeout_) + ", waiting for " +
               (awaited.empty() ? "MPI" : rank_list(awaited) + step.last_seen()),
           awaited, Reason::timed_out);
    }
  }
}

// Keeps the failure, with which every later call is answered. Peers are told for what reason this
// rank will not come any more, unless it is the departure of a peer, which they hear of themselves.
void Link::end(const TransportError& error, std::optional<Reason> reason) noexcept {
  failure_ = error;
  if (reason) say(Kind::failed, *reason);
}

void Link::end_after(const std::exception& error) noexcept {
  if (failure_) return;
  if (const auto* transport = dynamic_cast<const TransportError*>(&error)) {
    end(*transport, Reason::exception);
  } else {
    end(TransportError(position() + ": this rank gave up, " + error.what(), {rank_}),
        Reason::exception);
  }
}

void Link::say(Kind kind, Reason reason) noexcept {
  Message message;
  message.kind = kind;
  message.reason = reason;
  message.number = entered_;
  message.completed = completed_;
  message.digest = last_;
  try {
    channel_->send(message);
  } catch (const Error&) {
    // MPI cannot even say farewell; peers are left to their time limits.
  }
}

std::span<const Message> Link::enter(const Signature& mine) {
  previous_ = last_.operation;
  last_ = digest_of(mine, size_);
  ++entered_;

  Message message;
  message.kind = Kind::call;
  message.number = call_number();
  message.completed = completed_;
  message.digest = last_;
  // Counts are of use only when they are right; otherwise nobody gets to look at them.
  const bool with_counts = last_.counts_fit != 0;
  channel_->send(message, with_counts ? mine.send_counts : std::span<const std::int64_t>());
  wait(Meeting{*this});

  const std::span<const Message> messages = channel_->end_round();
  digests_.resize(messages.size());
  std::ranges::transform(messages, digests_.begin(), &Message::digest);
  if (!certainly_fit(digests_)) compare_whole_signatures(mine);
  return messages;
}

// Every rank sends its whole signature to every other; each finds the same breach, or none.
void Link::compare_whole_signatures(const Signature& mine) {
  std::vector<std::int64_t> begin{0};
  for (const SignatureDigest& digest : digests_) {
    begin.push_back(begin.back() + digest.encoded_words);
  }
  const auto words_of = [&](std::int64_t* words, int rank) {
    const auto r = static_cast<std::size_t>(rank);
    return std::span(words + begin[r], static_cast<std::size_t>(begin[r + 1] - begin[r]));
  };

  IntTensor all = IntTensor::uninitialized(DType::i64, {begin.back()});
  std::int64_t* words = all.mutable_values<std::int64_t>().data();
  std::ranges::copy(encode(mine), words_of(words, rank_).begin());
  Transfer transfer(comm_);
  transfer.keep(all);
  for (int peer = 0; peer < size_; ++peer) {
    if (peer != rank_) transfer.receive(peer, std::as_writable_bytes(words_of(words, peer)));
  }
  for (int peer = 0; peer < size_; ++peer) {
    if (peer != rank_) transfer.send(peer, std::as_bytes(words_of(words, rank_)));
  }
  finish(std::move(transfer));

  std::vector<DecodedSignature> decoded;
  std::vector<Signature> signatures;
  for (int rank = 0; rank < size_; ++rank) {
    decoded.push_back(decode_signature(words_of(words, rank)));
    signatures.push_back(decoded.back().signature);
  }
  if (const std::optional<Breach> breach = find_breach(signatures)) {
    throw ContractError(*breach, name_, call_number());
  }
}

void Link::finish(Transfer transfer) {
  try {
    wait(Delivery{*this, transfer});
  } catch (...) {
    stranded_.push_back(std::move(transfer));
    throw;
  }
}

MPI_Comm Link::form(const std::vector<int>& members, const std::string& name, bool inside_call) {
  const auto me = static_cast<int>(std::ranges::find(members, rank_) - members.begin());
  const std::uint64_t conversation = std::hash<std::string>()(name);
  auto roll =
      std::make_unique<Channel>(comm_, members, me, tags::forming(conversation), conversation);
  try {
    // Two rounds: whoever passes the second knows that all have passed the first, and so that
    // nobody has given up meanwhile. MPI_Comm_create_group blocks, and must not be entered alone.
    for (std::uint64_t round = 0; round < 2; ++round) {
      Message message;
      message.number = round;
      roll->send(message);
      wait(Forming{*this, *roll, members, name, inside_call});
      roll->end_round();
    }
    roll->stop_receiving();
  } catch (...) {
    stranded_formings_.push_back(std::move(roll));
    throw;
  }
  return create(members, tags::creation(conversation));
}

MPI_Comm Link::create(const std::vector<int>& members, int tag) {
  MPI_Group all = MPI_GROUP_NULL;
  MPI_Group chosen = MPI_GROUP_NULL;
  MPI_Comm comm = MPI_COMM_NULL;
  check(MPI_Comm_group(comm_, &all), "MPI_Comm_group");
  check(MPI_Group_incl(all, static_cast<int>(members.size()), members.data(), &chosen),
        "MPI_Group_incl");
  check(MPI_Comm_create_group(comm_, chosen, tag, &comm), "MPI_Comm_create_group");
  check(MPI_Group_free(&chosen), "MPI_Group_free");
  check(MPI_Group_free(&all), "MPI_Group_free");
  return comm;
}

void Link::leave() noexcept {
  if (!left_.exchange(true)) say(Kind::left, Reason::exception);
}

bool Link::settled() noexcept {
  try {
    channel_->receive();
    bool settled = channel_->all_left();
    for (Kind kind : {Kind::call, Kind::failed, Kind::left}) {
      settled = channel_->sent(kind) && settled;
    }
    return settled;
  } catch (const std::exception&) {
    return false;
  }
}

bool Link::idle() noexcept {
  if (!stranded_formings_.empty()) return false;  // its receives stay posted
  try {
    for (Transfer& transfer : stranded_) transfer.advance();
    return std::ranges::all_of(stranded_, &Transfer::done);
  } catch (const std::exception&) {
    return false;
  }
}

void Link::close() noexcept {
  MPI_Comm_free(&comm_);
}

}  // namespace lockstep::mpi
