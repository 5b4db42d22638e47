// What an ncclComm_t points to: one rank of one communicator.
//
// A communicator is never freed: the handle of a destroyed one can then be told from a live one,
// and its late use reported. Its state is guarded by the engine's lock, but for `user`.
//
// A communicator with config.blocking = 0 behaves as late as NCCL allows: joining, and putting
// operations into streams, happens when the program polls, some polls later; until then calls on it
// return ncclInProgress or are refused.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gathering.hpp"
#include "launch.hpp"
#include "link.hpp"

namespace lockstep::nccl {

enum class Life : std::uint8_t { joining, ready, revoked, finalized, destroyed, aborted };

struct UserOperator {
  ncclDataType_t datatype{};
  Scalar scalar{};                      // of ncclScalarHostImmediate
  const void* device_scalar = nullptr;  // of ncclScalarDevice
};

}  // namespace lockstep::nccl

struct ncclComm final : public lockstep::nccl::Candidate {
  // Constant from joining on.
  int rank = -1;
  int ranks = 0;
  int device = 0;
  bool blocking = true;
  std::string key;
  std::string name;
  std::shared_ptr<lockstep::nccl::Link> link;  // null before joining, in the process of the clique

  lockstep::nccl::Life life = lockstep::nccl::Life::joining;
  std::optional<lockstep::nccl::Failure> failure;
  std::string last_error;

  // Counts of what the rank did.
  std::uint64_t calls = 0;
  std::uint64_t launches = 0;
  std::uint64_t children = 0;
  std::uint32_t dropped = 0;  // collectives without elements since the last other call

  // The launch before the next one: they run one after the other, also on different streams.
  lockstep::nccl::LaunchRef last_launch;
  std::vector<lockstep::nccl::LaunchRef> running;
  std::vector<std::optional<lockstep::nccl::UserOperator>> operators;
  std::vector<std::pair<void*, std::size_t>*> registrations;  // ours; their addresses are handles

  // What a poll has still to do before the communicator is ready again; see poll().
  bool in_progress = false;
  int polls = 0;
  std::chrono::steady_clock::time_point polled_since = {};  // the first poll of this
  std::optional<lockstep::nccl::Batch> batch;               // to put into its streams
  ncclComm* child = nullptr;                                // made from this one and not ready yet

  // The thread inside a call with this communicator, or with calls of it in an open group.
  std::atomic<std::uint64_t> user{0};

  void joined(const std::shared_ptr<lockstep::nccl::Clique>& clique, int new_rank,
              const std::string& new_key) override;
  // The same, wherever the clique is; no ranks where it is in none.
  void settle(int new_rank, int new_ranks, const std::string& new_name, const std::string& new_key);
  void finished(lockstep::nccl::Launch& launch) override;
  void demanded(std::uint64_t launch) override;
  void failed(const lockstep::nccl::Failure& why) override;
  bool remote() const override { return false; }

  bool left_out = false;  // of a split: without a color
  // Its works end without doing anything: it was aborted or the like.
  bool released = false;

  // "rank 2 of 4, communicator 0 of process 77"
  std::string describe() const;
};

namespace lockstep::nccl {

// A new one that joins; it is known from then on.
ncclComm* new_communicator(int ranks, int rank, int device, bool blocking, std::string name);
// Whether this was ever a communicator.
bool is_communicator(ncclComm* comm);

std::uint64_t this_thread();

// Reports a broken rule of a call on a communicator and remembers it as the last error; gives
// `result` back. With the engine's lock held.
ncclResult_t complain(ncclComm* comm, const char* function, ncclResult_t result, const char* rule,
                      const std::string& what, const char* advice,
                      std::vector<std::string> details = {});

// Holds a communicator for the calling thread during a call, after looking whether it can be used
// at all. `result` is ncclSuccess if so. Takes the engine's lock while it looks.
class Use {
 public:
  // `anytime`: also while it joins or is in progress, and beside another thread.
  Use(ncclComm* comm, const char* function, bool anytime = false);
  ~Use();
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

  ncclResult_t result = ncclSuccess;
  Life life = Life::ready;  // when it looked
  // Keeps the communicator for this thread after the call: it has calls in an open group.
  void keep() { kept_ = true; }

 private:
  ncclComm* const comm_;
  bool held_ = false;
  bool kept_ = false;
};

// The state of a communicator as ncclCommGetAsyncError tells it; makes progress. Without the lock.
ncclResult_t poll(ncclComm* comm);
// Starts something that polls carry on.
void begin_progress(ncclComm* comm);

// Lets its works end, and tells the other ranks that it is gone; `how` completes "rank 3 ...".
void release(devices::Lock& lock, ncclComm* comm, const char* how, Departure departure);
// The process ends: all its ranks leave that others could wait for.
void leave_all(devices::Lock& lock);

}  // namespace lockstep::nccl
