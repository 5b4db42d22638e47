// The collectives and transfers of NCCL's interface.

#include <algorithm>
#include <cstdint>

#include "communicator.hpp"
#include "exports.hpp"
#include "group.hpp"
#include "names.hpp"

namespace lockstep::nccl {
namespace {

using devices::Engine;

// An operation as it was called.
struct Arguments {
  CallKind kind{};
  const void* sendbuff = nullptr;
  void* recvbuff = nullptr;
  std::size_t count = 0;
  ncclDataType_t datatype{};
  ncclRedOp_t op = ncclSum;
  int peer = -1;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  const char* function = name_of(kind);
};

ncclResult_t wrong(const Arguments& arguments, const char* rule, const std::string& what,
                   const char* advice) {
  const devices::Lock lock = Engine::instance().lock();
  return complain(arguments.comm, arguments.function, ncclInvalidArgument, rule, what, advice);
}

Call call_of(const Arguments& arguments) {
  Call call;
  call.kind = arguments.kind;
  call.datatype = arguments.datatype;
  call.peer = arguments.peer;
  call.count = arguments.count;
  return call;
}

// The default streams are those of the communicator's device, whichever is current.
devices::StreamRef stream_of(const Arguments& arguments) {
  Engine& engine = Engine::instance();
  const int current = engine.current_device();
  engine.set_device(arguments.comm->device);
  const devices::Call call = {arguments.function, arguments.comm->describe()};
  devices::StreamRef stream =
      engine.find_stream(arguments.stream, devices::DefaultStream::legacy, &call);
  engine.set_device(current);
  return stream;
}

// The reduction operator of a call: what the ranks must agree on, and the rank's own scalar.
ncclResult_t resolve_operator(const Arguments& arguments, Request& request) {
  const int op = arguments.op;
  if (op >= 0 && op < ncclNumOps) {
    constexpr Operator builtin[] = {Operator::sum, Operator::prod, Operator::max, Operator::min,
                                    Operator::avg};
    request.call.op = builtin[op];
    return ncclSuccess;
  }
  const auto index = static_cast<std::size_t>(op - ncclNumOps);
  const auto& operators = arguments.comm->operators;
  if (op < 0 || index >= operators.size() || !operators[index]) {
    return wrong(arguments, "not-an-operator",
                 "reduction operator " + std::to_string(op) +
                     " is none of this communicator, or was destroyed",
                 "Pass a built-in operator, or one made with this communicator.");
  }
  if (operators[index]->datatype != arguments.datatype) {
    return wrong(arguments, "operator-of-another-datatype",
                 "the reduction operator was made for " + name_of(operators[index]->datatype) +
                     " and is used for " + name_of(arguments.datatype),
                 "Make an operator for each datatype.");
  }
  request.call.op = Operator::premultiplied_sum;
  request.scalar = operators[index]->scalar;
  request.device_scalar = operators[index]->device_scalar;
  return ncclSuccess;
}

// Whether the buffers overlap in another way than NCCL allows for operations in place.
bool overlap_badly(const Arguments& arguments, const Extents& sizes, std::size_t block) {
  const auto sent = reinterpret_cast<std::uintptr_t>(arguments.sendbuff);
  const auto received = reinterpret_cast<std::uintptr_t>(arguments.recvbuff);
  if (sizes.sent == 0 || sizes.received == 0) return false;
  if (sent >= received + sizes.received || received >= sent + sizes.sent) return false;
  const auto rank = static_cast<std::uintptr_t>(arguments.comm->rank);
  switch (arguments.kind) {
    case CallKind::reduce_scatter:
    case CallKind::scatter:
      return received != sent + rank * block;
    case CallKind::all_gather:
    case CallKind::gather:
      return sent != received + rank * block;
    case CallKind::all_to_all:
      return true;
    default:
      return sent != received;
  }
}

ncclResult_t check_arguments(const Arguments& arguments) {
  const ncclComm* comm = arguments.comm;
  if (!is_datatype(arguments.datatype)) {
    return wrong(arguments, "not-a-datatype", "there is no " + name_of(arguments.datatype),
                 "Pass one of ncclDataType_t.");
  }
  const bool transfer = arguments.kind == CallKind::send || arguments.kind == CallKind::receive;
  if ((transfer || is_rooted(arguments.kind)) &&
      (arguments.peer < 0 || arguments.peer >= comm->ranks)) {
    return wrong(arguments, "no-such-rank",
                 std::string(transfer ? "peer " : "root ") + std::to_string(arguments.peer) +
                     " is no rank: there are " + std::to_string(comm->ranks),
                 "Ranks are numbered from 0 in each communicator.");
  }
  const auto sizes = extents(call_of(arguments), comm->rank, comm->ranks);
  if (!sizes) {
    return wrong(arguments, "size-overflow",
                 std::to_string(arguments.count) + " elements of " + name_of(arguments.datatype) +
                     " for " + std::to_string(comm->ranks) + " ranks are more than 2^63 bytes",
                 "Check the count; a negative number may have become a large one.");
  }
  if (overlap_badly(arguments, *sizes, arguments.count * size_of(arguments.datatype))) {
    return wrong(arguments, "overlapping-buffers",
                 "sendbuff and recvbuff overlap, but not as an operation in place may",
                 "Use separate buffers, or exactly the offset that NCCL documents for the "
                 "operation in place.");
  }
  return ncclSuccess;
}

ncclResult_t check_life(const Arguments& arguments, const Use& use) {
  const char* rule = nullptr;
  if (use.life == Life::finalized) rule = "communicator-after-finalize";
  if (use.life == Life::revoked) rule = "communicator-after-revoke";
  if (rule == nullptr) return ncclSuccess;
  return wrong(arguments, rule, "the communicator makes no more calls",
               "Only destroy it, or make another one from it.");
}

ncclResult_t operate_on(const Arguments& arguments, Use& use) {
  ncclComm* const comm = arguments.comm;
  if (const ncclResult_t result = check_life(arguments, use); result != ncclSuccess) return result;
  if (Engine::instance().in_host_function()) {
    return wrong(arguments, "call-in-host-function",
                 "a host function that a stream runs must not call NCCL",
                 "Make the call from a thread of the program.");
  }
  if (const ncclResult_t result = check_arguments(arguments); result != ncclSuccess) {
    return result;
  }
  Request request;
  request.call = call_of(arguments);
  request.sendbuff = arguments.sendbuff;
  request.recvbuff = arguments.recvbuff;
  request.stream = stream_of(arguments);
  if (is_reduction(arguments.kind)) {
    const ncclResult_t result = resolve_operator(arguments, request);
    if (result != ncclSuccess) return result;
  }
  if (request.stream == nullptr) return ncclInvalidArgument;  // and reported
  const Engine& engine = Engine::instance();
  request.call.stream = engine.describe(request.stream);
  if (engine.device_of(request.stream) != comm->device) {
    return wrong(arguments, "stream-of-another-device",
                 "the communicator is on device " + std::to_string(comm->device) + ", " +
                     request.call.stream + " is not",
                 "Create the stream while the communicator's device is the current one.");
  }
  // NCCL returns from a collective without elements before it tells anybody.
  if (arguments.count == 0 && is_collective(request.call)) {
    ++comm->dropped;
    ++comm->calls;
    return ncclSuccess;
  }
  request.call.number = comm->calls++;
  request.call.dropped_before = std::exchange(comm->dropped, 0);
  if (in_group()) use.keep();
  return submit(comm, std::move(request));
}

ncclResult_t operate(const Arguments& arguments) {
  Use use(arguments.comm, arguments.function);
  if (use.result != ncclSuccess) return note_in_group(use.result);
  return note_in_group(operate_on(arguments, use));
}

}  // namespace
}  // namespace lockstep::nccl

