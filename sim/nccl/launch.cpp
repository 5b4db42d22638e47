#include "launch.hpp"

#include <algorithm>
#include <cstring>
#include <optional>

#include "communicator.hpp"
#include "names.hpp"
#include "service.hpp"

namespace lockstep::nccl {
namespace {

using devices::Engine;
using devices::Progress;
using devices::Status;

// The part of one rank in the streams.
class LaunchWork : public devices::Work {
 public:
  LaunchWork(ncclComm* comm, LaunchRef launch, LaunchRef before, std::vector<Request> requests)
      : comm_(comm),
        launch_(std::move(launch)),
        before_(std::move(before)),
        requests_(std::move(requests)) {}

  Progress advance() override {
    if (comm_->released || launch_->meetings.empty()) return end();
    if (before_) {
      if (!before_->finished) return Progress::blocked;
      before_.reset();
    }
    if (!launch_->arrived) arrive();
    return comm_->link->complete(*launch_) ? end() : Progress::blocked;
  }

  std::vector<devices::NodeRef> wants() const override {
    if (before_) return {before_->node};
    return comm_->link->wants(*launch_);
  }
  std::string awaited() const override {
    if (before_) return "the launch before it on " + comm_->describe();
    return comm_->link->awaited(*launch_);
  }
  bool awaits_others() const override { return !before_ && comm_->link->awaits_others(*launch_); }

  bool told() const override { return comm_->failure && comm_->failure->told; }

  void abandon(const std::string& reason) override {
    const std::string how =
        "can not run its " + describe(launch_->calls.front()) + " (" + reason + ")";
    comm_->failed({ncclRemoteError, "the rank " + how, true});
    comm_->link->leave(how, Departure::reported);
    end();
  }

 private:
  void arrive() {
    Engine& engine = Engine::instance();
    for (const Request& request : requests_) {
      const Extents sizes = *extents(request.call, comm_->rank, comm_->ranks);
      launch_->inputs.push_back(
          sizes.sent == 0 ? nullptr : static_cast<const std::byte*>(engine.view(request.sendbuff)));
      launch_->outputs.push_back(
          sizes.received == 0 ? nullptr : static_cast<std::byte*>(engine.view(request.recvbuff)));
      Scalar scalar = request.scalar;
      if (request.device_scalar != nullptr) {
        std::memcpy(scalar.data(), engine.view(request.device_scalar),
                    size_of(request.call.datatype));
      }
      launch_->scalars.push_back(scalar);
    }
    comm_->link->arrive(launch_);
  }

  Progress end() {
    launch_->finished = true;
    std::erase(comm_->running, launch_);
    if (comm_->last_launch == launch_) comm_->last_launch.reset();
    return Progress::done;
  }

