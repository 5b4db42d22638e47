// What is checked at the moment when a work runs: that its memory is still there, that what it
// reads has been written, and that its accesses are ordered after those that were made before.

#include <sys/mman.h>

#include <algorithm>
#include <bit>

#include "state.hpp"
#include "text.hpp"

namespace lockstep::devices {
namespace {

bool clashes(const AccessRecord& record, std::uintptr_t begin, std::uintptr_t end, Touch touch) {
  return record.begin < end && begin < record.end &&
         (record.touch == Touch::write || touch == Touch::write);
}

// Whether the process has these pages at all. Memory of the program's own may be gone by now.
bool is_mapped(std::uintptr_t begin, std::uintptr_t end) {
  constexpr std::uintptr_t page = 4096;
  constexpr std::size_t at_once = 256;
  unsigned char in_core[at_once];
  for (std::uintptr_t at = begin / page * page; at < end; at += at_once * page) {
    const std::size_t length = std::min<std::size_t>(at_once * page, end - at);
    if (::mincore(reinterpret_cast<void*>(at), length, in_core) != 0) return false;
  }
  return true;
}

bool touches(const Node& node, const AccessRecord& record) {
  return std::any_of(node.accesses.begin(), node.accesses.end(), [&](const Access& access) {
    const auto begin = reinterpret_cast<std::uintptr_t>(access.address);
    return clashes(record, begin, begin + access.bytes, access.touch);
  });
}

// Keeps the list short: the same stream's same access replaces its earlier one, and now and then,
// as the list doubles, records that everybody knows of are dropped (the host, and the works that
// are still to touch the same place).
void note(std::vector<AccessRecord>& records, const std::vector<std::weak_ptr<Node>>& users,
          const Clock& host, AccessRecord made) {
  constexpr std::size_t most = 4096;
  const auto known = [&](const AccessRecord& record) {
    return host.covers(record.moment) &&
           std::none_of(users.begin(), users.end(), [&](const std::weak_ptr<Node>& user) {
             const NodeRef node = user.lock();
             return node && node->state != Node::State::done &&
                    !node->clock.covers(record.moment) && touches(*node, record);
           });
  };
  const bool doubled = records.size() >= 16 && std::has_single_bit(records.size());
  std::erase_if(records, [&](const AccessRecord& record) {
    return (record.moment.slot == made.moment.slot && record.begin == made.begin &&
            record.end == made.end && record.touch == made.touch) ||
           (doubled && known(record));
  });
  // Not one at a time, or the list would be looked through at every access.
  if (records.size() >= most) records.erase(records.begin(), records.begin() + most / 2);
  records.push_back(std::move(made));
}

}  // namespace

// Whether the access comes after all earlier ones that it clashes with.
void Engine::State::check_order(Node& node, std::size_t index) {
  const Access& access = node.accesses[index];
  const AllocationRef& home = node.homes[index];
  const auto begin = reinterpret_cast<std::uintptr_t>(access.address);
  const std::uintptr_t end = begin + access.bytes;
  std::vector<AccessRecord>& records = home ? home->records : memory.pageable_records();
  for (auto at = records.begin(); at != records.end(); ++at) {
    const AccessRecord& record = *at;
    if (!clashes(record, begin, end, access.touch)) continue;
    if (record.moment.slot == node.moment.slot || node.clock.covers(record.moment)) continue;
    find_fault("unordered-access", node.call, node.stream.get(), node.stream->device,
               "it " + std::string(verb(access.touch)) + " " + range_text(access) +
                   " while nothing orders it after other work that " + verb(record.touch) +
                   " there.",
               {"the other: " + record.text},
               "Record an event after the other work and make this stream wait for it, or "
               "synchronize in between.");
    records.erase(at);  // told once
    break;
  }
}

void Engine::State::note_accesses(Node& node) {
  for (std::size_t i = 0; i < node.accesses.size(); ++i) {
    const Access& access = node.accesses[i];
    const AllocationRef& home = node.homes[i];
    if (access.bytes == 0) continue;
    const auto begin = reinterpret_cast<std::uintptr_t>(access.address);
    note(home ? home->records : memory.pageable_records(),
         home ? home->users : memory.pageable_users(), host,
         {begin, begin + access.bytes, access.touch, node.moment, text(node)});
  }
}

// Work that nobody waited for is not run any more, but it is checked against what did run.
void Engine::State::check_order_of_the_rest() {
  std::vector<NodeRef> rest;
  for (const Device& device : devices) {
    for (const StreamRef& stream : device.streams) {
      for (const NodeRef& node : stream->pending) {
        if (!node->had_turn) rest.push_back(node);
      }
    }
  }
  // In the order in which it was enqueued, nothing comes before what it depends on.
  std::sort(rest.begin(), rest.end(),
            [](const NodeRef& a, const NodeRef& b) { return a->number < b->number; });
  for (const NodeRef& node : rest) {
    node->clock.join(node->stream->clock);
    for (const NodeRef& dependency : node->dependencies) node->clock.join(dependency->clock);
    node->clock.add(node->moment);
    node->stream->clock = node->clock;
    for (std::size_t i = 0; i < node->accesses.size(); ++i) {
      if (node->accesses[i].bytes == 0 || (node->homes[i] && node->homes[i]->freed)) continue;
      check_order(*node, i);
    }
    note_accesses(*node);
  }
}

bool Engine::State::admit(Node& node) {
  for (std::size_t i = 0; i < node.accesses.size(); ++i) {
    const Access& access = node.accesses[i];
    const AllocationRef& home = node.homes[i];
    if (access.bytes == 0) continue;
    const auto begin = reinterpret_cast<std::uintptr_t>(access.address);
    const std::uintptr_t end = begin + access.bytes;

    if (!home && !is_mapped(begin, end)) {
      find_fault("host-memory-gone", node.call, node.stream.get(), node.stream->device,
                 "it runs now and " + std::string(verb(access.touch)) + " " + range_text(access) +
                     ", which is no memory of the process any more.",
                 {}, "Keep host memory until the work that uses it is done.");
      return false;
    }
    if (home && home->freed) {
      if (home->told) return false;
      find_fault(
          "use-after-free", node.call, node.stream.get(), node.stream->device,
          "it runs now and " + std::string(verb(access.touch)) + " " + range_text(access) +
              ", but that memory is gone.",
          {"freed by: " + home->end_text},
          "Free memory when the work that uses it is done: synchronize first, or free in the "
          "order of the stream with cudaFreeAsync.");
      return false;
    }
    if (home && home->allocating && home->allocating->state != Node::State::done) {
      find_fault("use-before-allocation", node.call, node.stream.get(), node.stream->device,
                 "it runs now and " + std::string(verb(access.touch)) + " " + range_text(access) +
                     ", which its stream has not allocated yet.",
                 {"allocated by: " + text(*home->allocating)},
                 "Make this stream wait for an event recorded after the allocation.");
      return false;
    }
    check_order(node, i);
    if (home && home->tracks_writes() && access.touch == Touch::read) {
      const auto gaps = home->written.gaps(begin - home->begin, end - home->begin);
      for (const auto& [from, to] : gaps) {
        fill_with_poison(home->view + from, to - from, home->begin + from);
      }
      if (!gaps.empty() && access.must_be_initialized && options.uninitialized) {
        std::size_t missing = 0;
        for (const auto& [from, to] : gaps) missing += to - from;
        find_fault("uninitialized-read", node.call, node.stream.get(), node.stream->device,
                   "it reads " + range_text(access) + ", of which nothing has written " +
                       bytes_text(missing) + ", the first at offset " +
                       std::to_string(gaps.front().first - (begin - home->begin)) + ".",
                   {"allocated by: " + home->origin + ", " + bytes_text(home->bytes)},
                   "Write the memory first; if it was written by another stream, wait for that.");
        home->written.add(begin - home->begin, end - home->begin);  // told once
      }
    }
    if (home && home->tracks_writes() && access.touch == Touch::write && !access.fills) {
      for (const auto& [from, to] : home->written.gaps(begin - home->begin, end - home->begin)) {
        fill_with_poison(home->view + from, to - from, home->begin + from);
      }
    }
  }
  // Noted now rather than at the end: a collective may stay blocked while others run.
  note_accesses(node);
  return true;
}

void Engine::State::complete_accesses(Node& node) {
  for (std::size_t i = 0; i < node.accesses.size(); ++i) {
    const Access& access = node.accesses[i];
    const AllocationRef& home = node.homes[i];
    if (access.bytes == 0 || access.touch == Touch::read) continue;
    if (!home || home->freed || !home->tracks_writes()) continue;
    const std::size_t offset = reinterpret_cast<std::uintptr_t>(access.address) - home->begin;
    home->written.add(offset, offset + access.bytes);
  }
}

}  // namespace lockstep::devices