using lockstep::nccl::CallKind;
using lockstep::nccl::operate;

ncclResult_t ncclAllReduce(const void* sendbuff, void* recvbuff, size_t count,
                           ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream) {
  return operate({.kind = CallKind::all_reduce,
                  .sendbuff = sendbuff,
                  .recvbuff = recvbuff,
                  .count = count,
                  .datatype = datatype,
                  .op = op,
                  .comm = comm,
                  .stream = stream});
}

ncclResult_t ncclReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  return operate({.kind = CallKind::reduce,
                  .sendbuff = sendbuff,
                  .recvbuff = recvbuff,
                  .count = count,
                  .datatype = datatype,
                  .op = op,
                  .peer = root,
                  .comm = comm,
                  .stream = stream});
}

ncclResult_t ncclReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
                               ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t stream) {
  return operate({.kind = CallKind::reduce_scatter,
                  .sendbuff = sendbuff,
                  .recvbuff = recvbuff,
                  .count = recvcount,
                  .datatype = datatype,
                  .op = op,
                  .comm = comm,
                  .stream = stream});
}

ncclResult_t ncclBroadcast(const void* sendbuff, void* recvbuff, size_t count,
                           ncclDataType_t datatype, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  return operate({.kind = CallKind::broadcast,
                  .sendbuff = sendbuff,
                  .recvbuff = recvbuff,
                  .count = count,
                  .datatype = datatype,
                  .peer = root,
                  .comm = comm,
                  .stream = stream});
}

