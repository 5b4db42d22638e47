// Putting works into streams, and what is checked then.

#include <algorithm>

#include "state.hpp"
#include "text.hpp"

namespace lockstep::devices {

Status Engine::State::check(int device, const StreamRef& stream, const Call& call,
                            const std::vector<Access>& accesses,
                            std::vector<AllocationRef>* homes) {
  if (homes != nullptr) homes->assign(accesses.size(), nullptr);
  const auto fault = [&](const char* rule, std::string what, std::vector<std::string> details,
                         const char* advice) {
    find_fault(rule, call, stream.get(), device, std::move(what), std::move(details), advice);
    return Status::invalid_value;
  };
  for (std::size_t i = 0; i < accesses.size(); ++i) {
    const Access& access = accesses[i];
    if (access.bytes == 0) continue;
    const auto begin = reinterpret_cast<std::uintptr_t>(access.address);
    if (begin == 0) {
      return fault("null-pointer",
                   std::string(access.argument) + " is null, but " + bytes_text(access.bytes) +
                       " are to be " + (access.touch == Touch::read ? "read." : "written."),
                   {}, "Pass memory, or a count of zero.");
    }
    AllocationRef home = memory.find(begin);
    // Memory of the program may go on behind what it registered.
    if (home && begin == home->end() && home->kind == MemoryKind::registered) home = nullptr;
    if (!home) {
      if (const int window = memory.window_of(begin); window >= 0) {
        return fault("not-an-allocation",
                     range_text(access) + " is in the address range of device " +
                         std::to_string(window) + ", but nothing is allocated there.",
                     {}, "Check the pointer arithmetic.");
      }
      if (access.home != Home::anywhere && access.home != Home::host) {
        return fault("host-pointer",
                     range_text(access) +
                         " is pageable host memory, or no memory at all; a device cannot reach it.",
                     {}, "Pass device memory, or page-locked or managed host memory.");
      }
      continue;
    }
    if (home->doomed) {
      return fault("use-after-free", range_text(access) + " was freed before.",
                   {"it was " + text(*home), "freed by: " + home->end_text},
                   "Free memory after its last use.");
    }
    const std::size_t offset = begin - home->begin;
    if (access.bytes > home->bytes - offset) {
      return fault("out-of-range",
                   range_text(access) + " ends " +
                       bytes_text(access.bytes - (home->bytes - offset)) +
                       " behind its allocation.",
                   {"the allocation: " + text(*home) + "; the range begins at offset " +
                    std::to_string(offset)},
                   "Check the count against what was allocated; counts are in elements, sizes in "
                   "bytes.");
    }
    const bool on_device = home->tracks_writes();
    if (on_device && access.home == Home::host) {
      return fault("device-pointer", range_text(access) + " is device memory.",
                   {"the allocation: " + text(*home)}, "Pass host memory.");
    }
    const bool foreign = on_device && home->device != device;
    if ((foreign && access.home == Home::own_device) ||
        (foreign && access.home == Home::reachable &&
         !devices[static_cast<std::size_t>(device)].peers.contains(home->device) &&
         !(home->shared && home->shared->contains(device)))) {
      return fault("wrong-device",
                   range_text(access) + " is memory of device " + std::to_string(home->device) +
                       "; the call is for device " + std::to_string(device) + ".",
                   {"the allocation: " + text(*home)},
                   "Allocate on the device that uses the memory: call cudaSetDevice before.");
    }
    if (homes != nullptr) (*homes)[i] = std::move(home);
  }
  return Status::success;
}

NodeRef Engine::State::append(const StreamRef& stream, Call call, std::vector<Access> accesses,
                              std::vector<AllocationRef> homes, std::unique_ptr<Work> work,
                              std::vector<NodeRef> dependencies) {
  auto node = std::make_shared<Node>();
  node->stream = stream;
  node->number = ++nodes;
  node->call = std::move(call);
  node->accesses = std::move(accesses);
  node->homes = std::move(homes);
  node->work = std::move(work);
  node->dependencies = std::move(dependencies);
  node->moment = {stream->slot, ++stream->time};
  node->clock = host;
  ++unfinished;

  // The legacy default stream and the blocking streams of its device wait for each other.
  Device& device = devices[static_cast<std::size_t>(stream->device)];
  const auto depend = [&](const StreamRef& other) {
    if (other && other->latest && !host.covers(other->latest->moment)) {
      node->dependencies.push_back(other->latest);
    }
  };
  if (stream->kind == Stream::Kind::legacy) {
    for (const StreamRef& other : device.streams) {
      if (other->blocking()) depend(other);
    }
  } else if (stream->blocking()) {
    depend(device.legacy);
  }

  for (std::size_t i = 0; i < node->accesses.size(); ++i) {
    if (node->accesses[i].bytes == 0) continue;
    const AllocationRef& home = node->homes[i];
    std::vector<std::weak_ptr<Node>>& users = home ? home->users : memory.pageable_users();
    // Swept now and then, as the list doubles.
    if (users.size() >= 16 && (users.size() & (users.size() - 1)) == 0) {
      std::erase_if(users, [](const std::weak_ptr<Node>& user) {
        const NodeRef living = user.lock();
        return !living || living->state == Node::State::done;
      });
    }
    users.push_back(node);
  }
  for (std::size_t i = 0; i < node->accesses.size(); ++i) {
    const Access& access = node->accesses[i];
    const AllocationRef& home = node->homes[i];
    if (access.bytes == 0 || (home && home->tracks_writes())) continue;
    if (access.touch == Touch::write) {
      deliveries.push_back({node->moment, node->call, stream, range_text(access)});
    }
    if (options.guard && home && home->kind != MemoryKind::registered) {
      guard.add(home, access, node->moment, text(*node));
    }
  }
  stream->pending.push_back(node);
  stream->latest = node;
  start_threads();
  if (helper_sleeps) {
    helper_sleeps = false;
    helper_wakes.notify_one();
  }
  moved();
  return node;
}

Enqueued Engine::enqueue(Lock&, const StreamRef& stream, Call call, std::vector<Access> accesses,
                         std::unique_ptr<Work> work) {
  std::vector<AllocationRef> homes;
  const Status status = state_->check(stream->device, stream, call, accesses, &homes);
  if (status != Status::success) return {status, nullptr};
  return {Status::success, state_->append(stream, std::move(call), std::move(accesses),
                                          std::move(homes), std::move(work))};
}

Enqueued Engine::enqueue(const StreamRef& stream, Call call, std::vector<Access> accesses,
                         std::unique_ptr<Work> work) {
  Lock held = lock();
  Enqueued enqueued = enqueue(held, stream, std::move(call), std::move(accesses), std::move(work));
  stir(held);
  return enqueued;
}

Status Engine::check(Lock&, int device, const StreamRef& stream, const Call& call,
                     const std::vector<Access>& accesses) {
  return state_->check(device, stream, call, accesses, nullptr);
}

}  // namespace lockstep::devices
