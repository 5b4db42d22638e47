#include <algorithm>
#include <exception>

#include "rendezvous.hpp"

namespace lockstep::sim {
namespace {

// A table of a thousand ranks helps nobody; the first lines show the pattern.
constexpr int most_ranks_tabled = 64;

}  // namespace

Census::Census(int ranks) : running_(ranks), departures_(static_cast<std::size_t>(ranks)) {}

void Census::park() {
  if (running_.fetch_sub(1) == 1) settle_deadlock();
}

void Census::leave(int world_rank, const std::string& how) {
  {
    std::lock_guard lock(mutex_);
    std::optional<std::string>& departure = departures_[static_cast<std::size_t>(world_rank)];
    if (departure) return;
    const std::string last = describe_locked(world_rank);
    departure = how + " (" + last + ")";
    for (const std::shared_ptr<Rendezvous>& rendezvous : living_locked()) {
      if (const std::optional<int> rank = rendezvous->rank_of(world_rank)) {
        rendezvous->depart(*rank, *departure);
      }
    }
  }
  park();
}

void Census::enroll(const std::shared_ptr<Rendezvous>& rendezvous) {
  std::lock_guard lock(mutex_);
  // Room is made now and then, so that a program that splits for ever does not grow for ever.
  if (rendezvous_.size() == rendezvous_.capacity()) {
    std::erase_if(rendezvous_, [](const auto& weak) { return weak.expired(); });
  }
  rendezvous_.push_back(rendezvous);
  for (std::size_t rank = 0; rank < rendezvous->members().size(); ++rank) {
    const int world_rank = rendezvous->members()[rank];
    const std::optional<std::string>& departure = departures_[static_cast<std::size_t>(world_rank)];
    if (departure) rendezvous->depart(static_cast<int>(rank), *departure);
  }
}

std::string Census::describe(int world_rank) {
  std::lock_guard lock(mutex_);
  return describe_locked(world_rank);
}

std::string Census::describe_locked(int world_rank) {
  if (const auto& departure = departures_[static_cast<std::size_t>(world_rank)]) return *departure;
  Rendezvous::LastCall last;
  for (const std::shared_ptr<Rendezvous>& rendezvous : living_locked()) {
    if (const std::optional<int> rank = rendezvous->rank_of(world_rank)) {
      Rendezvous::LastCall call = rendezvous->last_call(*rank);
      if (call.stamp > last.stamp) last = std::move(call);
    }
  }
  if (last.stamp == 0) return "made no call";
  switch (last.state) {
    case Rendezvous::LastCall::State::waiting:
      return "waits in " + last.text;
    case Rendezvous::LastCall::State::failed:
      return "last failed in " + last.text;
    default:
      return "last completed " + last.text;
  }
}

std::vector<std::shared_ptr<Rendezvous>> Census::living_locked() {
  std::vector<std::shared_ptr<Rendezvous>> living;
  for (const std::weak_ptr<Rendezvous>& weak : rendezvous_) {
    if (std::shared_ptr<Rendezvous> rendezvous = weak.lock()) {
      living.push_back(std::move(rendezvous));
    }
  }
  return living;
}

// Nobody runs. If anybody waits, it waits for ever.
void Census::settle_deadlock() {
  std::lock_guard lock(mutex_);
  // Somebody's time limit may have released a communicator since.
  if (running_.load() > 0) return;
  const std::vector<std::shared_ptr<Rendezvous>> living = living_locked();
  if (std::ranges::none_of(living, [](const auto& r) { return r->anybody_waits(); })) return;

  std::string table;
  for (int rank = 0; rank < ranks(); ++rank) {
    if (rank == most_ranks_tabled) {
      table += "\n  and " + std::to_string(ranks() - rank) + " more ranks";
      break;
    }
    table += "\n  world rank " + std::to_string(rank) + " " + describe_locked(rank);
  }
  if (running_.load() > 0) return;  // or while this was written down
  for (const std::shared_ptr<Rendezvous>& rendezvous : living) {
    if (rendezvous->anybody_waits()) {
      rendezvous->fail(
          "communicator " + rendezvous->name() +
          ": its call can never complete, since every rank that still runs is waiting" + table);
    }
  }
}

Rank::~Rank() {
  census->leave(world_rank, "dropped its last handle");
}

void Rank::announce_dropped() {
  std::vector<std::pair<std::weak_ptr<Rendezvous>, int>> dropped;
  {
    std::lock_guard lock(mutex);
    dropped.swap(dropped_unwinding);
    has_dropped = false;
  }
  for (const auto& [weak, rank] : dropped) {
    if (const std::shared_ptr<Rendezvous> rendezvous = weak.lock()) {
      rendezvous->depart(rank, "dropped its last handle on this communicator in an exception");
    }
  }
}

Seat::~Seat() {
  if (!leaves_when_dropped) return;
  if (std::uncaught_exceptions() > 0) {
    std::lock_guard lock(who->mutex);
    who->dropped_unwinding.emplace_back(rendezvous, rank);
    who->has_dropped = true;
  } else {
    rendezvous->depart(rank, "dropped its last handle on this communicator");
  }
}

}  // namespace lockstep::sim
