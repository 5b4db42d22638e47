#include "communicator.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <unordered_set>

#include "service.hpp"

namespace lockstep::nccl {
namespace {

using devices::Engine;

// All there ever were. Guarded by the engine's lock.
std::unordered_set<ncclComm*>& known() {
  static auto* const set = new std::unordered_set<ncclComm*>;
  return *set;
}

// How many polls answer "in progress" before anything happens: some without a seed, and any number
// with one, none included.
int draw_polls() {
  static std::uint64_t state = Engine::instance().options().seed;
  if (state == 0) return 2;
  state = state * 6364136223846793005u + 1442695040888963407u;
  return static_cast<int>(state >> 62);
}

// A poll of a communicator whose ranks have not all come. The real library lets a program poll for
// ever; here that ends after the timeout.
ncclResult_t await(ncclComm* comm) {
  const auto now = std::chrono::steady_clock::now();
  if (comm->polled_since == std::chrono::steady_clock::time_point()) comm->polled_since = now;
  if (now - comm->polled_since < Engine::instance().options().timeout) return ncclInProgress;
  const std::string awaited =
      comm->link ? "the other ranks" : Gatherings::instance().awaited(comm->key);
  const std::string what = "the communicator has waited for " + awaited + " since it was made";
  complain(comm, "ncclCommGetAsyncError", ncclRemoteError, "never-completes", what,
           "Every rank must join; on a real device this goes on for ever.");
  Gatherings::instance().withdraw(comm, "gave up");
  if (comm->link) comm->link->leave("gave up", Departure::reported);
  comm->failed({ncclRemoteError, what, true});
  return ncclRemoteError;
}

ncclResult_t poll_locked(ncclComm* comm, std::optional<Batch>& ready) {
  if (comm->failure) return comm->failure->result;
  if (comm->child != nullptr) {
    if (poll_locked(comm->child, ready) == ncclInProgress) return ncclInProgress;
    comm->child = nullptr;
  }
  if (!comm->in_progress) return ncclSuccess;
  if (comm->life == Life::joining) return await(comm);
  if (comm->polls > 0) {
    --comm->polls;
    return ncclInProgress;
  }
  comm->in_progress = false;
  ready.swap(comm->batch);
  return ncclSuccess;
}

}  // namespace

std::uint64_t this_thread() {
  thread_local const auto id = static_cast<std::uint64_t>(syscall(SYS_gettid));
  return id;
}

ncclComm* new_communicator(int ranks, int rank, int device, bool blocking, std::string name) {
  auto* const comm = new ncclComm;
  comm->ranks = ranks;
  comm->rank = rank;
  comm->device = device;
  comm->blocking = blocking;
  comm->name = std::move(name);
  known().insert(comm);
  return comm;
}

bool is_communicator(ncclComm* comm) {
  return known().contains(comm);
}

ncclResult_t complain(ncclComm* comm, const char* function, ncclResult_t result, const char* rule,
                      const std::string& what, const char* advice,
                      std::vector<std::string> details) {
  const bool is_one = comm != nullptr && is_communicator(comm);
  devices::report({.rule = rule,
                   .call = {function, is_one ? comm->describe() : std::string()},
                   .device = is_one ? comm->device : -1,
                   .what = what,
                   .details = std::move(details),
                   .advice = advice});
  if (is_one) comm->last_error = what;
  return result;
}

void begin_progress(ncclComm* comm) {
  comm->polled_since = {};
  comm->in_progress = true;
  comm->polls = draw_polls();
}

ncclResult_t poll(ncclComm* comm) {
  std::optional<Batch> ready;
  ncclResult_t result = ncclSuccess;
  {
    const devices::Lock lock = Engine::instance().lock();
    result = poll_locked(comm, ready);
  }
  if (ready) {
    result = enqueue(comm, std::move(*ready));
    if (result != ncclSuccess) {
      const devices::Lock lock = Engine::instance().lock();
      comm->failed({result, "an operation could not be put into its stream"});
    }
  }
  // The program polls in a loop, and whoever it waits for needs a core.
  if (result == ncclInProgress) std::this_thread::yield();
  return result;
}

void release(devices::Lock& lock, ncclComm* comm, const char* how, Departure departure) {
  comm->released = true;
  if (comm->link) comm->link->leave(how, departure);
  if (comm->life == Life::joining) Gatherings::instance().withdraw(comm, how);
  // Its works end now, not when somebody waits for them: the program may free their memory next.
  for (const LaunchRef& launch : std::vector(comm->running)) {
    Engine::instance().drive(lock, launch->node);
  }
  Engine::instance().wake(lock);
}

void leave_all(devices::Lock& lock) {
  for (ncclComm* comm : known()) {
    if (comm->life == Life::destroyed || comm->life == Life::aborted) continue;
    if (comm->link && !comm->link->has_others()) continue;
    release(lock, comm, "ended its process without destroying the communicator",
            Departure::orderly);
    comm->life = Life::destroyed;
  }
}

Use::Use(ncclComm* comm, const char* function, bool anytime) : comm_(comm) {
  const devices::Lock lock = Engine::instance().lock();
  if (comm == nullptr || !is_communicator(comm)) {
    result = complain(comm, function, ncclInvalidArgument, "not-a-communicator",
                      comm == nullptr ? "the communicator is null"
                                      : "the communicator is none: it was never made, or its "
                                        "handle was overwritten",
                      "Pass what ncclCommInitRank or its like has stored.");
    return;
  }
  if (comm->life == Life::destroyed || comm->life == Life::aborted) {
    const bool destroyed = comm->life == Life::destroyed;
    result = complain(
        comm, function, ncclInvalidArgument,
        destroyed ? "communicator-after-destroy" : "communicator-after-abort",
        destroyed ? "the communicator was destroyed before" : "the communicator was aborted before",
        "Its handle is of no use any more; make a new communicator.");
    return;
  }
  life = comm->life;
  if (anytime) return;

  std::uint64_t other = 0;
  const std::uint64_t self = this_thread();
  if (!comm->user.compare_exchange_strong(other, self) && other != self) {
    result = complain(comm, function, ncclInvalidUsage, "two-threads",
                      "thread " + std::to_string(self) + " uses the communicator while thread " +
                          std::to_string(other) +
                          " is in a call with it, or has calls with it in "
                          "an open group",
                      "Let one thread at a time use a communicator.");
    return;
  }
  held_ = other == 0;
  if (comm->failure) {
    result = comm->failure->result;
  } else if (comm->in_progress || comm->child != nullptr || comm->life == Life::joining) {
    result = complain(comm, function, ncclInvalidArgument, "communicator-in-progress",
                      "the communicator is still at an earlier call that returned ncclInProgress",
                      "Call ncclCommGetAsyncError until it stores ncclSuccess, then go on.");
  }
}

Use::~Use() {
  if (held_ && !kept_) comm_->user.store(0);
}

}  // namespace lockstep::nccl

