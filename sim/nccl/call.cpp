#include "call.hpp"

#include "names.hpp"

namespace lockstep::nccl {

const char* name_of(CallKind kind) {
  constexpr const char* names[] = {
      "ncclAllReduce", "ncclBroadcast", "ncclReduce",  "ncclAllGather", "ncclReduceScatter",
      "ncclAlltoAll",  "ncclGather",    "ncclScatter", "ncclSend",      "ncclRecv"};
  return names[static_cast<int>(kind)];
}

std::string describe(const Call& call) {
  std::string text = std::string(name_of(call.kind)) + " of " + std::to_string(call.count) + " " +
                     name_of(call.datatype);
  if (is_reduction(call.kind)) text += ", " + name_of(call.op);
  switch (call.kind) {
    case CallKind::broadcast:
    case CallKind::scatter:
      return text + ", from root " + std::to_string(call.peer);
    case CallKind::reduce:
    case CallKind::gather:
      return text + ", to root " + std::to_string(call.peer);
    case CallKind::send:
      return text + " to rank " + std::to_string(call.peer);
    case CallKind::receive:
      return text + " from rank " + std::to_string(call.peer);
    default:
      return text;
  }
}

std::optional<Extents> extents(const Call& call, int rank, int ranks) {
  std::size_t block = 0;
  std::size_t all = 0;
  if (__builtin_mul_overflow(call.count, size_of(call.datatype), &block) ||
      __builtin_mul_overflow(block, static_cast<std::size_t>(ranks), &all) || (all >> 63) != 0) {
    return std::nullopt;
  }
  const bool at_root = rank == call.peer;
  switch (call.kind) {
    case CallKind::all_reduce:
      return Extents{block, block};
    case CallKind::broadcast:
      return Extents{at_root ? block : 0, block};
    case CallKind::reduce:
      return Extents{block, at_root ? block : 0};
    case CallKind::all_gather:
      return Extents{block, all};
    case CallKind::reduce_scatter:
      return Extents{all, block};
    case CallKind::all_to_all:
      return Extents{all, all};
    case CallKind::gather:
      return Extents{block, at_root ? all : 0};
    case CallKind::scatter:
      return Extents{at_root ? all : 0, block};
    case CallKind::send:
      return Extents{block, 0};
    case CallKind::receive:
      return Extents{0, block};
  }
  return std::nullopt;
}

const char* disagreement(const Call& a, const Call& b) {
  if (a.kind != b.kind) return "operation";
  if (a.datatype != b.datatype) return "datatype";
  if (a.count != b.count) return "count";
  if (is_rooted(a.kind) && a.peer != b.peer) return "root";
  if (is_reduction(a.kind) && a.op != b.op) return "reduction operator";
  return nullptr;
}

}  // namespace lockstep::nccl
