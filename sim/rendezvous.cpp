#include "rendezvous.hpp"

#include <algorithm>
#include <thread>

namespace lockstep::sim {
namespace {

// Looking on for this many rounds takes a few microseconds, about what sleeping and waking costs.
constexpr int spin_rounds = 400;

int spin_for(std::size_t members) {
  return members <= std::thread::hardware_concurrency() ? spin_rounds : 0;
}

// "{4, 6, 7, 5}"; long lists are cut short.
std::string braced(const std::vector<int>& ranks) {
  constexpr std::size_t most_named = 16;
  std::string text = "{";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i > 0) text += ", ";
    if (i == most_named) return text + std::to_string(ranks.size() - i) + " more}";
    text += std::to_string(ranks[i]);
  }
  return text + "}";
}

std::string call_text(Operation operation, std::uint64_t call, const std::string& communicator) {
  return std::string(lockstep::name(operation)) + ", call " + std::to_string(call) + " on " +
         communicator;
}

}  // namespace

Rendezvous::Rendezvous(std::shared_ptr<Census> census, std::string name, std::vector<int> members,
                       const Options& options)
    : census_(std::move(census)),
      name_(std::move(name)),
      members_(std::move(members)),
      options_(options),
      parking_(spin_for(members_.size())),
      slots_(members_.size()),
      calls_(members_.size()),
      results_(members_.size()) {}

reference::Result Rendezvous::meet(int rank, Rank& who, reference::Call call) {
  const auto r = static_cast<std::size_t>(rank);
  std::unique_lock lock(mutex_);
  if (failure_) throw TransportError(*failure_);
  Slot& slot = slots_[r];
  slot.calls += 1;
  slot.stamp = ++who.calls;
  calls_[r] = std::move(call);
  if (++arrived_ == static_cast<int>(members_.size())) {
    completing_ = true;
    lock.unlock();
    complete();
  } else {
    const std::uint32_t seen = parking_.epoch();
    lock.unlock();
    if (!parking_.linger(seen)) await(seen);
  }

  calls_[r].tensor = Tensor();  // the caller's storage is the caller's again
  if (slot.calls > completed_) throw TransportError(*failure_);
  if (breach_) throw ContractError(*breach_);
  return std::move(results_[r]);
}

// Told to the census only now: between ranks in step nobody comes here, and a count that all of
// them change at every call would go back and forth between the cores.
void Rendezvous::await(std::uint32_t seen) {
  {
    std::lock_guard lock(mutex_);
    if (parking_.epoch() != seen) return;
    parked_ += 1;
  }
  census_->park();
  std::optional<Parking::Clock::time_point> deadline;
  if (options_.timeout) {
    deadline = Parking::Clock::now() +
               std::chrono::duration_cast<Parking::Clock::duration>(*options_.timeout);
  }
  while (!parking_.sleep(seen, deadline)) {
    // Too late, unless the last one arrives while we find out what the missing ones are doing.
    std::vector<int> missing;
    {
      std::lock_guard lock(mutex_);
      missing = missing_locked();
    }
    const auto limit = std::chrono::duration_cast<std::chrono::milliseconds>(*options_.timeout);
    std::string message = "communicator " + name_ + ": " + std::to_string(missing.size()) + " of " +
                          std::to_string(members_.size()) + " ranks did not arrive within " +
                          std::to_string(limit.count()) + " ms";
    for (int rank : missing) {
      const int world_rank = members_[static_cast<std::size_t>(rank)];
      message += "\n  rank " + std::to_string(rank) + " " + census_->describe(world_rank);
    }
    std::lock_guard lock(mutex_);
    if (parking_.epoch() == seen && !completing_) fail_locked(message);
    deadline.reset();  // it will end: either it has failed just now, or everybody is there
  }
}

// Called by the last to arrive, alone.
void Rendezvous::complete() {
  std::shared_ptr<const ContractError> breach;
  std::optional<std::string> trouble;
  try {
    if (const std::optional<Breach> found =
            reference::evaluate(calls_, options_.sum_rule, results_)) {
      breach = std::make_shared<ContractError>(*found, name_, slots_[0].calls - 1);
    } else if (calls_[0].operation == Operation::split) {
      make_offspring();
    }
  } catch (const std::exception& error) {
    trouble = error.what();
  }
  {
    std::lock_guard lock(mutex_);
    completing_ = false;
    if (!trouble) {
      completed_ += 1;
      breach_ = std::move(breach);
    } else if (!failure_) {
      failure_ = std::make_shared<TransportError>(
          "communicator " + name_ + ": " +
              call_text(calls_[0].operation, slots_[0].calls - 1, name_) +
              " could not be computed: " + *trouble,
          std::vector<int>());
    }
    release_locked();
  }
  parking_.wake();
}

// Everybody who waits may go. Wakes nobody yet.
void Rendezvous::release_locked() {
  arrived_ = 0;
  if (parked_ > 0) census_->unpark(std::exchange(parked_, 0));
  parking_.advance();
}

void Rendezvous::fail_locked(const std::string& message) {
  if (failure_) return;
  failure_ = std::make_shared<TransportError>(message, missing_locked());
  if (completing_) return;  // that call is complete: whoever is in it gets its result
  release_locked();
  parking_.wake();
}

