// Page-locked and managed memory that the host must leave alone: what pending work will write must
// not be touched, what it will read must not be written, until the program has waited for it. The
// pages are protected meanwhile, at the program's addresses; a touch is reported and let through.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "allocation.hpp"
#include "clock.hpp"
#include "work.hpp"

namespace lockstep::devices {

class Guard {
 public:
  // A work will touch this range of the allocation. Only pages of which every byte that the program
  // may use is in the range are protected.
  void add(const AllocationRef& allocation, const Access& access, const Moment& moment,
           std::string text);
  // The host knows more than before.
  void release(const Clock& known);
  // The allocation is not guarded any more.
  void release(const AllocationRef& allocation);

  // A work that guards the address; null when there is none.
  struct Entry {
    AllocationRef allocation;
    std::uintptr_t begin;  // of whole pages
    std::uintptr_t end;
    Touch touch;
    Moment moment;
    std::string text;
  };
  const Entry* find(std::uintptr_t address) const;

 private:
  template <class Condition>
  void release_if(Condition condition);

  std::vector<Entry> entries_;
};

}  // namespace lockstep::devices