  ncclComm* const comm_;
  const LaunchRef launch_;
  LaunchRef before_;
  const std::vector<Request> requests_;
};

void add_accesses(const ncclComm* comm, const Request& request,
                  std::vector<devices::Access>& accesses) {
  const Extents sizes = *extents(request.call, comm->rank, comm->ranks);
  if (sizes.sent != 0) {
    accesses.push_back({.address = request.sendbuff,
                        .bytes = sizes.sent,
                        .touch = devices::Touch::read,
                        .argument = "sendbuff"});
  }
  if (sizes.received != 0) {
    accesses.push_back({.address = request.recvbuff,
                        .bytes = sizes.received,
                        .touch = devices::Touch::write,
                        .argument = "recvbuff"});
  }
  if (request.device_scalar != nullptr) {
    accesses.push_back({.address = request.device_scalar,
                        .bytes = size_of(request.call.datatype),
                        .touch = devices::Touch::read,
                        .argument = "scalar"});
  }
}

// A buffer of one operation of a group.
struct Range {
  std::uintptr_t begin;
  std::uintptr_t end;
  bool written;
  std::size_t request;
};

// The operations of a group run at the same time: one must not write what another uses. Gives two
// that do, in order, or nothing.
std::optional<std::pair<std::size_t, std::size_t>> clash(const ncclComm* comm,
                                                         const std::vector<Request>& requests) {
  if (requests.size() < 2) return std::nullopt;
  std::vector<Range> ranges;
  for (std::size_t at = 0; at < requests.size(); ++at) {
    const Extents sizes = *extents(requests[at].call, comm->rank, comm->ranks);
    const auto add = [&](const void* address, std::size_t bytes, bool written) {
      const auto begin = reinterpret_cast<std::uintptr_t>(address);
      if (bytes != 0) ranges.push_back({begin, begin + bytes, written, at});
    };
    add(requests[at].sendbuff, sizes.sent, false);
    add(requests[at].recvbuff, sizes.received, true);
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& a, const Range& b) { return a.begin < b.begin; });
  for (std::size_t at = 0; at < ranges.size(); ++at) {
    for (std::size_t next = at + 1; next < ranges.size() && ranges[next].begin < ranges[at].end;
         ++next) {
      if (ranges[at].request == ranges[next].request) continue;
      if (!ranges[at].written && !ranges[next].written) continue;
      return std::minmax(ranges[at].request, ranges[next].request);
    }
  }
  return std::nullopt;
}

ncclResult_t translate(Status status) {
  switch (status) {
    case Status::success:
      return ncclSuccess;
    case Status::invalid_value:
      return ncclInvalidArgument;
    default:
      return ncclUnhandledCudaError;
  }
}

// Makes `waiting` wait for all that `stream` holds so far.
Status chain(const devices::StreamRef& waiting, const devices::StreamRef& stream,
             const devices::Call& call) {
  Engine& engine = Engine::instance();
  void* const handle = engine.create_event(engine.device_of(stream), false);
  const devices::EventRef event = engine.find_event(handle);
  Status status = engine.record(event, stream, call);
  if (status == Status::success) status = engine.wait_for(waiting, event, call);
  engine.destroy_event(handle, call);
  return status;
}

}  // namespace

ncclResult_t enqueue(ncclComm* comm, Batch batch) {
  Engine& engine = Engine::instance();
  const auto launch = std::make_shared<Launch>();
  launch->rank = comm->rank;
  launch->thread = comm->blocking ? batch.thread : 0;
  launch->group = batch.group;
  std::vector<devices::Access> accesses;
  std::vector<devices::StreamRef> others;  // streams beside the first one
  const devices::StreamRef stream = batch.requests.front().stream;
  for (const Request& request : batch.requests) {
    launch->calls.push_back(request.call);
    add_accesses(comm, request, accesses);
    const bool known = request.stream == stream ||
                       std::find(others.begin(), others.end(), request.stream) != others.end();
    if (!known) others.push_back(request.stream);
  }
  const devices::Call call = {name_of(launch->calls.front().kind), comm->describe()};
  if (const auto two = clash(comm, batch.requests)) {
    const devices::Lock lock = engine.lock();
    return complain(comm, name_of(launch->calls[two->second].kind), ncclInvalidArgument,
                    "overlap-in-group",
                    "two operations of one group, which run at the same time, use the same memory, "
                    "and one of them writes it",
                    "Use memory of its own for each, or put them into groups of their own.",
                    {describe(launch->calls[two->first]), describe(launch->calls[two->second])});
  }

  for (const devices::StreamRef& other : others) {
    if (const Status status = chain(stream, other, call); status != Status::success) {
      return translate(status);
    }
  }
  {
    devices::Lock lock = engine.lock();
    launch->number = comm->launches;
    auto work =
        std::make_unique<LaunchWork>(comm, launch, comm->last_launch, std::move(batch.requests));
    const devices::Enqueued enqueued =
        engine.enqueue(lock, stream, call, std::move(accesses), std::move(work));
    if (enqueued.status != Status::success) return translate(enqueued.status);
    ++comm->launches;
    launch->node = enqueued.node;
    comm->last_launch = launch;
    comm->running.push_back(launch);
    comm->link->announce(launch);
    Service::instance().progress();
    engine.stir(lock);
    if (comm->failure) return comm->failure->result;
  }
  for (const devices::StreamRef& other : others) {
    if (const Status status = chain(other, stream, call); status != Status::success) {
      return translate(status);
    }
  }
  return ncclSuccess;
}

std::vector<devices::NodeRef> LocalLink::wants(const Launch& launch) const {
  std::vector<devices::NodeRef> nodes;
  if (clique_->failure()) return nodes;
  for (const LaunchRef& other : clique_->missing(launch)) {
    if (other->node) nodes.push_back(other->node);
  }
  return nodes;
}

}  // namespace lockstep::nccl
