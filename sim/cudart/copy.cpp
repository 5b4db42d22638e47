// Copies and memset, in the order of a stream.
//
// What the documentation leaves open is decided against the program. A copy with pageable host
// memory "might be synchronous": here it is not, and reads or writes that memory when it runs. A
// cudaMemcpy from pageable memory may return when the bytes are staged: here it does, and the
// transfer itself is still to come. cudaMemset and copies between devices are not waited for.

#include <cstring>
#include <memory>
#include <vector>

#include "copy.hpp"

namespace lockstep::cudart {
namespace {

using devices::Access;
using devices::Home;
using devices::MemoryKind;
using devices::Progress;
using devices::StreamRef;
using devices::Touch;
using devices::Work;

// From so many bytes on, others go on meanwhile.
constexpr std::size_t long_copy = std::size_t{1} << 18;

std::byte* view(const void* address) {
  return static_cast<std::byte*>(Engine::instance().view(address));
}

class CopyWork : public Work {
 public:
  CopyWork(const Block& to, const Block& from, std::vector<std::byte> staged)
      : to_(to), from_(from), staged_(std::move(staged)) {}

  Progress advance() override {
    std::byte* const to = view(to_.address);
    const std::byte* const from = staged_.empty() ? view(from_.address) : staged_.data();
    const std::size_t from_pitch = staged_.empty() ? from_.pitch : from_.width;
    for (std::size_t row = 0; row < to_.rows; ++row) {
      std::memmove(to + row * to_.pitch, from + row * from_pitch, to_.width);
    }
    return Progress::done;
  }
  bool unlocked() const override { return to_.width * to_.rows >= long_copy; }

 private:
  Block to_;
  Block from_;
  std::vector<std::byte> staged_;
};

class SetWork : public Work {
 public:
  SetWork(const Block& to, int value) : to_(to), value_(value) {}

  Progress advance() override {
    std::byte* const to = view(to_.address);
    for (std::size_t row = 0; row < to_.rows; ++row) {
      std::memset(to + row * to_.pitch, value_, to_.width);
    }
    return Progress::done;
  }
  bool unlocked() const override { return to_.width * to_.rows >= long_copy; }

 private:
  Block to_;
  int value_;
};

Access access(const Block& block, Touch touch, const char* argument, Home home) {
  const bool dense = block.rows <= 1 || block.width == block.pitch;
  return {block.address, block.span(), touch, argument, home, dense, dense};
}

bool on_device(const void* address) {
  const auto known = Engine::instance().pointer_info(address);
  return known && (known->kind == MemoryKind::device || known->kind == MemoryKind::pool);
}

bool pageable(const void* address) {
  return !Engine::instance().pointer_info(address).has_value();
}

bool to_device(cudaMemcpyKind kind, const void* to) {
  return kind == cudaMemcpyDefault
             ? on_device(to)
             : kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
}
bool from_device(cudaMemcpyKind kind, const void* from) {
  return kind == cudaMemcpyDefault
             ? on_device(from)
             : kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
}

std::vector<Access> accesses(const Block& to, const Block& from, cudaMemcpyKind kind) {
  const auto home = [&](bool device) {
    return kind == cudaMemcpyDefault ? Home::anywhere : device ? Home::any_device : Home::host;
  };
  return {access(from, Touch::read, "src", home(from_device(kind, from.address))),
          access(to, Touch::write, "dst", home(to_device(kind, to.address)))};
}

bool valid(const Block& to, const Block& from, cudaMemcpyKind kind) {
  return kind >= cudaMemcpyHostToHost && kind <= cudaMemcpyDefault && to.width <= to.pitch &&
         from.width <= from.pitch;
}

std::vector<std::byte> stage(const Block& from) {
  std::vector<std::byte> staged(from.width * from.rows);
  for (std::size_t row = 0; row < from.rows; ++row) {
    std::memcpy(staged.data() + row * from.width,
                static_cast<const std::byte*>(from.address) + row * from.pitch, from.width);
  }
  return staged;
}

}  // namespace

cudaError_t copy(const Call& call, const StreamRef& stream, const Block& to, const Block& from,
                 cudaMemcpyKind kind, bool wait) {
  if (!valid(to, from, kind)) return cudaErrorInvalidValue;
  Engine& engine = Engine::instance();
  std::vector<Access> touched = accesses(to, from, kind);
  const bool into_device = to_device(kind, to.address);
  const bool out_of_device = from_device(kind, from.address);
  std::vector<std::byte> staged;
  if (to.width * to.rows == 0) wait = false;
  if (!into_device && !out_of_device) wait = true;
  if (into_device && out_of_device) wait = false;
  if (wait && into_device && pageable(from.address)) {
    // Staged in the order of the stream, and then on its own.
    {
      devices::Lock held = engine.lock();
      const Status checked = engine.check(held, engine.device_of(stream), stream, call, touched);
      if (checked != Status::success) return translate(checked);
    }
    if (const Status waited = engine.synchronize(stream, call); waited != Status::success) {
      return translate(waited);
    }
    staged = stage(from);
    touched.erase(touched.begin());
    wait = false;
  }
  const auto [status, node] = engine.enqueue(
      stream, call, std::move(touched), std::make_unique<CopyWork>(to, from, std::move(staged)));
  if (status != Status::success || !wait) return translate(status);
  devices::Lock held = engine.lock();
  return translate(engine.wait(held, node, call));
}

cudaError_t set(const Call& call, const StreamRef& stream, const Block& to, int value, bool wait) {
  if (to.width > to.pitch) return cudaErrorInvalidValue;
  Engine& engine = Engine::instance();
  const auto [status, node] =
      engine.enqueue(stream, call, {access(to, Touch::write, "devPtr", Home::reachable)},
                     std::make_unique<SetWork>(to, value));
  // The runtime waits only where the memory is the host's.
  if (status != Status::success || !wait || on_device(to.address)) return translate(status);
  devices::Lock held = engine.lock();
  return translate(engine.wait(held, node, call));
}

cudaError_t check_peer(const Call& call, const void* address, int device, const char* argument) {
  const auto known = Engine::instance().pointer_info(address);
  if (!known || known->kind == MemoryKind::pinned || known->kind == MemoryKind::registered ||
      known->kind == MemoryKind::managed || known->device == device) {
    return cudaSuccess;
  }
  devices::Finding finding;
  finding.rule = "wrong-device";
  finding.call = call;
  finding.device = device;
  finding.what = std::string(argument) + " is memory of device " + std::to_string(known->device) +
                 ", but the call names device " + std::to_string(device) + ".";
  finding.advice = "Name the device on which the memory was allocated.";
  devices::report(finding);
  return cudaErrorInvalidValue;
}

}  // namespace lockstep::cudart
