// The simulated devices of this process: memory, streams, events, and the works on them.
//
// Nothing runs when it is enqueued. A thread that waits for a work runs, itself, what that work
// needs and nothing more: the earlier works of its stream, the works its stream was told to wait
// for, and, where a collective is blocked, the peers' works of this process. So work runs as late
// as the program allows. LOCKSTEP_SIM_SEED picks another legal order: works then also run at seeded
// moments of other calls. A thread of the engine helps when the program waits by means that the
// engine cannot see (a flag set by a host function, say): it runs works once all threads of the
// process sleep, or have not called for a long while.
//
// One mutex guards everything. Functions that take a Lock want the engine's lock held and give it
// back held (waiting lets go of it meanwhile); the others must be called without it. Users of the
// engine may guard their own state with the same mutex; Work::advance and the like run under it.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "finding.hpp"
#include "options.hpp"
#include "status.hpp"
#include "work.hpp"

namespace lockstep::devices {

struct Stream;
using StreamRef = std::shared_ptr<Stream>;
struct Event;
using EventRef = std::shared_ptr<Event>;
struct Allocation;
using AllocationRef = std::shared_ptr<Allocation>;

using Lock = std::unique_lock<std::mutex>;

// What the handle 0 means: the flavours of the runtime's functions.
enum class DefaultStream : std::uint8_t { legacy, per_thread };

enum class MemoryKind : std::uint8_t {
  device,      // cudaMalloc and its like
  pool,        // stream-ordered: cudaMallocAsync
  pinned,      // page-locked host memory: cudaMallocHost, cudaHostAlloc
  managed,     // cudaMallocManaged
  registered,  // host memory of the program, page-locked by cudaHostRegister
};

// What is known of an address.
struct PointerInfo {
  MemoryKind kind;
  int device;
  const void* base;
  std::size_t bytes;
};

struct StreamInfo {
  int device;
  int priority;
  bool is_default;
  bool blocking;     // waits for the legacy default stream and the other way round
  std::uint64_t id;  // unlike that of any other stream of the process
};

// For `enqueue`: whether it was accepted, and its place if so.
struct Enqueued {
  Status status;
  NodeRef node;  // null unless status is success
};

class Engine {
 public:
  // The one of this process, made at the first call and never destroyed.
  static Engine& instance();

  const Options& options() const;
  Lock lock();

  // Devices. The current device is a matter of each thread, and 0 at first.
  int device_count() const;
  int current_device() const;
  Status set_device(int device);
  // The error that stays with a device after work on it failed; success while there is none.
  Status device_error(int device);
  // Lets kernels of `device` touch memory of `peer`. invalid_value when that was done before.
  Status enable_peer(int device, int peer);
  Status disable_peer(int device, int peer);

  // Streams. A handle is what the program holds; `find_stream` is null for one that is none (any
  // more), and for default streams takes the calling thread's current device.
  void* create_stream(int device, bool blocking, int priority);
  // Where it is none and `call` is given, that is reported.
  StreamRef find_stream(void* handle, DefaultStream flavour = DefaultStream::legacy,
                        const Call* call = nullptr);
  // Work on it still runs, as the runtime promises; the handle is dead at once.
  Status destroy_stream(void* handle, const Call& call);
  void retire_stream(const StreamRef& stream);

  // Puts a work at the end of a stream after checking what it touches. A broken rule is reported
  // and gives the status that the real thing might give; the work is dropped then.
  Enqueued enqueue(Lock& lock, const StreamRef& stream, Call call, std::vector<Access> accesses,
                   std::unique_ptr<Work> work);
  Enqueued enqueue(const StreamRef& stream, Call call, std::vector<Access> accesses,
                   std::unique_ptr<Work> work);
  // The same check alone, for a call that enqueues nothing.
  Status check(Lock& lock, int device, const StreamRef& stream, const Call& call,
               const std::vector<Access>& accesses);

  // Waiting. Runs what is needed and blocks until the work is done; returns the error of the
  // stream's device. What can never be done is reported once, abandoned, and gives launch_failure.
  Status wait(Lock& lock, const NodeRef& node, const Call& call);
  Status synchronize(const StreamRef& stream, const Call& call);
  Status synchronize_device(int device, const Call& call);
  // A poll: not_ready at first, then makes progress with each call.
  Status query(Lock& lock, const NodeRef& node);
  Status query(const StreamRef& stream);