ncclResult_t ncclBcast(void* buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                       cudaStream_t stream) {
  return operate({.kind = CallKind::broadcast,
                  .sendbuff = buff,
                  .recvbuff = buff,
                  .count = count,
                  .datatype = datatype,
                  .peer = root,
                  .comm = comm,
                  .stream = stream,
                  .function = "ncclBcast"});
}

ncclResult_t ncclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount,
                           ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream) {
  return operate({.kind = CallKind::all_gather,
                  .sendbuff = sendbuff,
                  .recvbuff = recvbuff,
                  .count = sendcount,
                  .datatype = datatype,
                  .comm = comm,
                  .stream = stream});
}

ncclResult_t ncclAlltoAll(const void* sendbuff, void* recvbuff, size_t count,
                          ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream) {
  return operate({.kind = CallKind::all_to_all,
                  .sendbuff = sendbuff,
                  .recvbuff = recvbuff,
                  .count = count,
                  .datatype = datatype,
                  .comm = comm,
                  .stream = stream});
}

ncclResult_t ncclGather(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                        int root, ncclComm_t comm, cudaStream_t stream) {
  return operate({.kind = CallKind::gather,
                  .sendbuff = sendbuff,
                  .recvbuff = recvbuff,
                  .count = count,
                  .datatype = datatype,
                  .peer = root,
                  .comm = comm,
                  .stream = stream});
}

ncclResult_t ncclScatter(const void* sendbuff, void* recvbuff, size_t count,
                         ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream) {
  return operate({.kind = CallKind::scatter,
                  .sendbuff = sendbuff,
                  .recvbuff = recvbuff,
                  .count = count,
                  .datatype = datatype,
                  .peer = root,
                  .comm = comm,
                  .stream = stream});
}

ncclResult_t ncclSend(const void* sendbuff, size_t count, ncclDataType_t datatype, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return operate({.kind = CallKind::send,
                  .sendbuff = sendbuff,
                  .count = count,
                  .datatype = datatype,
                  .peer = peer,
                  .comm = comm,
                  .stream = stream});
}

ncclResult_t ncclRecv(void* recvbuff, size_t count, ncclDataType_t datatype, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return operate({.kind = CallKind::receive,
                  .recvbuff = recvbuff,
                  .count = count,
                  .datatype = datatype,
                  .peer = peer,
                  .comm = comm,
                  .stream = stream});
}

LOCKSTEP_NCCL_PROFILED(ncclAllReduce);
LOCKSTEP_NCCL_PROFILED(ncclReduce);
LOCKSTEP_NCCL_PROFILED(ncclReduceScatter);
LOCKSTEP_NCCL_PROFILED(ncclBroadcast);
LOCKSTEP_NCCL_PROFILED(ncclBcast);
LOCKSTEP_NCCL_PROFILED(ncclAllGather);
LOCKSTEP_NCCL_PROFILED(ncclAlltoAll);
LOCKSTEP_NCCL_PROFILED(ncclGather);
LOCKSTEP_NCCL_PROFILED(ncclScatter);
LOCKSTEP_NCCL_PROFILED(ncclSend);
LOCKSTEP_NCCL_PROFILED(ncclRecv);
