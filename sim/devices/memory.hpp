// All memory that the simulated runtime knows, live and in quarantine. Not locked: the engine's
// lock guards it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "address_space.hpp"
#include "allocation.hpp"

namespace lockstep::devices {

class Memory {
 public:
  Memory(int devices, std::size_t bytes_per_device);

  // Null when there is no room. `origin` is the call that asked.
  AllocationRef allocate(MemoryKind kind, int device, std::size_t bytes, std::string origin);
  // Memory of the program that it page-locked; null when it overlaps memory that is known already.
  AllocationRef adopt(std::uintptr_t begin, std::size_t bytes, std::string origin);
  // The memory is not to be used any more; its addresses stay in quarantine for as long as there is
  // room. Memory of the program is forgotten at once.
  void retire(const AllocationRef& allocation);

  // The allocation that holds the address, or that it is just behind; null when there is none.
  AllocationRef find(std::uintptr_t address) const;
  // The allocations that overlap a range, in order.
  std::vector<AllocationRef> overlapping(std::uintptr_t begin, std::size_t bytes) const;

  std::byte* view(std::uintptr_t address) const;
  // The device in whose window the address lies, whether anything was allocated there or not; -1.
  int window_of(std::uintptr_t address) const;

  std::size_t bytes_per_device() const { return bytes_per_device_; }
  std::size_t allocated(int device) const { return allocated_[static_cast<std::size_t>(device)]; }
  // Accesses to host memory that is in no allocation.
  std::vector<AccessRecord>& pageable_records() { return pageable_records_; }
  // Works that will touch such memory.
  std::vector<std::weak_ptr<Node>>& pageable_users() { return pageable_users_; }

 private:
  // Where memory lies: on the device of this number, or on the host, which comes last.
  std::size_t place(const Allocation& allocation) const;
  AddressSpace& space(std::size_t place);
  bool evict_oldest(std::size_t place);
  std::uintptr_t take(std::size_t place, std::size_t bytes);

  std::size_t bytes_per_device_;
  // Made when needed and never destroyed; read without the lock.
  std::vector<std::atomic<AddressSpace*>> spaces_;
  std::vector<std::size_t> allocated_;
  std::map<std::uintptr_t, AllocationRef> by_address_;  // by begin; never overlapping
  std::vector<std::deque<AllocationRef>> quarantine_;   // by place
  std::vector<AccessRecord> pageable_records_;
  std::vector<std::weak_ptr<Node>> pageable_users_;
};

}  // namespace lockstep::devices