  // Blocks the calling thread inside the engine until `ready()`, which is called under the lock and
  // must be quick; works go on when others need them. For waits on something else than works, such
  // as the other ranks of a new communicator. `awaited` completes "waits for ..." in reports;
  // `others` says that another process may still help. False when it can never be: reported.
  bool wait_until(Lock& lock, const Call& call, const std::function<bool()>& ready,
                  const std::function<std::string()>& awaited, bool others);
  // Something that waits may go on: a peer arrived, a message came. Wakes all who wait.
  void wake(Lock& lock);
  // Runs what `node` needs as far as it goes now, without waiting. True if anything happened. For
  // threads that serve other processes.
  bool drive(Lock& lock, const NodeRef& node);
  // Whether the node was done or abandoned. Under the lock, also from advance().
  bool done(const NodeRef& node) const;
  // The last work enqueued on the stream; null when there was none or all is done.
  NodeRef last(Lock& lock, const StreamRef& stream) const;

  // After a collective: each of the nodes happened after everything that any of them had waited
  // for. Under the lock, also from advance().
  void meet(const std::vector<NodeRef>& nodes);

  // A moment at which the seed may have works run early. `enqueue` without a lock includes one; who
  // enqueues under a lock calls this once everything is in order, at the end of an API call.
  void stir(Lock& lock);

  // The calling thread serves the engine's users from now on and never waits for works: it does not
  // count when the engine asks whether anybody could still make progress.
  void exempt_this_thread();

  // True while the calling thread runs a host function, which may not call the runtime or NCCL.
  bool in_host_function() const;

  // Events. An event belongs to a device; a wait takes the record that was latest when it was
  // called.
  void* create_event(int device, bool timed);
  EventRef find_event(void* handle, const Call* call = nullptr);
  Status destroy_event(void* handle, const Call& call);
  Status record(const EventRef& event, const StreamRef& stream, const Call& call);
  Status wait_for(const StreamRef& stream, const EventRef& event, const Call& call);
  Status synchronize(const EventRef& event, const Call& call);
  Status query(const EventRef& event);
  // Milliseconds between two records; invalid_handle unless both are recorded and timed.
  Status elapsed(const EventRef& begin, const EventRef& end, float& milliseconds);

  // Memory. All addresses are aligned to 256 bytes; fresh memory is poisoned. Zero bytes give null.
  Status allocate(MemoryKind kind, int device, std::size_t bytes, const Call& call, void** address);
  // In the order of a stream, from a pool of `device` that is open to `shared` devices as well.
  Status allocate_ordered(const StreamRef& stream, int device, std::size_t bytes, const Call& call,
                          std::shared_ptr<const std::unordered_set<int>> shared, void** address);
  // Null is fine. A pointer that is not one, freed before, in use, or of another family is
  // reported.
  Status release(void* address, bool host_family, const Call& call);
  Status release_ordered(const StreamRef& stream, void* address, const Call& call);
  Status register_host(void* address, std::size_t bytes, const Call& call);
  Status unregister_host(void* address, const Call& call);
  std::optional<PointerInfo> pointer_info(const void* address);
  // Free and total bytes of a device.
  std::pair<std::size_t, std::size_t> memory_info(int device);

  // Where the bytes of `address` are for code of the simulation. Device memory is not mapped at the
  // address that the program holds, so that a program that touches it from the host is caught;
  // other memory is where it is. Use it inside a work only, for ranges that the work declared.
  void* view(const void* address) const;

  // A fault of the program's at this address: reports it if it has to do with memory of the engine.
  // True if it will not happen again.
  bool explain_fault(std::uintptr_t address, bool write);

  // The description that reports use: "stream 3 of device 1".
  std::string describe(const StreamRef& stream) const;
  int device_of(const StreamRef& stream) const;
  StreamInfo info(const StreamRef& stream) const;

 private:
  Engine();
  ~Engine() = delete;
  struct State;
  std::unique_ptr<State> state_;
  friend struct State;
};

}  // namespace lockstep::devices
