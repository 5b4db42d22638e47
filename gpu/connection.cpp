#include "connection.hpp"

#include <utility>

#include <lockstep/gpu/error.hpp>

#include "check.hpp"

namespace lockstep::gpu {
namespace {

// How long the end of a connection may take where there is no time limit: what has been enqueued
// before a peer left, and NCCL's own farewell, come within moments or never.
constexpr std::chrono::seconds usual_grace{10};

bool taken(ncclResult_t result) {
  return result == ncclSuccess || result == ncclInProgress;
}

std::string explain(const char* what, ncclResult_t result, ncclComm_t comm) {
  std::string text = std::string(what) + ": " + ncclGetErrorString(result);
  const char* detail = comm == nullptr ? nullptr : ncclGetLastError(comm);
  if (detail != nullptr && *detail != '\0') text += " (" + std::string(detail) + ")";
  return text;
}

std::string milliseconds(std::chrono::nanoseconds duration) {
  return std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(duration).count()) +
         " ms";
}

}  // namespace

Connection::Connection(const std::shared_ptr<ControlPlane>& control, Stream stream, Limit timeout)
    : control_(control),
      rank_(control->rank()),
      size_(control->world_size()),
      stream_(std::move(stream)),
      timeout_(timeout) {}

Connection::~Connection() {
  close();
}

void Connection::require() const {
  std::lock_guard lock(mutex_);
  if (failure_) throw TransportError(*failure_);
}

bool Connection::has_failed() const {
  std::lock_guard lock(mutex_);
  return failure_.has_value();
}

bool Connection::is_open() const {
  std::lock_guard lock(mutex_);
  return comm_ != nullptr;
}

void Connection::end(const TransportError& error, Work work) noexcept {
  {
    std::lock_guard lock(mutex_);
    end_locked(error, work);
  }
  // Peers that wait in the control plane, or for work that this rank will not add to, must hear.
  if (work != Work::is_lost) return;
  if (const std::shared_ptr<ControlPlane> control = control_.lock()) control->leave();
}

void Connection::end_locked(const TransportError& error, Work work) noexcept {
  if (!failure_) {
    failure_ = error;
    failed_at_ = Pace::Clock::now();
  }
  if (work == Work::is_lost) abort_locked();
}

void Connection::abort_locked() noexcept {
  prune_locked();
  for (Outstanding& call : outstanding_) call.delivery->lose(*failure_);
  outstanding_.clear();
  if (comm_ == nullptr) return;
  if (fellows_) {
    const std::string why = failure_->what();
    fellows_->fail(rank_, "gave up: " + why.substr(0, why.find('\n')));
  }
  try {
    const OnDevice here(stream_.device());
    ncclCommAbort(std::exchange(comm_, nullptr));
  } catch (const std::exception&) {
    comm_ = nullptr;  // the device is gone
  }
}

void Connection::open(const ncclUniqueId& id, const std::string& position) {
  {
    std::lock_guard lock(mutex_);
    if (failure_) throw TransportError(*failure_);
    fellows_ = Fellows::of(std::string(id.internal, sizeof id.internal));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    const ncclResult_t result = ncclCommInitRankConfig(&comm_, size_, id, rank_, &config);
    if (!taken(result)) {
      throw DeviceError(explain("ncclCommInitRankConfig", result, comm_));
    }
  }
  wait_until_taken(position, "ncclCommInitRankConfig");
  stream_.state().add_guard(weak_from_this());
}

void Connection::submit(const std::string& position, const char* what,
                        const std::function<ncclResult_t(ncclComm_t)>& request) {
  {
    std::lock_guard lock(mutex_);
    if (failure_) throw TransportError(*failure_);
    const ncclResult_t result = request(comm_);
    if (!taken(result)) throw DeviceError(explain(what, result, comm_));
  }
  wait_until_taken(position, what);
}