using lockstep::nccl::Life;

std::string ncclComm::describe() const {
  return "rank " + std::to_string(rank) + " of " + std::to_string(ranks) + ", " + name;
}

void ncclComm::joined(const std::shared_ptr<lockstep::nccl::Clique>& clique, int new_rank,
                      const std::string& new_key) {
  if (clique) link = std::make_shared<lockstep::nccl::LocalLink>(clique, new_rank);
  settle(new_rank, clique ? clique->ranks() : 0, clique ? clique->name() : "", new_key);
}

void ncclComm::settle(int new_rank, int new_ranks, const std::string& new_name,
                      const std::string& new_key) {
  if (life != Life::joining) return;  // aborted meanwhile
  life = Life::ready;
  if (new_ranks == 0) {
    left_out = true;
    if (link) link->leave("has no color", lockstep::nccl::Departure::orderly);
    return;
  }
  rank = new_rank;
  ranks = new_ranks;
  name = new_name;
  key = new_key;
}

// Whoever waits for the launch looks at it again after every progress.
void ncclComm::finished(lockstep::nccl::Launch&) {}

// Waiting threads of this process follow the wishes of their works; those of others cannot.
void ncclComm::demanded(std::uint64_t number) {
  if (!link || !link->has_others()) return;
  for (const lockstep::nccl::LaunchRef& launch : running) {
    if (launch->number == number) lockstep::nccl::Service::instance().demand(launch->node);
  }
}

void ncclComm::failed(const lockstep::nccl::Failure& why) {
  if (failure) return;
  failure = why;
  last_error = why.what;
}
