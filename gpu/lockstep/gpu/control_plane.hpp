// What the ranks of a GPU communicator tell each other on the host: whether their calls fit
// together, NCCL's unique id, how many rows an exchange sends. Elements never travel here.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/collective.hpp>
#include <lockstep/error.hpp>
#include <lockstep/tensor.hpp>

namespace lockstep::gpu {

// One rank's end. Every operation but group() is entered by every rank, throws TransportError when
// a rank can no longer arrive, and is then of no more use. A rank that lets go of its end has left.
class ControlPlane {
 public:
  virtual ~ControlPlane() = default;

  virtual int rank() const = 0;
  virtual int world_size() const = 0;
  // The same on every rank, for messages.
  virtual std::string name() const = 0;

  // Every rank passes equally many words and gets those of all ranks, rank 0's first.
  virtual std::vector<std::int64_t> all_gather(std::span<const std::int64_t> words) = 0;
  // Every rank passes one word for each rank and gets one from each.
  virtual std::vector<std::int64_t> all_to_all(std::span<const std::int64_t> words) = 0;

  // The part of these ranks, in this order; only its members ask. Throws InvalidArgument for a list
  // that makes no group.
  virtual std::unique_ptr<ControlPlane> group(std::span<const int> ranks) = 0;
  virtual std::unique_ptr<ControlPlane> split(std::int64_t color, std::int64_t key) = 0;

  // Leaves, from any thread: at once, so that an operation that another thread is in throws; or
  // where that is impossible, when that operation has ended.
  virtual void leave() noexcept {}
};

// Any host communicator of the contract as a control plane.
template <VariableTensorCollective Host>
class HostControlPlane final : public ControlPlane {
 public:
  explicit HostControlPlane(Host host)
      : rank_(host.rank()), world_size_(host.world_size()), host_(std::move(host)) {}

  int rank() const override { return rank_; }
  int world_size() const override { return world_size_; }
  std::string name() const override {
    if constexpr (requires(const Host& host) { std::string(host.name()); }) {
      std::lock_guard lock(mutex_);
      if (host_) return host_->name();
    }
    return "a communicator of " + std::to_string(world_size()) + " ranks";
  }

  std::vector<std::int64_t> all_gather(std::span<const std::int64_t> words) override {
    const auto count = static_cast<std::int64_t>(words.size());
    return with_host([&](Host& host) {
      return listed(host.all_gather_int(lockstep::IntTensor::of<std::int64_t>({count}, words)));
    });
  }
  std::vector<std::int64_t> all_to_all(std::span<const std::int64_t> words) override {
    const std::vector<std::int64_t> one_row_each(words.size(), 1);
    const auto count = static_cast<std::int64_t>(words.size());
    return with_host([&](Host& host) {
      const auto rows = lockstep::IntTensor::of<std::int64_t>({count, 1}, words);
      return listed(host.all_to_all_v_int(rows, one_row_each).value);
    });
  }

  std::unique_ptr<ControlPlane> group(std::span<const int> ranks) override {
    if constexpr (requires(Host & host) { Host(host.group(ranks)); }) {
      return with_host(
          [&](Host& host) { return std::make_unique<HostControlPlane>(host.group(ranks)); });
    } else {
      throw InvalidArgument(name() + ": the host communicator makes no groups");
    }
  }
  std::unique_ptr<ControlPlane> split(std::int64_t color, std::int64_t key) override {
    if constexpr (requires(Host & host) { Host(host.split(color, key)); }) {
      return with_host(
          [&](Host& host) { return std::make_unique<HostControlPlane>(host.split(color, key)); });
    } else {
      throw InvalidArgument(name() + ": the host communicator does not split");
    }
  }

  // A host communicator with a leave() of its own is left at once, another one by letting go of it:
  // now, or as soon as the operation that another thread is in has ended.
  void leave() noexcept override {
    std::lock_guard lock(mutex_);
    if (!host_) return;
    if constexpr (requires(Host & host) { host.leave(); }) {
      try {
        host_->leave();
      } catch (const std::exception&) {
        // It leaves when it is let go of.
      }
    } else if (busy_) {
      leaving_ = true;
    } else {
      host_.reset();
    }
  }

 private:
  // Runs an operation, in which the rank can be once at a time.
  template <class Operation>
  auto with_host(const Operation& operation) {
    struct Use {
      explicit Use(HostControlPlane& its_plane) : plane(its_plane) {
        std::lock_guard lock(plane.mutex_);
        if (!plane.host_) throw TransportError("this rank has left", {plane.rank_});
        plane.busy_ = true;
      }
      ~Use() {
        std::lock_guard lock(plane.mutex_);
        plane.busy_ = false;
        if (plane.leaving_) plane.host_.reset();
      }
      HostControlPlane& plane;
    };
    const Use use(*this);
    return operation(*host_);
  }

  static std::vector<std::int64_t> listed(const lockstep::IntTensor& words) {
    const std::span<const std::int64_t> values = words.values<std::int64_t>();
    return {values.begin(), values.end()};
  }

  const int rank_;
  const int world_size_;
  mutable std::mutex mutex_;
  std::optional<Host> host_;  // nothing once the rank has left
  bool busy_ = false;
  bool leaving_ = false;
};

}  // namespace lockstep::gpu
