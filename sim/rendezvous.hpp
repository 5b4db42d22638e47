// One communicator's meeting point, and the census of its world.
//
// Who owns what: a Communicator holds a Seat; a Seat holds its Rendezvous and its Rank; both hold
// the Census. The census knows its rendezvous only weakly. Locks are taken in the order census,
// rendezvous; the census is never locked while a rendezvous is.
//
// A call goes through these steps. Each rank leaves its argument at the rendezvous and counts
// itself as arrived. All but the last look on for a moment, then tell the census that they wait,
// and sleep. The last to arrive evaluates the call for everybody, lays out each rank's result, says
// so, counts those who sleep as running again, and wakes them; each takes its own result. Nobody
// can enter the next call before it has taken its result from this one, so a result is never
// written while its owner has something to take.
//
// Ranks in step take no lock: between two cores, each cache line that goes back and forth is a good
// part of what a small call costs, and so there are as few as can be. The lock is for those who
// sleep, who fail, and who ask.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/error.hpp>
#include <lockstep/oracle.hpp>
#include <lockstep/sim/world.hpp>

#include "brief_mutex.hpp"
#include "parking.hpp"

namespace lockstep::sim {

class Rendezvous;

// Which ranks of a world still run, which wait, which have left. "Running" is everything that is
// not waiting in a rendezvous and has not left: when nobody runs, nothing can arrive any more.
class Census {
 public:
  explicit Census(int ranks);

  int ranks() const { return static_cast<int>(departures_.size()); }

  // The calling rank waits from here on. The last one to stop running settles what that means:
  // every waiting rank gets the table of who waits where.
  void park();
  // `count` waiting ranks run again.
  void unpark(int count) { running_.fetch_add(count); }
  // The rank has left for good; `how` completes "rank 3 ...". Every communicator that needs it
  // fails. Only the first departure of a rank counts.
  void leave(int world_rank, const std::string& how);

  // Makes a new rendezvous known. If a member has left already, it fails from the start.
  void enroll(const std::shared_ptr<Rendezvous>& rendezvous);
  // "waits in all_reduce_sum, call 3 on world", "returned after all_gather_int, call 0 on world",
  // "runs its own code after ...".
  std::string describe(int world_rank);

 private:
  std::vector<std::shared_ptr<Rendezvous>> living_locked();
  std::string describe_locked(int world_rank);
  void settle_deadlock();

  std::atomic<int> running_;
  std::mutex mutex_;
  std::vector<std::weak_ptr<Rendezvous>> rendezvous_;
  std::vector<std::optional<std::string>> departures_;  // by world rank
};

// A rank of a world, shared by all its communicators.
struct Rank {
  Rank(std::shared_ptr<Census> census_, int world_rank_)
      : census(std::move(census_)), world_rank(world_rank_) {}
  ~Rank();

  const std::shared_ptr<Census> census;
  const int world_rank;
  // In a call, on whichever communicator. Guards against two threads that use one rank at once.
  std::atomic<bool> busy{false};
  // Orders this rank's calls over all its communicators, so that "what it did last" can be told.
  std::uint64_t calls = 0;

  // Communicators whose last handle was dropped by an exception on its way out. If it goes on to
  // end the rank, the peers should hear about the exception rather than about the handle; if it is
  // caught, they hear at the rank's next call.
  std::mutex mutex;
  std::vector<std::pair<std::weak_ptr<Rendezvous>, int>> dropped_unwinding;
  std::atomic<bool> has_dropped{false};  // whether it is worth locking for
  void announce_dropped();
};

class Rendezvous {
 public:
  // `members` are the world ranks, in the communicator's order.
  Rendezvous(std::shared_ptr<Census> census, std::string name, std::vector<int> members,
             const Options& options);

  const std::string& name() const { return name_; }
  const std::vector<int>& members() const { return members_; }

  // Enters a call as `rank` of this communicator and returns when it is complete. Throws
  // ContractError and TransportError.
  reference::Result meet(int rank, Rank& who, const reference::Call& call);

  // A communicator made by a collective or a local call, and the caller's rank in it.
  struct Membership {
    std::shared_ptr<Rendezvous> rendezvous;
    int rank;
  };
  Membership split(int rank, Rank& who, std::int64_t color, std::int64_t key);
  Membership group(int rank, std::span<const int> ranks);

