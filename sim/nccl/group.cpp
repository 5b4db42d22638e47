#include "group.hpp"

#include <algorithm>
#include <atomic>

namespace lockstep::nccl {
namespace {

using devices::Engine;

// A communicator that joins.
struct Joining {
  ncclComm* comm;
  ncclComm* parent;
  ncclComm_t* handle;
  const char* function;
};

struct Group {
  int depth = 0;
  ncclResult_t error = ncclSuccess;
  std::vector<std::pair<ncclComm*, Batch>> batches;  // in the order of first use
  std::vector<Joining> joinings;

  // Its thread ends.
  ~Group() {
    if (depth == 0 || batches.empty()) return;
    const devices::Lock lock = Engine::instance().lock();
    complain(batches.front().first, "ncclGroupStart", ncclInvalidUsage, "group-left-open",
             "a thread ends and has made calls in a group that it never closed; nothing of it "
             "happens",
             "Call ncclGroupEnd once for every ncclGroupStart.");
  }
};

Group& group() {
  thread_local Group mine;
  return mine;
}

std::uint64_t next_group() {
  static std::atomic<std::uint64_t> counter{0};
  return ++counter;
}

// Until all ranks have come, for a communicator that blocks.
ncclResult_t finish_joining(const Joining& joining) {
  ncclComm* const comm = joining.comm;
  Engine& engine = Engine::instance();
  devices::Lock lock = engine.lock();
  if (!comm->blocking) {
    if (comm->failure) return comm->failure->result;
    begin_progress(comm);
    if (joining.parent != nullptr) joining.parent->child = comm;
    engine.wake(lock);
    return ncclInProgress;
  }
  const bool others = joining.parent == nullptr || joining.parent->link->has_others();
  const std::string key = comm->key;
  const bool came = engine.wait_until(
      lock, {joining.function, comm->describe()},
      [&] { return comm->life != Life::joining || comm->failure.has_value(); },
      [&] {
        return comm->link ? "the other ranks of " + comm->name
                          : Gatherings::instance().awaited(key);
      },
      others);
  if (!came && !comm->failure) {
    release(lock, comm, "gave up", Departure::on_purpose);
    comm->failed({ncclRemoteError, "the other ranks did not come"});
  }
  if (comm->failure) {
    if (joining.handle != nullptr) *joining.handle = nullptr;
    release(lock, comm, "could not join", Departure::on_purpose);
    comm->life = Life::aborted;
    return comm->failure->result;
  }
  return ncclSuccess;
}

ncclResult_t launch(ncclComm* comm, Batch batch) {
  if (!comm->blocking) {
    const devices::Lock lock = Engine::instance().lock();
    comm->batch = std::move(batch);
    begin_progress(comm);
    if (comm->polls > 0) return ncclInProgress;
    comm->in_progress = false;
    batch = std::move(*comm->batch);
    comm->batch.reset();
  }
  return enqueue(comm, std::move(batch));
}

// The worst of several: an error before "in progress" before success.
ncclResult_t worse(ncclResult_t a, ncclResult_t b) {
  if (a == ncclSuccess || (a == ncclInProgress && b != ncclSuccess)) return b;
  return a;
}

ncclResult_t close(Group& done) {
  ncclResult_t result = done.error;
  const std::uint64_t number = next_group();
  for (auto& [comm, batch] : done.batches) {
    batch.thread = this_thread();
    batch.group = number;
    if (done.error == ncclSuccess) result = worse(result, launch(comm, std::move(batch)));
    comm->user.store(0);
  }
  for (const Joining& joining : done.joinings) {
    result = worse(result, finish_joining(joining));
  }
  return result;
}

}  // namespace

bool in_group() {
  return group().depth > 0;
}

ncclResult_t note_in_group(ncclResult_t result) {
  Group& mine = group();
  if (mine.depth > 0 && result != ncclSuccess && result != ncclInProgress &&
      mine.error == ncclSuccess) {
    mine.error = result;
  }
  return result;
}

ncclResult_t start_group() {
  ++group().depth;
  return ncclSuccess;
}

ncclResult_t end_group() {
  Group& mine = group();
  if (mine.depth == 0) {
    const devices::Lock lock = Engine::instance().lock();
    return complain(nullptr, "ncclGroupEnd", ncclInvalidUsage, "group-not-open",
                    "no group is open in this thread",
                    "Call ncclGroupEnd once for every ncclGroupStart, in the same thread.");
  }
  if (--mine.depth > 0) return ncclSuccess;
  Group done;
  std::swap(done, mine);
  return close(done);
}

ncclResult_t drop_group() {
  Group& mine = group();
  if (mine.depth == 0) return end_group();
  if (--mine.depth > 0) return ncclSuccess;
  Group done;
  std::swap(done, mine);
  for (auto& [comm, batch] : done.batches) comm->user.store(0);
  done.batches.clear();
  return close(done);
}

ncclResult_t submit(ncclComm* comm, Request request) {
  Group& mine = group();
  if (mine.depth == 0) {
    Batch batch;
    batch.requests.push_back(std::move(request));
    batch.thread = this_thread();
    batch.group = next_group();
    return launch(comm, std::move(batch));
  }
  if (!mine.joinings.empty()) {
    const devices::Lock lock = Engine::instance().lock();
    return complain(comm, name_of(request.call.kind), ncclInvalidUsage, "mixed-group",
                    "one group makes communicators and communicates",
                    "Close the group that makes communicators before using them.");
  }
  auto found = std::find_if(mine.batches.begin(), mine.batches.end(),
                            [&](const auto& entry) { return entry.first == comm; });
  if (found == mine.batches.end()) {
    mine.batches.push_back({comm, {}});
    found = mine.batches.end() - 1;
  }
  found->second.requests.push_back(std::move(request));
  return ncclSuccess;
}

ncclResult_t await_joining(ncclComm* comm, ncclComm* parent, ncclComm_t* handle,
                           const char* function) {
  const Joining joining = {comm, parent, handle, function};
  Group& mine = group();
  if (mine.depth == 0) return finish_joining(joining);
  mine.joinings.push_back(joining);
  return ncclSuccess;
}

}  // namespace lockstep::nccl
