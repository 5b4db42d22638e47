#include "wire.hpp"

namespace lockstep::nccl {

void put(Writer& to, const Entry& entry) {
  to.put(entry.birth);
  to.put(entry.key);
  to.put(entry.name);
  to.put(entry.ranks);
  to.put(entry.rank);
  to.put(entry.device);
  to.put(entry.host);
  to.put(entry.color);
  to.put(entry.order);
  to.put(entry.excluded.size());
  for (const int rank : entry.excluded) to.put(rank);
}

Entry get_entry(Reader& from) {
  Entry entry;
  entry.birth = from.get<Birth>();
  entry.key = from.get_text();
  entry.name = from.get_text();
  entry.ranks = from.get<int>();
  entry.rank = from.get<int>();
  entry.device = from.get<int>();
  entry.host = from.get_text();
  entry.color = from.get<int>();
  entry.order = from.get<int>();
  for (auto left = from.get<std::size_t>(); left > 0 && from.good(); --left) {
    entry.excluded.push_back(from.get<int>());
  }
  return entry;
}

void put(Writer& to, const Launch& launch) {
  to.put(launch.number);
  to.put(launch.thread);
  to.put(launch.group);
  to.put(launch.calls.size());
  for (const Call& call : launch.calls) {
    to.put(call.kind);
    to.put(call.datatype);
    to.put(call.op);
    to.put(call.peer);
    to.put(call.count);
    to.put(call.number);
    to.put(call.stream);
    to.put(call.dropped_before);
  }
}

LaunchRef get_launch(Reader& from) {
  auto launch = std::make_shared<Launch>();
  launch->number = from.get<std::uint64_t>();
  launch->thread = from.get<std::uint64_t>();
  launch->group = from.get<std::uint64_t>();
  for (auto left = from.get<std::size_t>(); left > 0 && from.good(); --left) {
    Call call;
    call.kind = from.get<CallKind>();
    call.datatype = from.get<ncclDataType_t>();
    call.op = from.get<Operator>();
    call.peer = from.get<int>();
    call.count = from.get<std::size_t>();
    call.number = from.get<std::uint64_t>();
    call.stream = from.get_text();
    call.dropped_before = from.get<std::uint32_t>();
    launch->calls.push_back(std::move(call));
  }
  return launch;
}

}  // namespace lockstep::nccl
