// What the ranks of a GPU communicator tell each other on the host: whether their calls fit
// together, NCCL's unique id, how many rows an exchange sends. Elements never travel here.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
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

  // Leaves at once, from any thread, also while another is inside an operation, which then throws.
  // Where that is impossible it does nothing: the rank leaves when it lets go.
  virtual void leave() noexcept {}
};

// Any host communicator of the contract as a control plane.
template <VariableTensorCollective Host>
class HostControlPlane final : public ControlPlane {
 public:
  explicit HostControlPlane(Host host) : host_(std::move(host)) {}

  int rank() const override { return host_.rank(); }
  int world_size() const override { return host_.world_size(); }
  std::string name() const override {
    if constexpr (requires { std::string(host_.name()); }) {
      return std::string(host_.name());
    } else {
      return "a communicator of " + std::to_string(world_size()) + " ranks";
    }
  }

  std::vector<std::int64_t> all_gather(std::span<const std::int64_t> words) override {
    const auto count = static_cast<std::int64_t>(words.size());
    return listed(host_.all_gather_int(lockstep::IntTensor::of<std::int64_t>({count}, words)));
  }
  std::vector<std::int64_t> all_to_all(std::span<const std::int64_t> words) override {
    const std::vector<std::int64_t> one_row_each(words.size(), 1);
    const auto count = static_cast<std::int64_t>(words.size());
    return listed(host_
                      .all_to_all_v_int(lockstep::IntTensor::of<std::int64_t>({count, 1}, words),
                                        one_row_each)
                      .value);
  }

  std::unique_ptr<ControlPlane> group(std::span<const int> ranks) override {
    if constexpr (requires { Host(host_.group(ranks)); }) {
      return std::make_unique<HostControlPlane>(host_.group(ranks));
    } else {
      throw InvalidArgument(name() + ": the host communicator makes no groups");
    }
  }
  std::unique_ptr<ControlPlane> split(std::int64_t color, std::int64_t key) override {
    if constexpr (requires { Host(host_.split(color, key)); }) {
      return std::make_unique<HostControlPlane>(host_.split(color, key));
    } else {
      throw InvalidArgument(name() + ": the host communicator does not split");
    }
  }

  void leave() noexcept override {
    if constexpr (requires { host_.leave(); }) {
      try {
        host_.leave();
      } catch (const std::exception&) {
        // It leaves when it is let go of.
      }
    }
  }

 private:
  static std::vector<std::int64_t> listed(const lockstep::IntTensor& words) {
    const std::span<const std::int64_t> values = words.values<std::int64_t>();
    return {values.begin(), values.end()};
  }

  Host host_;
};

}  // namespace lockstep::gpu
