// A piece of memory that the simulated runtime knows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "clock.hpp"
#include "engine.hpp"
#include "intervals.hpp"

namespace lockstep::devices {

// An access that was made, kept for as long as a later one may turn out unordered with it.
struct AccessRecord {
  std::uintptr_t begin;
  std::uintptr_t end;
  Touch touch;
  Moment moment;
  std::string text;  // "cudaMemcpyAsync on stream 3 of device 1"
};

struct Allocation {
  MemoryKind kind;
  int device;            // -1 for host memory
  std::uintptr_t begin;  // as the program holds it
  std::size_t bytes;
  std::byte* view;     // where the bytes are
  std::string origin;  // "cudaMalloc"

  // The other devices that its pool is open to.
  std::shared_ptr<const std::unordered_set<int>> shared = nullptr;
  // Stream-ordered memory is there once its allocation ran.
  NodeRef allocating = nullptr;
  // Set once it was asked to be freed; `freed` once that has happened.
  bool doomed = false;
  bool freed = false;
  bool told = false;  // that it was freed in use: the works that come to nothing need no more words
  std::string end_text = {};  // "cudaFreeAsync on stream 2 of device 0"

  // What was written so far; only kept for memory that the host cannot write behind our back.
  Intervals written = {};
  std::vector<AccessRecord> records = {};
  // Works that will touch it.
  std::vector<std::weak_ptr<Node>> users = {};

  bool tracks_writes() const { return kind == MemoryKind::device || kind == MemoryKind::pool; }
  bool on_host() const { return kind == MemoryKind::pinned || kind == MemoryKind::registered; }
  std::uintptr_t end() const { return begin + bytes; }
};

}  // namespace lockstep::devices
