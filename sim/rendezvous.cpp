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

// What the word that waiting ranks look at says: 4 * (completed calls, modulo 2^30), and two bits.
// The members of a communicator are in one call or between that and the next, so that whether a
// call is complete can be told from the number modulo anything.
namespace progress {
constexpr std::uint32_t failed = 1;    // those who wait now wait in vain
constexpr std::uint32_t breached = 2;  // the last completed call broke the contract

constexpr std::uint32_t after(std::uint64_t number) {
  return static_cast<std::uint32_t>(number) << 2;
}
constexpr bool is_complete(std::uint32_t word, std::uint64_t number) {
  return (word & ~(failed | breached)) == after(number);
}
}  // namespace progress

constexpr std::uint64_t latest_of(std::uint64_t number, Operation operation) {
  return number << 8 | static_cast<std::uint64_t>(operation);
}
constexpr std::uint64_t number_of(std::uint64_t latest) {
  return latest >> 8;
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

reference::Result Rendezvous::meet(int rank, Rank& who, const reference::Call& call) {
  const auto r = static_cast<std::size_t>(rank);
  Slot& slot = slots_[r];
  const std::uint64_t last = slot.latest.load(std::memory_order_relaxed);
  const std::uint64_t last_stamp = slot.stamp.load(std::memory_order_relaxed);
  const std::uint64_t number = number_of(last) + 1;
  slot.stamp.store(++who.calls, std::memory_order_relaxed);
  slot.latest.store(latest_of(number, call.operation), std::memory_order_release);
  calls_[r] = call;

  const std::uint32_t seen = parking_.word();  // not later, when it may have changed already
  const std::uint64_t before = arrivals_.fetch_add(1);
  if ((before & closed) != 0) {
    slot.stamp.store(last_stamp, std::memory_order_relaxed);
    slot.latest.store(last, std::memory_order_release);  // this call was never entered
    throw_failure();
  }
  if (before + 1 == number * members_.size()) {
    complete(number);
  } else if (!parking_.linger(seen)) {
    await(seen, number);
  }

  const std::uint32_t word = parking_.word();
  if (!progress::is_complete(word, number)) throw_failure();
  if ((word & progress::breached) != 0) throw ContractError(*breach_);
  return std::move(results_[r]);
}

// Told to the census only now: between ranks in step nobody comes here, and a count that all of
// them change at every call would go back and forth between the cores.
void Rendezvous::await(std::uint32_t seen, std::uint64_t number) noexcept {
  std::atomic<int>& parked = parked_[number % 2];
  {
    std::lock_guard lock(mutex_);
    // In this order: either the call is seen to have ended here, or this rank is seen to be parked
    // by who ends it.
    parked.fetch_add(1);
    if (parking_.word() != seen) {
      parked.fetch_sub(1);
      return;
    }
  }
  census_->park();
  std::optional<Parking::Clock::time_point> deadline;
  // A limit of decades is none, and would go beyond what a clock can tell.
  if (options_.timeout && *options_.timeout < std::chrono::years(100)) {
    deadline = Parking::Clock::now() +
               std::chrono::duration_cast<Parking::Clock::duration>(*options_.timeout);
  }
  while (!parking_.sleep(seen, deadline)) {
    deadline.reset();  // it will end: either it fails just now, or everybody is there
    // Too late, unless the last one arrives while we find out what the missing ones are doing.
    std::vector<int> missing;
    {
      std::lock_guard lock(mutex_);
      missing = missing_locked(parking_.word());
    }
    if (missing.empty()) continue;
    const auto limit = std::chrono::duration_cast<std::chrono::milliseconds>(*options_.timeout);
    std::string message = "communicator " + name_ + ": " + std::to_string(missing.size()) + " of " +
                          std::to_string(members_.size()) + " ranks did not arrive within " +
                          std::to_string(limit.count()) + " ms";
    for (int rank : missing) {
      const int world_rank = members_[static_cast<std::size_t>(rank)];
      message += "\n  rank " + std::to_string(rank) + " " + census_->describe(world_rank);
    }
    std::lock_guard lock(mutex_);
    fail_locked(message, number);
  }
  // Whoever ended the call counts the parked as running before it goes on, and mostly before they
  // wake. A rank that is faster counts itself: it must not run, let alone park again, uncounted.
  if (parked.load() > 0) {
    std::lock_guard lock(mutex_);
    if (parked.load() > 0) unpark_locked(number, 1);
  }
}

// First the census, since others look at what is left to be counted without the lock, and go on
// when that is nothing.
void Rendezvous::unpark_locked(std::uint64_t number, int ranks) {
  census_->unpark(ranks);
  parked_[number % 2].fetch_sub(ranks);
}

// Called by the last to arrive, alone.
void Rendezvous::complete(std::uint64_t number) noexcept {
  std::uint32_t word = progress::after(number);
  try {
    if (const std::optional<Breach> found =
            reference::evaluate(calls_, options_.sum_rule, results_)) {
      breach_ = std::make_shared<ContractError>(*found, name_, number - 1);
      word |= progress::breached;
    } else if (calls_[0].operation == Operation::split) {
      make_offspring(number);
    }
  } catch (const std::exception& error) {
    {
      std::lock_guard lock(mutex_);
      fail_locked("communicator " + name_ + ": " +
                  call_text(calls_[0].operation, number - 1, name_) +
                  " could not be computed: " + error.what());
      release_failed_locked(number);
    }
    parking_.wake();
    return;
  }

  parking_.change_to(word);
  // This rank counts as running as long as it has not counted the others, so that the census never
  // takes those who are about to wake for a world in which nobody runs.
  if (const std::atomic<int>& parked = parked_[number % 2]; parked.load() > 0) {
    std::lock_guard lock(mutex_);
    unpark_locked(number, parked.load());
  }
  parking_.wake();
}

// Those who wait in this call may go, without having it completed. Wakes nobody yet.
void Rendezvous::release_failed_locked(std::uint64_t number) {
  unpark_locked(number, parked_[number % 2].load());
  parking_.add_bits(progress::failed);
}

void Rendezvous::fail_locked(const std::string& message, std::optional<std::uint64_t> waiting_in) {
  if (failure_) return;
  std::uint64_t arrived = arrivals_.load();
  std::uint64_t number;  // of the call that is being entered, or will be next
  std::shared_ptr<const TransportError> failure;
  do {
    number = arrived / members_.size() + 1;
    if (waiting_in && number != *waiting_in) return;
    failure = std::make_shared<TransportError>(message, missing_locked(parking_.word()));
  } while (!arrivals_.compare_exchange_strong(arrived, arrived | closed));
  failure_ = std::move(failure);
  // Where all have arrived, that call is as good as complete: whoever is in it gets its result.
  if (arrived % members_.size() == 0) return;
  release_failed_locked(number);
  parking_.wake();
}

void Rendezvous::throw_failure() {
  std::lock_guard lock(mutex_);  // the bit is set before the words are there
  throw TransportError(*failure_);
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
  const auto wish = IntTensor::of<std::int64_t>({2}, {color, key});
  meet(rank, who, {Operation::split, &wish});
  return std::move(slots_[static_cast<std::size_t>(rank)].offspring);
}

// Called by the last to arrive in a split, alone.
void Rendezvous::make_offspring(std::uint64_t number) {
  struct Wish {
    std::int64_t color, key;
    int rank;
    auto operator<=>(const Wish&) const = default;  // by color, then key, then rank here
  };
  std::vector<Wish> wishes;
  for (std::size_t rank = 0; rank < calls_.size(); ++rank) {
    const auto values = calls_[rank].tensor->values<std::int64_t>();
    wishes.push_back({values[0], values[1], static_cast<int>(rank)});
  }
  std::ranges::sort(wishes);
  for (auto first = wishes.begin(); first != wishes.end();) {
    const auto last = std::ranges::find_if(
        first, wishes.end(), [&](const Wish& wish) { return wish.color != first->color; });
    std::vector<int> ranks;
    for (auto wish = first; wish != last; ++wish) ranks.push_back(wish->rank);
    const auto offspring = offspring_of("split@" + std::to_string(number - 1), ranks);
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

std::vector<int> Rendezvous::missing_locked(std::uint32_t word) const {
  std::vector<int> missing;
  for (std::size_t rank = 0; rank < slots_.size(); ++rank) {
    if (progress::is_complete(word, number_of(slots_[rank].latest.load()))) {
      missing.push_back(static_cast<int>(rank));
    }
  }
  return missing;
}

std::optional<int> Rendezvous::rank_of(int world_rank) const {
  const auto member = std::ranges::find(members_, world_rank);
  if (member == members_.end()) return std::nullopt;
  return static_cast<int>(member - members_.begin());
}

bool Rendezvous::anybody_waits() {
  const std::uint64_t arrived = arrivals_.load();
  return (arrived & closed) == 0 && arrived % members_.size() != 0;
}

Rendezvous::LastCall Rendezvous::last_call(int rank) {
  std::lock_guard lock(mutex_);
  const Slot& slot = slots_[static_cast<std::size_t>(rank)];
  const std::uint32_t word = parking_.word();  // before what its rank may be changing
  const std::uint64_t latest = slot.latest.load();
  LastCall last;
  if (latest == 0) return last;
  last.stamp = slot.stamp.load();
  last.text = call_text(static_cast<Operation>(latest & 0xff), number_of(latest) - 1, name_);
  if (progress::is_complete(word, number_of(latest))) return last;
  if (failure_) {
    last.state = LastCall::State::failed;
    return last;
  }
  last.state = LastCall::State::waiting;
  std::vector<int> awaited;
  for (int missing : missing_locked(word)) {
    awaited.push_back(members_[static_cast<std::size_t>(missing)]);
  }
  std::ranges::sort(awaited);
  if (!awaited.empty()) last.text += ", for world " + rank_list(awaited);
  return last;
}

}  // namespace lockstep::sim