void Connection::wait_until_taken(const std::string& position, const char* what) {
  for (Pace pace;; pace.pause()) {
    std::optional<TransportError> error;
    {
      std::lock_guard lock(mutex_);
      if (failure_) throw TransportError(*failure_);
      ncclResult_t state = ncclSuccess;
      const ncclResult_t asked = ncclCommGetAsyncError(comm_, &state);
      if (asked == ncclSuccess && state == ncclSuccess) return;
      error = trouble_locked(position + ", " + what, pace.waited());
    }
    if (error) {
      end(*error, Work::is_lost);
      throw TransportError(*error);
    }
  }
}

// Why this cannot go on, if it cannot.
std::optional<TransportError> Connection::trouble_locked(const std::string& position,
                                                         Pace::Clock::duration waited) {
  if (comm_ != nullptr) {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(comm_, &state);
    const ncclResult_t result = asked == ncclSuccess ? state : asked;
    if (!taken(result)) {
      return TransportError(position + ": " + explain("NCCL's asynchronous error", result, comm_),
                            {});
    }
  }
  if (!outstanding_.empty()) {
    const cudaError_t state = outstanding_.front().done.state();
    if (state != cudaSuccess && state != cudaErrorNotReady) {
      return TransportError(position + ": the device failed: " + cudaGetErrorString(state),
                            {rank_});
    }
  }
  if (fellows_) {
    if (const auto fellow = fellows_->failure()) {
      return TransportError(position + ": rank " + std::to_string(fellow->rank) + " " + fellow->how,
                            {fellow->rank});
    }
  }
  if (timeout_ && waited > *timeout_) {
    return TransportError(position + ": timed out after " + milliseconds(*timeout_) +
                              ": every rank entered the call, but not all data came",
                          {});
  }
  return std::nullopt;
}

void Connection::deliver(Memory& memory, const std::string& position) {
  std::lock_guard lock(mutex_);
  if (failure_) throw TransportError(*failure_);
  prune_locked();
  Outstanding call;
  if (!spare_events_.empty()) {
    call.done = std::move(spare_events_.back());
    spare_events_.pop_back();
  }
  call.done.record(stream_);
  call.delivery = std::make_shared<Delivery>();
  call.position = position;
  memory.delivery = call.delivery;
  outstanding_.push_back(std::move(call));
}

void Connection::prune_locked() {
  while (!outstanding_.empty() && outstanding_.front().done.state() == cudaSuccess) {
    spare_events_.push_back(std::move(outstanding_.front().done));
    outstanding_.pop_front();
  }
}

void Connection::look_after(const Pace& waiting) {
  std::optional<TransportError> error;
  {
    std::lock_guard lock(mutex_);
    prune_locked();
    if (outstanding_.empty()) return;
    error = trouble_locked(outstanding_.front().position, waiting.waited());
    if (!error && failure_ && Pace::Clock::now() - failed_at_ > grace()) error = failure_;
  }
  if (!error) return;
  end(*error, Work::is_lost);
  throw TransportError(*error);
}

Pace::Clock::duration Connection::grace() const {
  if (!timeout_) return usual_grace;
  return std::chrono::duration_cast<Pace::Clock::duration>(*timeout_);
}

void Connection::close() noexcept {
  try {
    const OnDevice here(stream_.device());
    std::unique_lock lock(mutex_);
    bool finalizing = false;
    for (Pace pace; comm_ != nullptr;) {
      prune_locked();
      ncclResult_t state = ncclSuccess;
      if (ncclCommGetAsyncError(comm_, &state) != ncclSuccess || !taken(state) ||
          pace.waited() > grace() || (fellows_->failure() && !outstanding_.empty())) {
        end_locked(TransportError("the communicator was left before its work was done", {}),
                   Work::is_lost);
      } else if (!outstanding_.empty() || state == ncclInProgress) {
        lock.unlock();
        pace.pause();
        lock.lock();
      } else if (!finalizing) {
        finalizing = true;
        ncclCommFinalize(comm_);
      } else {
        ncclCommDestroy(std::exchange(comm_, nullptr));
      }
    }
    outstanding_.clear();
    spare_events_.clear();
  } catch (const std::exception&) {
    // The device is gone, and NCCL's handle with it.
  }
}

}  // namespace lockstep::gpu
