// Making communicators: from unique ids, by splits and by shrinks.

#include <algorithm>
#include <cstdlib>

#include "communicator.hpp"
#include "configuration.hpp"
#include "exports.hpp"
#include "group.hpp"
#include "remote.hpp"
#include "service.hpp"
#include "unique_id.hpp"

namespace lockstep::nccl {
namespace {

using devices::Engine;

ncclResult_t refuse(ncclComm* comm, const char* function, const char* rule, const std::string& what,
                    const char* advice) {
  const devices::Lock lock = Engine::instance().lock();
  return complain(comm, function, ncclInvalidArgument, rule, what, advice);
}

std::string host() {
  const char* const id = std::getenv("NCCL_HOSTID");
  return id == nullptr ? "" : id;
}

// Enters the gathering of a unique id with the current device. Stores the new communicator.
ncclResult_t enter(const char* function, const UniqueId& id, int ranks, int rank,
                   const Configuration& configuration, ncclComm_t* handle) {
  Engine& engine = Engine::instance();
  const std::string name =
      configuration.name.empty() ? id.name() : "communicator " + configuration.name;
  devices::Lock lock = engine.lock();
  ncclComm* const comm =
      new_communicator(ranks, rank, engine.current_device(), configuration.blocking, name);
  comm->key = id.key();
  *handle = comm;
  Entry entry{.birth = Birth::unique_id,
              .key = comm->key,
              .name = name,
              .ranks = ranks,
              .rank = rank,
              .device = comm->device,
              .host = host(),
              .candidate = comm};
  if (id.of_this_process()) {
    Gatherings::instance().enter(std::move(entry));
  } else if (!RemoteLink::enter_at(id.token, entry, comm)) {
    comm->life = Life::aborted;
    *handle = nullptr;
    return complain(
        comm, function, ncclSystemError, "process-not-reached",
        "process " + std::to_string(id.process) + ", which made the unique id, cannot be reached",
        "It must still run, on this host, with the simulated NCCL.");
  }
  engine.wake(lock);
  return ncclSuccess;
}

ncclResult_t init_rank(const char* function, ncclComm_t* handle, int ranks,
                       const ncclUniqueId& bytes, int rank, const ncclConfig_t* config) {
  if (handle == nullptr) {
    return refuse(nullptr, function, "null-pointer", "there is no place for the communicator",
                  "Pass the address of an ncclComm_t.");
  }
  *handle = nullptr;
  const std::optional<UniqueId> id = unpack(bytes);
  if (!id) {
    return refuse(nullptr, function, "not-a-unique-id",
                  "the bytes of the unique id were not made by ncclGetUniqueId of this library",
                  "Make the id on one rank and give all its bytes to the others.");
  }
  if (ranks < 1 || rank < 0 || rank >= ranks) {
    return refuse(
        nullptr, function, "no-such-rank",
        "rank " + std::to_string(rank) + " of " + std::to_string(ranks) + " is not possible",
        "Pass at least one rank, and a rank from 0 to nranks - 1.");
  }
  std::string wrong;
  const Configuration configuration = read_configuration(config, {}, wrong);
  if (!wrong.empty()) {
    return refuse(nullptr, function, "bad-configuration", wrong,
                  "Begin with NCCL_CONFIG_INITIALIZER and set only what is needed.");
  }
  const ncclResult_t result = enter(function, *id, ranks, rank, configuration, handle);
  if (result != ncclSuccess) return result;
  return await_joining(*handle, nullptr, handle, function);
}

// A child of `parent`, which enters the gathering of a split or a shrink with it.
ncclResult_t descend(const char* function, ncclComm* parent, Entry entry, ncclComm_t* handle,
                     const ncclConfig_t* config) {
  std::string wrong;
  const Configuration configuration =
      read_configuration(config, {.blocking = parent->blocking, .name = {}}, wrong);
  if (!wrong.empty()) {
    return refuse(parent, function, "bad-configuration", wrong,
                  "Begin with NCCL_CONFIG_INITIALIZER and set only what is needed.");
  }
  Engine& engine = Engine::instance();
  // A rank without a color takes part like any other, but the program sees nothing of it.
  const bool unseen = entry.birth == Birth::split && entry.color == NCCL_SPLIT_NOCOLOR;
  ncclComm* comm = nullptr;
  {
    devices::Lock lock = engine.lock();
    comm = new_communicator(parent->ranks, parent->rank, parent->device, configuration.blocking,
                            parent->name);
    entry.key = parent->key + (entry.birth == Birth::split ? ".split" : ".shrink") +
                std::to_string(parent->children++);
    entry.name =
        configuration.name.empty() ? parent->name : parent->name + "/" + configuration.name;
    entry.ranks = parent->ranks;
    entry.rank = parent->rank;
    entry.device = parent->device;
    entry.host = host();
    entry.candidate = comm;
    comm->key = entry.key;
    if (!unseen) *handle = comm;
    parent->link->enter(std::move(entry));
    engine.wake(lock);
  }
  return await_joining(comm, parent, unseen ? nullptr : handle, function);
}

ncclResult_t split(ncclComm_t parent, int color, int key, ncclComm_t* handle,
                   const ncclConfig_t* config) {
  constexpr const char* function = "ncclCommSplit";
  Use use(parent, function);
  if (use.result != ncclSuccess) return use.result;
  if (handle == nullptr) {
    return refuse(parent, function, "null-pointer", "there is no place for the communicator",
                  "Pass the address of an ncclComm_t.");
  }
  *handle = nullptr;
  if (color < 0 && color != NCCL_SPLIT_NOCOLOR) {
    return refuse(parent, function, "bad-color", "color " + std::to_string(color) + " is negative",
                  "Pass a color of at least 0, or NCCL_SPLIT_NOCOLOR.");
  }
  return descend(function, parent, {.birth = Birth::split, .color = color, .order = key}, handle,
                 config);
}

ncclResult_t shrink(ncclComm_t parent, const int* excluded, int count, ncclComm_t* handle,
                    const ncclConfig_t* config, int flags) {
  constexpr const char* function = "ncclCommShrink";
  // A parent that has failed is what this is for.
  Use use(parent, function, true);
  if (use.result != ncclSuccess) return use.result;
  if (handle == nullptr || (count > 0 && excluded == nullptr)) {
    return refuse(parent, function, "null-pointer", "an argument is null",
                  "Pass the ranks to exclude, and the address of an ncclComm_t.");
  }
  *handle = nullptr;
  std::vector<int> ranks(excluded, excluded + std::max(count, 0));
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  if (ranks.empty() || ranks.front() < 0 || ranks.back() >= parent->ranks) {
    return refuse(parent, function, "no-such-rank",
                  "the list of excluded ranks is empty or names a rank that is none",
                  "Exclude at least one rank of the communicator.");
  }
  if (std::binary_search(ranks.begin(), ranks.end(), parent->rank)) {
    return refuse(parent, function, "excluded-rank",
                  "rank " + std::to_string(parent->rank) + " is among the excluded ranks",
                  "Call it on the ranks that stay, and on no others.");
  }
  {
    devices::Lock lock = Engine::instance().lock();
    if ((flags & NCCL_SHRINK_ABORT) != 0) {
      parent->failed({ncclInvalidUsage, "the communicator was shrunk with NCCL_SHRINK_ABORT"});
      release(lock, parent, "gave it up for a smaller one", Departure::on_purpose);
    } else if (parent->failure) {
      return complain(parent, function, parent->failure->result, "shrink-of-failed-communicator",
                      "the communicator has failed: " + parent->failure->what,
                      "Pass NCCL_SHRINK_ABORT, which ends what it still does.");
    }
  }
  return descend(function, parent, {.birth = Birth::shrink, .excluded = std::move(ranks)}, handle,
                 config);
}

ncclResult_t init_all(ncclComm_t* handles, int count, const int* list) {
  constexpr const char* function = "ncclCommInitAll";
  Engine& engine = Engine::instance();
  if (handles == nullptr || count < 1) {
    return refuse(nullptr, function, "null-pointer", "there is no place for the communicators",
                  "Pass an array of at least one ncclComm_t.");
  }
  std::vector<int> devices(static_cast<std::size_t>(count));
  for (int rank = 0; rank < count; ++rank) {
    const int device = list == nullptr ? rank : list[rank];
    if (device < 0 || device >= engine.device_count()) {
      return refuse(nullptr, function, "no-such-device",
                    "device " + std::to_string(device) + " is none: there are " +
                        std::to_string(engine.device_count()),
                    "Pass devices that cudaGetDeviceCount counts.");
    }
    devices[static_cast<std::size_t>(rank)] = device;
  }
  const UniqueId id = make_unique_id();
  const int current = engine.current_device();
  ncclResult_t result = start_group();
  for (int rank = 0; rank < count && result == ncclSuccess; ++rank) {
    engine.set_device(devices[static_cast<std::size_t>(rank)]);
    result = enter(function, id, count, rank, {}, &handles[rank]);
    if (result == ncclSuccess) {
      result = await_joining(handles[rank], nullptr, &handles[rank], function);
    }
  }
  engine.set_device(current);
  const ncclResult_t end = end_group();
  return result == ncclSuccess ? end : result;
}

}  // namespace
}  // namespace lockstep::nccl