  // From now on every call, also one that is waiting, gets a TransportError with this message.
  // Nothing happens to a call whose members have all arrived, nor when it has failed before.
  void fail(const std::string& message);
  // As fail(), for a member that can no longer arrive; `how` completes "rank 3 ...".
  void depart(int rank, const std::string& how);

  // For the census: the latest call of a member on this communicator.
  struct LastCall {
    std::uint64_t stamp = 0;  // 0: none
    enum class State { completed, failed, waiting } state = State::completed;
    std::string text;
  };
  LastCall last_call(int rank);
  bool anybody_waits();
  std::optional<int> rank_of(int world_rank) const;

 private:
  // What only its rank writes, but for the offspring: on cache lines of its own, since the ranks
  // are on different cores.
  struct alignas(reference::cache_line) Slot {
    // The latest call entered here, as number * 256 + operation, so that both are of one call.
    // Numbers begin with 1; 0 is none.
    std::atomic<std::uint64_t> latest{0};
    std::atomic<std::uint64_t> stamp{0};
    Membership offspring;
  };

  // A rank that has arrived must not leave before its call has ended, for others may be at its
  // argument: when there is no memory even for an error, that is the end.
  void await(std::uint32_t seen, std::uint64_t number) noexcept;
  void complete(std::uint64_t number) noexcept;
  void make_offspring(std::uint64_t number);
  // Fails this communicator, or nothing if it has failed before; with `waiting_in`, only while that
  // call has not seen all members arrive.
  void fail_locked(const std::string& message, std::optional<std::uint64_t> waiting_in = {});
  void release_failed_locked(std::uint64_t number);
  void unpark_locked(std::uint64_t number, int ranks);
  [[noreturn]] void throw_failure();
  // Those who are not in the call that follows the one that `word` tells of.
  std::vector<int> missing_locked(std::uint32_t word) const;
  std::shared_ptr<Rendezvous> offspring_of(const std::string& how,
                                           const std::vector<int>& ranks) const;

  // Never written once it is made.
  const std::shared_ptr<Census> census_;
  const std::string name_;
  const std::vector<int> members_;
  const Options options_;

  // How many calls have been completed, with results or with a breach; see `progress` in
  // rendezvous.cpp.
  Parking parking_;

  // All arrivals so far, over all calls: with N members, call number k is complete with the arrival
  // k * N. Once the bit `closed` is set nobody arrives any more: this communicator has failed.
  static constexpr std::uint64_t closed = std::uint64_t{1} << 63;
  alignas(reference::cache_line) std::atomic<std::uint64_t> arrivals_{0};

  alignas(reference::cache_line) BriefMutex mutex_;
  // How many ranks the census counts as waiting in the calls of even and of odd numbers. Two, since
  // a rank may wait in the next call before the last to arrive in this one has looked. Changed
  // under the lock.
  std::atomic<int> parked_[2] = {0, 0};
  std::shared_ptr<const TransportError> failure_;  // under the lock
  // Of the latest call that had one. Written while everybody waits, and read by a rank that was in
  // that call before it enters the next.
  std::shared_ptr<const ContractError> breach_;

  // Per rank. Entries share no cache line.
  std::vector<Slot> slots_;
  std::vector<reference::Call> calls_;
  std::vector<reference::Result> results_;

  // Its own lock, taken before the census's.
  std::mutex groups_mutex_;
  std::map<std::vector<int>, std::shared_ptr<Rendezvous>> groups_;
};

// What a Communicator shares with its copies.
struct Seat {
  Seat(std::shared_ptr<Rendezvous> rendezvous_, int rank_, std::shared_ptr<Rank> who_,
       bool leaves_when_dropped_)
      : rendezvous(std::move(rendezvous_)),
        rank(rank_),
        who(std::move(who_)),
        leaves_when_dropped(leaves_when_dropped_) {}
  ~Seat();

  const std::shared_ptr<Rendezvous> rendezvous;
  const int rank;
  const std::shared_ptr<Rank> who;
  // A communicator that cannot be had a second time is left for good with its last handle.
  const bool leaves_when_dropped;
};

}  // namespace lockstep::sim
