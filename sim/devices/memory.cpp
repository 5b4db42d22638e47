#include "memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <iterator>

namespace lockstep::devices {
namespace {

constexpr std::size_t page = 4096;
// How much freed memory is kept from being used again.
constexpr std::size_t quarantined_blocks = 16'384;
constexpr std::size_t quarantined_host_bytes = std::size_t{1} << 30;  // of addresses, not of pages
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
      spaces_(static_cast<std::size_t>(devices)),
      allocated_(static_cast<std::size_t>(devices), 0),
      quarantine_(static_cast<std::size_t>(devices) + 1) {}

AddressSpace& Memory::space(int device) {
  std::atomic<AddressSpace*>& one = spaces_[static_cast<std::size_t>(device)];
  if (one.load() == nullptr) {
    const std::size_t fair = all_windows / spaces_.size();
    const std::size_t window = std::max(std::min(2 * bytes_per_device_, fair), bytes_per_device_);
    one.store(new AddressSpace(whole_pages(window)));
  }
  return *one.load();
}

bool Memory::evict_oldest(int device) {
  auto& queue = quarantine_[static_cast<std::size_t>(device)];
  if (queue.empty()) return false;
  const AllocationRef oldest = std::move(queue.front());
  queue.pop_front();
  by_address_.erase(oldest->begin);
  space(device).give_back(oldest->begin, oldest->bytes);
  return true;
}

std::uintptr_t Memory::take(int device, std::size_t bytes) {
  while (true) {
    if (const std::uintptr_t at = space(device).take(bytes); at != 0) return at;
    if (!evict_oldest(device)) return 0;
  }
}

AllocationRef Memory::allocate(MemoryKind kind, int device, std::size_t bytes, std::string origin) {
  auto made =
      std::make_shared<Allocation>(Allocation{kind, device, 0, bytes, nullptr, std::move(origin)});
  if (kind == MemoryKind::device || kind == MemoryKind::pool) {
    std::size_t& used = allocated_[static_cast<std::size_t>(device)];
    if (bytes > bytes_per_device_ - std::min(used, bytes_per_device_)) return nullptr;
    made->begin = take(device, bytes);
    if (made->begin == 0) return nullptr;
    made->view = space(device).view(made->begin);
    used += bytes;
  } else {
    // Pages of its own, so that they can be protected, and one more that nobody may touch.
    void* at = ::mmap(nullptr, whole_pages(bytes) + page, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return nullptr;
    if (::mprotect(at, whole_pages(bytes), PROT_READ | PROT_WRITE) != 0) {
      ::munmap(at, whole_pages(bytes) + page);
      return nullptr;
    }
    made->begin = reinterpret_cast<std::uintptr_t>(at);
    made->view = static_cast<std::byte*>(at);
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
  allocation->written = {};
  allocation->records.clear();
  if (allocation->kind == MemoryKind::registered) {
    by_address_.erase(allocation->begin);
    return;
  }
  if (allocation->tracks_writes()) {
    const int device = allocation->device;
    allocated_[static_cast<std::size_t>(device)] -= allocation->bytes;
    if (allocation->bytes >= worth_dropping) {
      space(device).drop_pages(allocation->begin, allocation->bytes);
    }
    auto& queue = quarantine_[static_cast<std::size_t>(device)];
    queue.push_back(allocation);
    if (queue.size() > quarantined_blocks) evict_oldest(device);
    return;
  }
  // Nobody can touch it from here on.
  const std::size_t length = whole_pages(allocation->bytes) + page;
  ::mmap(allocation->view, length, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  auto& queue = quarantine_.back();
  queue.push_back(allocation);
  host_quarantine_bytes_ += length;
  while (!queue.empty() &&
         (host_quarantine_bytes_ > quarantined_host_bytes || queue.size() > quarantined_blocks)) {
    const AllocationRef oldest = std::move(queue.front());
    queue.pop_front();
    by_address_.erase(oldest->begin);
    host_quarantine_bytes_ -= whole_pages(oldest->bytes) + page;
    ::munmap(oldest->view, whole_pages(oldest->bytes) + page);
  }
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
  for (std::size_t device = 0; device < spaces_.size(); ++device) {
    const AddressSpace* space = spaces_[device].load();
    if (space != nullptr && space->contains(address)) return static_cast<int>(device);
  }
  return -1;
}

}  // namespace lockstep::devices