using namespace lockstep::nccl;
using lockstep::devices::Engine;

ncclResult_t ncclGetUniqueId(ncclUniqueId* uniqueId) {
  if (uniqueId == nullptr) {
    return refuse(nullptr, "ncclGetUniqueId", "null-pointer", "there is no place for the id",
                  "Pass the address of an ncclUniqueId.");
  }
  const UniqueId id = make_unique_id();
  *uniqueId = pack(id);
  const lockstep::devices::Lock lock = Engine::instance().lock();
  if (Service::instance().listen(id.token)) return ncclSuccess;
  return complain(nullptr, "ncclGetUniqueId", ncclSystemError, "no-meeting-point",
                  "no socket could be opened for other processes to call at",
                  "Allow abstract Unix sockets.");
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank) {
  return note_in_group(init_rank("ncclCommInitRank", comm, nranks, commId, rank, nullptr));
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank,
                                    ncclConfig_t* config) {
  return note_in_group(init_rank("ncclCommInitRankConfig", comm, nranks, commId, rank, config));
}

ncclResult_t ncclCommInitRankScalable(ncclComm_t* newcomm, int nranks, int myrank, int nId,
                                      ncclUniqueId* commIds, ncclConfig_t* config) {
  if (nId < 1 || nId > nranks || commIds == nullptr) {
    return note_in_group(refuse(nullptr, "ncclCommInitRankScalable", "not-a-unique-id",
                                std::to_string(nId) + " unique ids for " + std::to_string(nranks) +
                                    " ranks are not possible",
                                "Pass at least one id and at most one for each rank."));
  }
  // The first is enough to meet at.
  return note_in_group(
      init_rank("ncclCommInitRankScalable", newcomm, nranks, commIds[0], myrank, config));
}

ncclResult_t ncclCommInitAll(ncclComm_t* comm, int ndev, const int* devlist) {
  return note_in_group(init_all(comm, ndev, devlist));
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newcomm,
                           ncclConfig_t* config) {
  return note_in_group(split(comm, color, key, newcomm, config));
}

ncclResult_t ncclCommShrink(ncclComm_t comm, int* excludeRanksList, int excludeRanksCount,
                            ncclComm_t* newcomm, ncclConfig_t* config, int shrinkFlags) {
  return note_in_group(
      shrink(comm, excludeRanksList, excludeRanksCount, newcomm, config, shrinkFlags));
}

LOCKSTEP_NCCL_PROFILED(ncclGetUniqueId);
LOCKSTEP_NCCL_PROFILED(ncclCommInitRank);
LOCKSTEP_NCCL_PROFILED(ncclCommInitRankConfig);
LOCKSTEP_NCCL_PROFILED(ncclCommInitRankScalable);
LOCKSTEP_NCCL_PROFILED(ncclCommInitAll);
LOCKSTEP_NCCL_PROFILED(ncclCommSplit);
LOCKSTEP_NCCL_PROFILED(ncclCommShrink);
