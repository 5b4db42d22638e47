#include "guard.hpp"

#include <sys/mman.h>

#include <algorithm>

namespace lockstep::devices {
namespace {

constexpr std::uintptr_t page = 4096;

void protect(std::uintptr_t begin, std::uintptr_t end, int protection) {
  ::mprotect(reinterpret_cast<void*>(begin), end - begin, protection);
}

int protection_for(Touch touch) {
  return touch == Touch::write ? PROT_NONE : PROT_READ;
}

}  // namespace

void Guard::add(const AllocationRef& allocation, const Access& access, const Moment& moment,
                std::string text) {
  const auto begin = reinterpret_cast<std::uintptr_t>(access.address);
  const std::uintptr_t end = begin + access.bytes;
  // Allocations begin with a page and have their last page to themselves.
  const std::uintptr_t first = (begin + page - 1) / page * page;
  const std::uintptr_t last = (end == allocation->end() ? end + page - 1 : end) / page * page;
  if (first >= last) return;
  entries_.push_back({allocation, first, last, access.touch, moment, std::move(text)});
  const bool closed = std::any_of(entries_.begin(), entries_.end() - 1, [&](const Entry& other) {
    return other.touch == Touch::write && other.begin < last && first < other.end;
  });
  if (!closed || access.touch == Touch::write) {
    protect(first, last, protection_for(access.touch));
  } else {
    for (const Entry& entry : entries_) {
      if (entry.touch == Touch::read) protect(entry.begin, entry.end, PROT_READ);
    }
    for (const Entry& entry : entries_) {
      if (entry.touch == Touch::write) protect(entry.begin, entry.end, PROT_NONE);
    }
  }
}

template <class Condition>
void Guard::release_if(Condition condition) {
  std::vector<Entry> gone;
  for (std::size_t i = 0; i < entries_.size();) {
    if (condition(entries_[i])) {
      gone.push_back(std::move(entries_[i]));
      entries_[i] = std::move(entries_.back());
      entries_.pop_back();
    } else {
      ++i;
    }
  }
  for (const Entry& entry : gone) protect(entry.begin, entry.end, PROT_READ | PROT_WRITE);
  // What is still guarded and overlaps.
  for (const Touch touch : {Touch::read, Touch::write}) {
    for (const Entry& kept : entries_) {
      if (kept.touch != touch) continue;
      for (const Entry& entry : gone) {
        const std::uintptr_t begin = std::max(kept.begin, entry.begin);
        const std::uintptr_t end = std::min(kept.end, entry.end);
        if (begin < end) protect(begin, end, protection_for(touch));
      }
    }
  }
}

void Guard::release(const Clock& known) {
  if (entries_.empty()) return;
  release_if([&](const Entry& entry) { return known.covers(entry.moment); });
}

void Guard::release(const AllocationRef& allocation) {
  release_if([&](const Entry& entry) { return entry.allocation == allocation; });
}

const Guard::Entry* Guard::find(std::uintptr_t address) const {
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return entry.begin <= address && address < entry.end;
  });
  return found == entries_.end() ? nullptr : &*found;
}

}  // namespace lockstep::devices
