// The inside of the engine. Everything here is guarded by `mutex`.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "engine.hpp"
#include "guard.hpp"
#include "memory.hpp"
#include "node.hpp"

namespace lockstep::devices {

// A thread that waits in the engine, for a work or for something else.
struct Waiter {
  Call call;
  NodeRef node = nullptr;                                 // null for something else
  const std::function<std::string()>* awaited = nullptr;  // then: whom for
  bool others = false;
  bool given_up = false;
  int thread = 0;
};

struct Device {
  StreamRef legacy = nullptr;
  std::vector<StreamRef> streams = {};  // all that are not destroyed or still have work
  Status error = Status::success;
  std::unordered_set<int> peers = {};
};

struct Engine::State {
  State();

  Options options;
  std::mutex mutex;
  // The lock, or nothing when it does not come free within two seconds: for moments at which its
  // holder may be gone.
  std::optional<Lock> lock_in_time();
  std::atomic<int> entering{0};     // threads that are about to hold it
  std::condition_variable changed;  // `generation` moved on
  std::uint64_t generation = 0;
  std::chrono::steady_clock::time_point last_progress = std::chrono::steady_clock::now();

  std::vector<Device> devices;
  std::unordered_map<void*, StreamRef> streams;
  std::unordered_map<void*, EventRef> events;
  std::uint64_t streams_made = 0;
  std::uint64_t events_made = 0;
  std::vector<std::pair<std::size_t, std::uint64_t>> free_slots;  // slot, last time
  std::size_t slots = 0;
  std::deque<StreamRef> left_behind;  // streams that were destroyed with work in them, oldest first
  Memory memory;
  Guard guard;

  std::uint64_t nodes = 0;  // enqueued so far
  std::size_t unfinished = 0;
  Clock host;  // what some thread of the program knows to be done

  // Works that write to the host's memory and that nobody has waited for.
  struct Delivery {
    Moment moment;
    Call call;
    StreamRef stream;
    std::string range;
  };
  std::vector<Delivery> deliveries;

  // The seed's choices; drawn from only when there is a seed.
  std::mt19937_64 random;
  double eagerness = 0;
  int refusals = 2;  // of a poll, before it makes progress

  std::vector<Waiter*> waiters;

  // The engine's own threads, which are never joined.
  bool threads_started = false;
  bool helper_sleeps = false;
  std::condition_variable helper_wakes;
  std::deque<NodeRef> host_functions;
  std::condition_variable host_functions_wake;
  int running = 0;  // works that run at this moment without the lock

  // --- streams
  StreamRef make_stream(Stream::Kind kind, int device, int priority);
  void forget_if_idle(const StreamRef& stream);
  StreamRef per_thread(int device);

  // --- enqueue.cpp
  Status check(int device, const StreamRef& stream, const Call& call,
               const std::vector<Access>& accesses, std::vector<AllocationRef>* homes);
  NodeRef append(const StreamRef& stream, Call call, std::vector<Access> accesses,
                 std::vector<AllocationRef> homes, std::unique_ptr<Work> work,
                 std::vector<NodeRef> dependencies = {});

  // --- engine_memory.cpp
  AllocationRef to_be_freed(void* address, const Call& call, const Stream* stream, int device);

  // --- scheduler.cpp
  // Brings `goal` nearer to its end: runs at most `limit` works that it needs. True if anything
  // happened.
  bool pass(Lock& lock, const NodeRef& goal, int limit);
  // Everything that can run at all.
  bool run_all(Lock& lock);
  void finish(const NodeRef& node);
  // The work will never run.
  void give_up(const NodeRef& node, const std::string& reason, Status error);
  void learn(const NodeRef& node);  // the host knows that it is done
  void learn(const Clock& clock);
  void moved();  // something happened: wakes all who wait

  // --- turn.cpp
  // What is checked when a work's turn has come. False when it must not run.
  bool admit(Node& node);
  void complete_accesses(Node& node);
  void check_order(Node& node, std::size_t index);
  void note_accesses(Node& node);
  void check_order_of_the_rest();

  // What nobody waited for, when the program ends.
  void look_at_the_end();

  // --- waiting.cpp
  // After a while without progress: whether nothing can come any more, and what follows from that.
  void settle_if_stuck(Lock& lock, std::uint64_t seen);
  void end_in_host_function(std::chrono::seconds quiet);
  // "thread 77 is in cudaStreamSynchronize and waits for ..."
  std::string describe(const Waiter& waiter) const;
  void start_threads();
  void help();
  void serve_host_functions();

  void find_fault(std::string rule, const Call& call, const Stream* stream, int device,
                  std::string what, std::vector<std::string> details, std::string advice);

 private:
  bool run_front(Lock& lock, const NodeRef& front);
};

// Set while the calling thread runs a host function: it may not call the runtime.
bool& inside_host_function();

}  // namespace lockstep::devices