void Rendezvous::fail(const std::string& message) {
  std::lock_guard lock(mutex_);
  fail_locked(message);
}

void Rendezvous::depart(int rank, const std::string& how) {
  const int world_rank = members_[static_cast<std::size_t>(rank)];
  std::string who = "rank " + std::to_string(rank);
  if (world_rank != rank) who += " (world rank " + std::to_string(world_rank) + ")";
  std::lock_guard lock(mutex_);
  fail_locked("communicator " + name_ + ": " + who + " can no longer arrive: it " + how);
}

// --- sub-communicators ---

Rendezvous::Membership Rendezvous::split(int rank, Rank& who, std::int64_t color,
                                         std::int64_t key) {
  const std::int64_t values[] = {color, key};
  meet(rank, who, {Operation::split, IntTensor::of<std::int64_t>({2}, values)});
  return std::move(slots_[static_cast<std::size_t>(rank)].offspring);
}

// Called by the last to arrive in a split, alone.
void Rendezvous::make_offspring() {
  struct Wish {
    std::int64_t color, key;
    int rank;
    auto operator<=>(const Wish&) const = default;  // by color, then key, then rank here
  };
  std::vector<Wish> wishes;
  for (std::size_t rank = 0; rank < calls_.size(); ++rank) {
    const auto values = calls_[rank].tensor.values<std::int64_t>();
    wishes.push_back({values[0], values[1], static_cast<int>(rank)});
  }
  std::ranges::sort(wishes);
  for (auto first = wishes.begin(); first != wishes.end();) {
    const auto last = std::ranges::find_if(
        first, wishes.end(), [&](const Wish& wish) { return wish.color != first->color; });
    std::vector<int> ranks;
    for (auto wish = first; wish != last; ++wish) ranks.push_back(wish->rank);
    const auto offspring = offspring_of("split@" + std::to_string(slots_[0].calls - 1), ranks);
    for (auto wish = first; wish != last; ++wish) {
      slots_[static_cast<std::size_t>(wish->rank)].offspring = {offspring,
                                                                static_cast<int>(wish - first)};
    }
    first = last;
  }
}

Rendezvous::Membership Rendezvous::group(int rank, std::span<const int> ranks) {
  const std::vector<int> list(ranks.begin(), ranks.end());
  const auto complain = [&](const std::string& what) {
    throw InvalidArgument("communicator " + name_ + ": " + braced(list) + " is no group: " + what);
  };
  if (list.empty()) complain("it has no ranks");
  std::vector<bool> named(members_.size());
  for (int member : list) {
    if (member < 0 || static_cast<std::size_t>(member) >= members_.size()) {
      complain(std::to_string(member) + " is not one of ranks 0 to " +
               std::to_string(members_.size() - 1));
    }
    if (named[static_cast<std::size_t>(member)]) {
      complain("rank " + std::to_string(member) + " is named twice");
    }
    named[static_cast<std::size_t>(member)] = true;
  }
  const auto own = std::ranges::find(list, rank);
  if (own == list.end()) complain("rank " + std::to_string(rank) + ", which asks, is not in it");

  std::lock_guard lock(groups_mutex_);
  std::shared_ptr<Rendezvous>& group = groups_[list];
  if (!group) group = offspring_of("group", list);
  return {group, static_cast<int>(own - list.begin())};
}

std::shared_ptr<Rendezvous> Rendezvous::offspring_of(const std::string& how,
                                                     const std::vector<int>& ranks) const {
  std::vector<int> world_ranks;
  for (int rank : ranks) world_ranks.push_back(members_[static_cast<std::size_t>(rank)]);
  auto offspring = std::make_shared<Rendezvous>(census_, name_ + "." + how + braced(world_ranks),
                                                world_ranks, options_);
  census_->enroll(offspring);
  return offspring;
}

// --- what the census asks ---

std::vector<int> Rendezvous::missing_locked() const {
  std::vector<int> missing;
  for (std::size_t rank = 0; rank < slots_.size(); ++rank) {
    if (!waits_locked(slots_[rank])) missing.push_back(static_cast<int>(rank));
  }
  return missing;
}

std::optional<int> Rendezvous::rank_of(int world_rank) const {
  const auto member = std::ranges::find(members_, world_rank);
  if (member == members_.end()) return std::nullopt;
  return static_cast<int>(member - members_.begin());
}

bool Rendezvous::anybody_waits() {
  std::lock_guard lock(mutex_);
  return arrived_ > 0;
}

Rendezvous::LastCall Rendezvous::last_call(int rank) {
  std::lock_guard lock(mutex_);
  const Slot& slot = slots_[static_cast<std::size_t>(rank)];
  LastCall last;
  last.stamp = slot.stamp;
  if (slot.calls == 0) return last;
  last.text = call_text(calls_[static_cast<std::size_t>(rank)].operation, slot.calls - 1, name_);
  if (waits_locked(slot)) {
    last.state = LastCall::State::waiting;
    std::vector<int> awaited;
    for (int missing : missing_locked()) {
      awaited.push_back(members_[static_cast<std::size_t>(missing)]);
    }
    std::ranges::sort(awaited);
    last.text += ", for world " + rank_list(awaited);
  } else if (slot.calls > completed_) {
    last.state = LastCall::State::failed;
  }
  return last;
}

}  // namespace lockstep::sim
