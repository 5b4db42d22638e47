// One communicator's meeting point, and the census of its world.
//
// Who owns what: a Communicator holds a Seat; a Seat holds its Rendezvous and its Rank; both hold
// the Census. The census knows its rendezvous only weakly. Locks are taken in the order census,
// rendezvous; the census is never locked while a rendezvous is.
//
// A call goes through these steps. Each rank leaves its argument at the rendezvous. All but the
// last look on for a moment, then tell the census that they wait, and sleep. The last to arrive
// evaluates the call for everybody, lays each rank's result in that rank's slot, counts those who
// sleep as running again, and wakes them; each takes its own result. Nobody can enter the next call
// before it has taken its result from this one, so a slot is never written while its owner has
// something to take from it.
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
  reference::Result meet(int rank, Rank& who, reference::Call call);

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
    std::uint64_t calls = 0;  // entered here
    std::uint64_t stamp = 0;
    Membership offspring;
  };

  void await(std::uint32_t seen);
  void complete();
  void make_offspring();
  void release_locked();
  bool waits_locked(const Slot& slot) const { return !failure_ && slot.calls > completed_; }
  void fail_locked(const std::string& message);
  std::vector<int> missing_locked() const;
  std::shared_ptr<Rendezvous> offspring_of(const std::string& how,
                                           const std::vector<int>& ranks) const;

  const std::shared_ptr<Census> census_;
  const std::string name_;
  const std::vector<int> members_;
  const Options options_;
  Parking parking_;

  // Not on the cache line that those who wait look at.
  alignas(reference::cache_line) BriefMutex mutex_;
  int arrived_ = 0;
  int parked_ = 0;           // of those, how many the census counts as waiting
  bool completing_ = false;  // all have arrived, the last one is at work without the lock
  std::shared_ptr<const TransportError> failure_;
  // How many calls all members have come out of, with results or with a breach; that of the last,
  // if it had one. Both are written while everybody waits, and can be read without the lock by a
  // rank that was in that call until it enters the next.
  std::uint64_t completed_ = 0;
  std::shared_ptr<const ContractError> breach_;
  std::vector<Slot> slots_;
  // Per rank, apart from the slots because the oracle wants them side by side.
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
