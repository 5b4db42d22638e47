// The ranks of one communicator, and where their calls meet.
//
// A rank *announces* a launch when the program calls NCCL: one operation, or all operations of a
// group on this communicator. Operations are matched then: the n-th collective of a rank with the
// n-th of every other, and the n-th send from s to d with the n-th receive at d from s. Ranks that
// disagree are found out at the call, before anything ran. The rank *arrives* when its stream has
// come to the launch: from then on its send buffers hold what the operation is to move. An
// operation is carried out, for all its ranks at once, when the last one it needs arrives; a launch
// is finished when all its operations are.
//
// The clique lives in the process that made the unique id. Ranks in other processes are members
// too; their buffers are copies that travel over a socket. Everything here is guarded by the
// engine's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "call.hpp"
#include "engine.hpp"
#include "ring.hpp"

namespace lockstep::nccl {

struct Meeting;
using MeetingRef = std::shared_ptr<Meeting>;

// Why a communicator is of no use any more.
struct Failure {
  ncclResult_t result = ncclSuccess;
  std::string what;   // a sentence
  bool told = false;  // there was a finding
};

// How a rank leaves.
enum class Departure : std::uint8_t {
  orderly,     // destroyed: a finding if somebody waits for it
  on_purpose,  // aborted or given up, which the program knows of
  reported,    // it cannot go on, and a finding has said why
  died,        // its process ended: a finding
};

// One rank's operations of one group.
struct Launch {
  int rank = 0;
  std::uint64_t number = 0;  // the rank's launches on this communicator, counted from 0
  std::vector<Call> calls;
  // Which thread announced it, and in which group of that thread: several ranks of one thread have
  // to be in one group. Zero for communicators that do not block, where that is no must.
  std::uint64_t thread = 0;
  std::uint64_t group = 0;
  devices::NodeRef node;  // of a rank in this process

  bool arrived = false;
  bool finished = false;
  // Filled on arrival, per call.
  std::vector<const std::byte*> inputs;
  std::vector<std::byte*> outputs;
  std::vector<Scalar> scalars;
  // The clique's own:
  std::vector<MeetingRef> meetings;
  std::size_t open = 0;   // calls that are not carried out yet
  bool demanded = false;  // a rank in another process was asked to come to it
};
using LaunchRef = std::shared_ptr<Launch>;

// What the clique tells a rank. Called with the engine's lock held.
class Member {
 public:
  virtual ~Member() = default;
  virtual void finished(Launch& launch) = 0;
  // Another rank has arrived and waits for this launch: it is time to run it.
  virtual void demanded(std::uint64_t launch) = 0;
  virtual void failed(const Failure& failure) = 0;
  // A rank of another process than the clique's.
  virtual bool remote() const = 0;
};

class Clique : public std::enable_shared_from_this<Clique> {
 public:
  struct Seat {
    Member* member = nullptr;  // null once the rank has left
    int device = 0;
    std::string place;  // "process 1234" where it is another one
    std::string left;   // "was destroyed", "was aborted", "died": completes "rank 3 ..."
  };

  // `name` is for reports.
  Clique(std::string name, std::vector<Seat> seats, std::uint64_t seed);

  const std::string& name() const { return name_; }
  int ranks() const { return static_cast<int>(seats_.size()); }
  const Seat& seat(int rank) const { return seats_[static_cast<std::size_t>(rank)]; }
  const std::optional<Failure>& failure() const { return failure_; }

  // Matches the operations of a launch with those of the other ranks. What is wrong is reported and
  // becomes everybody's failure.
  void announce(const LaunchRef& launch);
  // The launch's stream has come to it; inputs, outputs and scalars are set. Carries out what can
  // be.
  void arrive(const LaunchRef& launch);

  // The other ranks' launches that must still arrive, as far as they are announced.
  std::vector<LaunchRef> missing(const Launch& launch) const;
  // Completes "waits for ...".
  std::string awaited(const Launch& launch) const;
  // Whether one of those missing is in another process; whether any rank is.
  bool awaits_others(const Launch& launch) const;
  bool has_others() const;

  // A rank will make no more calls; `how` completes "rank 3 ...". What needs it still can never be
  // carried out, which is a failure; when it did not leave as it should, so is its leaving.
  void leave(int rank, const std::string& how, Departure departure);
  void fail(const Failure& failure);

  // "rank 2 (device 1, process 77)"
  std::string describe(int rank) const;

 private:
  MeetingRef meeting_for(const Launch& launch, const Call& call, std::size_t& seat);
  bool check(const Meeting& meeting, const Launch& launch, const Call& call);
  void carry_out(Meeting& meeting);
  void carry_out_reduction(Meeting& meeting);
  bool find_deadlock(const Launch& launch);
  std::vector<int> awaited_ranks(const Launch& launch) const;
  std::optional<std::pair<LaunchRef, std::size_t>> waiting_for(int rank) const;
  void demand_missing(const Launch& launch);
  std::string row(const Launch& launch, const Call& call) const;
  void blame(const char* rule, const std::string& what, std::vector<std::string> details,
             const char* advice, const Launch& launch, const Call& call, ncclResult_t result);

  const std::string name_;
  std::vector<Seat> seats_;
  const Ring ring_;
  std::optional<Failure> failure_;

  // Collectives that some rank has announced and not all have carried out.
  std::deque<MeetingRef> collectives_;
  std::uint64_t first_collective_ = 0;          // the number of collectives_.front()
  std::vector<std::uint64_t> next_collective_;  // by rank
  // Transfers from a rank to another that lack a side, in order.
  std::map<std::pair<int, int>, std::deque<MeetingRef>> transfers_;
  std::vector<std::deque<LaunchRef>> unfinished_;  // by rank, in order
};

}  // namespace lockstep::nccl
