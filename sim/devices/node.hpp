// Streams, and the works at their places in them.
//
// Who owns what: the engine holds streams by their handles; a stream holds its works that are not
// done, oldest first, and the latest one; a work holds those it depends on until it is done. A node
// that is done holds only its moment and its clock, for events and for those who come after it.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "allocation.hpp"
#include "clock.hpp"
#include "engine.hpp"
#include "work.hpp"

namespace lockstep::devices {

struct Node {
  enum class State : std::uint8_t { pending, running, done };

  StreamRef stream;
  std::uint64_t number = 0;  // in the order of all enqueues of the process
  Call call;
  std::vector<Access> accesses;
  std::vector<AllocationRef> homes;  // of each access; null for pageable host memory
  std::unique_ptr<Work> work;        // null for markers: event records and waits
  std::vector<NodeRef> dependencies;
  Moment moment;
  Clock clock;  // what happened before; complete once it has had its turn
  State state = State::pending;
  bool had_turn = false;  // blocked since, unless it is done
  bool failed = false;
  std::chrono::steady_clock::time_point polled_since = {};  // the first of the polls
  int polls = 0;  // how often it was asked for while it was not done
  std::chrono::steady_clock::time_point finished = {};
};

struct Stream {
  enum class Kind : std::uint8_t { legacy, per_thread, blocking, non_blocking };

  Kind kind;
  int device;
  int priority = 0;
  std::uint64_t number = 0;  // for people
  void* handle = nullptr;
  std::deque<NodeRef> pending = {};
  NodeRef latest = nullptr;
  Clock clock = {};  // of its latest work that had its turn
  std::size_t slot = 0;
  std::uint64_t time = 0;
  bool destroyed = false;

  // Takes part in the mutual waiting with the legacy default stream.
  bool blocking() const { return kind == Kind::blocking || kind == Kind::per_thread; }
};

struct Event {
  int device;
  bool timed;
  std::uint64_t number = 0;
  NodeRef record = nullptr;  // the latest; null before the first
};

std::string text(const Stream& stream);
// "cudaMemcpyAsync on stream 3 of device 1"
std::string text(const Node& node);

}  // namespace lockstep::devices
