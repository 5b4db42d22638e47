// One rank's end of one NCCL communicator, from its creation to its end.
#pragma once

#include <nccl.h>

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/error.hpp>
#include <lockstep/gpu/control_plane.hpp>
#include <lockstep/gpu/stream.hpp>

#include "delivery.hpp"
#include "event.hpp"
#include "fellows.hpp"
#include "memory.hpp"
#include "stream_state.hpp"

namespace lockstep::gpu {

// No call of NCCL blocks: the communicator is made non-blocking, and every wait is a loop in which
// its asynchronous error, the failures of fellows, an abort and the time limit are noticed.
//
// The first failure is kept. It ends the connection in one of two ways. Where this rank knows that
// it will enqueue nothing any more, but what has been enqueued may still be completed (a peer left
// between calls), NCCL goes on and is only aborted when that takes too long. Where work is under
// way that cannot be completed, it is aborted at once: its kernels end, the stream goes on, and
// what they were to write counts as lost.
//
// Thread-safe. NCCL's handle is only used under the mutex, each time for a moment, so that an abort
// from another thread never frees it under anybody's hands.
class Connection final : public Guard, public std::enable_shared_from_this<Connection> {
 public:
  using Limit = std::optional<std::chrono::nanoseconds>;
  enum class Work { may_finish, is_lost };

  // Does not keep the control plane: a rank leaves by letting go of it.
  Connection(const std::shared_ptr<ControlPlane>& control, Stream stream, Limit timeout);
  ~Connection() override;

  // Throws the failure, if there is one.
  void require() const;
  bool has_failed() const;
  // Fails. Only the first error counts; `is_lost` aborts in any case.
  void end(const TransportError& error, Work work) noexcept;

  bool is_open() const;
  // Entered by every rank of the control plane with rank 0's id. `position` is for messages.
  void open(const ncclUniqueId& id, const std::string& position);

  // Calls request(comm) and waits until NCCL has taken it, which is when it has enqueued its work
  // on the stream. Throws TransportError; `what` names the request.
  void submit(const std::string& position, const char* what,
              const std::function<ncclResult_t(ncclComm_t)>& request);
  // What has been enqueued so far fills `memory`.
  void deliver(Memory& memory, const std::string& position);

  // Leaves: waits for the work that has been enqueued, within limits, and gives the communicator
  // back. Never throws.
  void close() noexcept;

  void look_after(const Pace& waiting) override;

 private:
  struct Outstanding {
    Event done;
    std::shared_ptr<Delivery> delivery;
    std::string position;
  };

  void wait_until_taken(const std::string& position, const char* what);
  std::optional<TransportError> trouble_locked(const std::string& position,
                                               Pace::Clock::duration waited);
  void end_locked(const TransportError& error, Work work) noexcept;
  void prune_locked();
  void abort_locked() noexcept;
  Pace::Clock::duration grace() const;

  const std::weak_ptr<ControlPlane> control_;
  const int rank_;
  const int size_;
  const Stream stream_;
  const Limit timeout_;

  mutable std::mutex mutex_;
  ncclComm_t comm_ = nullptr;  // null before open() and after the end
  std::shared_ptr<Fellows> fellows_;
  std::optional<TransportError> failure_;
  Pace::Clock::time_point failed_at_;
  std::deque<Outstanding> outstanding_;  // oldest first
  std::vector<Event> spare_events_;
};

}  // namespace lockstep::gpu
