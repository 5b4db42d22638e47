#include "memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <iterator>

namespace lockstep::devices {
namespace {

constexpr std::size_t page = 4096;
// How much freed memory is kept from being used again.
constexpr std::size_t quarantined_blocks = 4'096;
// Of addresses, for all page-locked and managed memory.
constexpr std::size_t host_window = std::size_t{1} << 36;
constexpr std::size_t worth_dropping = std::size_t{1} << 16;
// Address windows are twice as large as the memory, so that half can be in quarantine; together
// they must fit into the addresses of a process, also beside a sanitizer's.
constexpr std::size_t all_windows = std::size_t{1} << 40;

std::size_t whole_pages(std::size_t bytes) {
  return (bytes + page - 1) / page * page;
}

}  // namespace

Memory::Memory(int devices, std::size_t bytes_per_device)
    : bytes_per_device_(bytes_per_device),
      spaces_(static_cast<std::size_t>(devices) + 1),
      allocated_(static_cast<std::size_t>(devices), 0),
      quarantine_(spaces_.size()) {}

std::size_t Memory::place(const Allocation& allocation) const {
  return allocation.tracks_writes() ? static_cast<std::size_t>(allocation.device)
                                    : spaces_.size() - 1;
}

AddressSpace& Memory::space(std::size_t place) {
  std::atomic<AddressSpace*>& one = spaces_[place];
  if (one.load() == nullptr) {
    const std::size_t fair = all_windows / spaces_.size();
    const std::size_t window = std::max(std::min(2 * bytes_per_device_, fair), bytes_per_device_);
    one.store(place + 1 < spaces_.size()
                  ? new AddressSpace(whole_pages(window), AddressSpace::Owner::device)
                  : new AddressSpace(host_window, AddressSpace::Owner::host));
  }
  return *one.load();
}

bool Memory::evict_oldest(std::size_t place) {
  auto& queue = quarantine_[place];
  if (queue.empty()) return false;
  const AllocationRef oldest = std::move(queue.front());
  queue.pop_front();
  by_address_.erase(oldest->begin);
  space(place).give_back(oldest->begin, oldest->bytes);
  return true;
}

std::uintptr_t Memory::take(std::size_t place, std::size_t bytes) {
  while (true) {
    if (const std::uintptr_t at = space(place).take(bytes); at != 0) return at;
    if (!evict_oldest(place)) return 0;
  }
}

AllocationRef Memory::allocate(MemoryKind kind, int device, std::size_t bytes, std::string origin) {
  auto made =
      std::make_shared<Allocation>(Allocation{kind, device, 0, bytes, nullptr, std::move(origin)});
  const std::size_t where = place(*made);
  if (made->tracks_writes()) {
    std::size_t& used = allocated_[where];
    if (bytes > bytes_per_device_ - std::min(used, bytes_per_device_)) return nullptr;
    made->begin = take(where, bytes);
    if (made->begin == 0) return nullptr;
    made->view = space(where).view(made->begin);
    used += bytes;
  } else {
    made->begin = take(where, bytes);
    if (made->begin == 0) return nullptr;
    made->view = space(where).view(made->begin);
    ::mprotect(reinterpret_cast<void*>(made->begin), whole_pages(bytes), PROT_READ | PROT_WRITE);
    // The program reads it without our knowing.
    fill_with_poison(made->view, bytes, made->begin);
  }
  by_address_.emplace(made->begin, made);
  return made;
}

AllocationRef Memory::adopt(std::uintptr_t begin, std::size_t bytes, std::string origin) {
  if (!overlapping(begin, bytes).empty()) return nullptr;
  auto made = std::make_shared<Allocation>(Allocation{MemoryKind::registered, -1, begin, bytes,
                                                      reinterpret_cast<std::byte*>(begin),
                                                      std::move(origin)});
  by_address_.emplace(begin, made);
  return made;
}

void Memory::retire(const AllocationRef& allocation) {
  allocation->freed = true;
  allocation->doomed = true;
  // While it is in quarantine, only where it was and what it was called is still asked for.
  allocation->written = {};
  allocation->records = {};
  allocation->users = {};
  allocation->allocating = nullptr;
  if (allocation->kind == MemoryKind::registered) {
    by_address_.erase(allocation->begin);
    return;
  }
  const std::size_t where = place(*allocation);
  if (allocation->tracks_writes()) allocated_[where] -= allocation->bytes;
  if (!allocation->tracks_writes() || allocation->bytes >= worth_dropping) {
    space(where).drop(allocation->begin, allocation->bytes);
  }
  quarantine_[where].push_back(allocation);
  if (quarantine_[where].size() > quarantined_blocks) evict_oldest(where);
}

AllocationRef Memory::find(std::uintptr_t address) const {
  auto after = by_address_.upper_bound(address);
  if (after == by_address_.begin()) return nullptr;
  const AllocationRef& candidate = std::prev(after)->second;
  return address <= candidate->end() ? candidate : nullptr;
}

std::vector<AllocationRef> Memory::overlapping(std::uintptr_t begin, std::size_t bytes) const {
  std::vector<AllocationRef> found;
  auto at = by_address_.upper_bound(begin);
  if (at != by_address_.begin() && std::prev(at)->second->end() > begin) --at;
  for (; at != by_address_.end() && at->first < begin + bytes; ++at) found.push_back(at->second);
  return found;
}

std::byte* Memory::view(std::uintptr_t address) const {
  for (const std::atomic<AddressSpace*>& one : spaces_) {
    const AddressSpace* space = one.load();
    if (space != nullptr && space->contains(address)) return space->view(address);
  }
  return reinterpret_cast<std::byte*>(address);
}

int Memory::window_of(std::uintptr_t address) const {
  for (std::size_t device = 0; device + 1 < spaces_.size(); ++device) {
    const AddressSpace* space = spaces_[device].load();
    if (space != nullptr && space->contains(address)) return static_cast<int>(device);
  }
  return -1;
}

}  // namespace lockstep::devices
