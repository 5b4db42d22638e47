// Memory, as the runtime hands it out.

#include <algorithm>

#include "state.hpp"
#include "text.hpp"

namespace lockstep::devices {
namespace {

// Marks stream-ordered memory as there, or as gone.
class PoolWork : public Work {
 public:
  explicit PoolWork(std::function<void()> body) : body_(std::move(body)) {}
  Progress advance() override {
    body_();
    return Progress::done;
  }

 private:
  std::function<void()> body_;
};

bool is_host_family(MemoryKind kind) {
  return kind == MemoryKind::pinned;
}

}  // namespace

Status Engine::allocate(MemoryKind kind, int device, std::size_t bytes, const Call& call,
                        void** address) {
  *address = nullptr;
  if (bytes == 0) return Status::success;
  const Lock held = lock();
  const AllocationRef made = state_->memory.allocate(kind, device, bytes, call.function);
  if (!made) return Status::out_of_memory;
  *address = reinterpret_cast<void*>(made->begin);
  return Status::success;
}

Status Engine::allocate_ordered(const StreamRef& stream, int device, std::size_t bytes,
                                const Call& call,
                                std::shared_ptr<const std::unordered_set<int>> shared,
                                void** address) {
  *address = nullptr;
  if (bytes == 0) return Status::success;
  Lock held = lock();
  const AllocationRef made =
      state_->memory.allocate(MemoryKind::pool, device, bytes, call.function);
  if (!made) return Status::out_of_memory;
  made->shared = std::move(shared);
  made->allocating = state_->append(stream, call, {}, {}, nullptr);
  // Others that use it have to be ordered after this.
  made->records.push_back(
      {made->begin, made->end(), Touch::write, made->allocating->moment, text(*made->allocating)});
  *address = reinterpret_cast<void*>(made->begin);
  stir(held);
  return Status::success;
}

// What is wrong with freeing this address; null when something is.
AllocationRef Engine::State::to_be_freed(void* address, const Call& call, const Stream* stream,
                                         int device) {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  const AllocationRef found = memory.find(begin);
  if (!found || found->begin != begin || found->kind == MemoryKind::registered) {
    const bool inside = found && begin < found->end();
    find_fault("not-an-allocation", call, stream, device,
               address_text(begin) + (inside ? " is inside an allocation, not its beginning."
                                             : " is not what an allocation returned."),
               inside ? std::vector<std::string>{"the allocation: " + text(*found)}
                      : std::vector<std::string>{},
               "Free the pointer that the allocation returned.");
    return nullptr;
  }
  if (found->doomed) {
    find_fault("double-free", call, stream, device, text(*found) + " was freed before.",
               {"freed by: " + found->end_text}, "Free it once.");
    return nullptr;
  }
  return found;
}

Status Engine::release(void* address, bool host_family, const Call& call) {
  if (address == nullptr) return Status::success;
  const Lock held = lock();
  State& state = *state_;
  const AllocationRef found = state.to_be_freed(address, call, nullptr, current_device());
  if (!found) return Status::invalid_value;
  if (is_host_family(found->kind) != host_family) {
    state.find_fault("wrong-free", call, nullptr, current_device(),
                     text(*found) + " belongs to another function.", {},
                     host_family ? "Free device memory with cudaFree."
                                 : "Free page-locked memory with cudaFreeHost.");
    return Status::invalid_value;
  }
  std::vector<std::string> users;
  for (const std::weak_ptr<Node>& user : found->users) {
    const NodeRef node = user.lock();
    if (node && !state.host.covers(node->moment)) {
      users.push_back("used by: " + text(*node));
    }
  }
  if (users.empty()) {
    for (const AccessRecord& record : found->records) {
      if (!state.host.covers(record.moment)) users.push_back("used by: " + record.text);
    }
  }
  found->end_text = call.function;
  if (!users.empty()) {
    found->told = true;
    state.find_fault(
        "freed-while-in-use", call, nullptr, current_device(),
        text(*found) + " is freed while nothing says that the work which uses it is done.",
        std::move(users),
        "Synchronize with the stream first. cudaFree may wait by itself, and may not.");
  }
  state.guard.release(found);
  state.memory.retire(found);
  return Status::success;
}

Status Engine::release_ordered(const StreamRef& stream, void* address, const Call& call) {
  if (address == nullptr) return Status::success;
  Lock held = lock();
  State& state = *state_;
  const AllocationRef found = state.to_be_freed(address, call, stream.get(), stream->device);
  if (!found) return Status::invalid_value;
  if (found->kind != MemoryKind::pool) {
    state.find_fault("wrong-free", call, stream.get(), stream->device,
                     text(*found) + " was not allocated in the order of a stream.", {},
                     "Free it with the function that belongs to its allocation.");
    return Status::invalid_value;
  }
  // Freeing counts as a write to all of it: whoever uses it must be ordered before.
  std::vector<Access> whole = {
      {address, found->bytes, Touch::write, "the memory to free", Home::anywhere}};
  auto work = std::make_unique<PoolWork>([&state, found] { state.memory.retire(found); });
  const NodeRef node = state.append(stream, call, std::move(whole), {found}, std::move(work));
  found->doomed = true;
  found->end_text = text(*node);
  stir(held);
  return Status::success;
}

Status Engine::register_host(void* address, std::size_t bytes, const Call& call) {
  const Lock held = lock();
  if (address == nullptr || bytes == 0) return Status::invalid_value;
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  return state_->memory.adopt(begin, bytes, call.function) ? Status::success
                                                           : Status::invalid_value;
}

Status Engine::unregister_host(void* address, const Call& call) {
  const Lock held = lock();
  State& state = *state_;
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  const AllocationRef found = state.memory.find(begin);
  if (!found || found->begin != begin || found->kind != MemoryKind::registered) {
    return Status::invalid_value;
  }
  for (const std::weak_ptr<Node>& user : found->users) {
    const NodeRef node = user.lock();
    if (!node || state.host.covers(node->moment)) continue;
    state.find_fault(
        "freed-while-in-use", call, nullptr, current_device(),
        text(*found) + " is unregistered while nothing says that the work which uses it is done.",
        {"used by: " + text(*node)}, "Synchronize with the stream first.");
    break;
  }
  state.memory.retire(found);
  return Status::success;
}

std::optional<PointerInfo> Engine::pointer_info(const void* address) {
  const Lock held = lock();
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  const AllocationRef found = state_->memory.find(at);
  if (!found || found->freed || at >= found->end()) return std::nullopt;
  return PointerInfo{found->kind, found->device, reinterpret_cast<const void*>(found->begin),
                     found->bytes};
}

std::pair<std::size_t, std::size_t> Engine::memory_info(int device) {
  const Lock held = lock();
  const std::size_t total = state_->memory.bytes_per_device();
  return {total - state_->memory.allocated(device), total};
}

void* Engine::view(const void* address) const {
  return state_->memory.view(reinterpret_cast<std::uintptr_t>(address));
}

}  // namespace lockstep::devices
