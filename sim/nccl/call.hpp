// One NCCL operation as a rank asked for it, without its buffers: what has to match between ranks,
// and what a report says about it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "reduction.hpp"

namespace lockstep::nccl {

enum class CallKind : std::uint8_t {
  all_reduce,
  broadcast,
  reduce,
  all_gather,
  reduce_scatter,
  all_to_all,
  gather,
  scatter,
  send,
  receive
};

struct Call {
  CallKind kind{};
  ncclDataType_t datatype{};
  Operator op = Operator::sum;  // of the reductions
  int peer = -1;                // the root of a rooted collective, the other side of a transfer
  std::size_t count = 0;        // elements, as passed

  // Not compared, only told: the rank's calls on this communicator counted from 0, and the stream.
  std::uint64_t number = 0;
  std::string stream = {};
  // How many collectives without elements came just before; NCCL drops those on the spot.
  std::uint32_t dropped_before = 0;
};

inline bool is_collective(const Call& call) {
  return call.kind < CallKind::send;
}
inline bool is_rooted(CallKind kind) {
  return kind == CallKind::broadcast || kind == CallKind::reduce || kind == CallKind::gather ||
         kind == CallKind::scatter;
}
inline bool is_reduction(CallKind kind) {
  return kind == CallKind::all_reduce || kind == CallKind::reduce ||
         kind == CallKind::reduce_scatter;
}

// "ncclAllReduce", ...
const char* name_of(CallKind kind);
// "ncclBroadcast of 8 float32 from root 2"
std::string describe(const Call& call);

// What `rank` of `ranks` reads and writes: bytes at the send buffer and at the receive buffer. Zero
// where the rank does not use the buffer. Nothing when a size does not fit in 63 bits.
struct Extents {
  std::size_t sent = 0;
  std::size_t received = 0;
};
std::optional<Extents> extents(const Call& call, int rank, int ranks);

// The rule that two calls of one collective break together ("operation", "count", "datatype",
// "root" or "reduction operator"), or null when they match.
const char* disagreement(const Call& a, const Call& b);

}  // namespace lockstep::nccl
