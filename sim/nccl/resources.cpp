// Operators, memory and registrations: what a program makes through NCCL beside communicators.

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "communicator.hpp"
#include "exports.hpp"
#include "group.hpp"
#include "names.hpp"

namespace lockstep::nccl {
namespace {

using devices::Engine;

ncclResult_t make_operator(ncclRedOp_t* op, void* scalar, ncclDataType_t datatype,
                           ncclScalarResidence_t residence, ncclComm* comm) {
  constexpr const char* function = "ncclRedOpCreatePreMulSum";
  Use use(comm, function);
  if (use.result != ncclSuccess) return use.result;
  const devices::Lock lock = Engine::instance().lock();
  if (op == nullptr || scalar == nullptr || !is_datatype(datatype) ||
      (residence != ncclScalarDevice && residence != ncclScalarHostImmediate)) {
    return complain(comm, function, ncclInvalidArgument, "bad-operator",
                    "an argument is null, or the datatype or the residence of the scalar is none",
                    "Pass the scalar's address, its datatype and where it is.");
  }
  UserOperator made{.datatype = datatype};
  if (residence == ncclScalarHostImmediate) {
    std::memcpy(made.scalar.data(), scalar, size_of(datatype));
  } else {
    made.device_scalar = scalar;
  }
  // Handles are not used again, so that a destroyed one is recognized.
  comm->operators.emplace_back(made);
  *op = static_cast<ncclRedOp_t>(static_cast<int>(ncclNumOps) +
                                 static_cast<int>(comm->operators.size()) - 1);
  return ncclSuccess;
}

ncclResult_t destroy_operator(ncclRedOp_t op, ncclComm* comm) {
  constexpr const char* function = "ncclRedOpDestroy";
  Use use(comm, function);
  if (use.result != ncclSuccess) return use.result;
  const devices::Lock lock = Engine::instance().lock();
  const auto index = static_cast<std::size_t>(static_cast<int>(op) - ncclNumOps);
  if (op < ncclNumOps || index >= comm->operators.size() || !comm->operators[index]) {
    return complain(comm, function, ncclInvalidArgument, "not-an-operator",
                    "reduction operator " + std::to_string(static_cast<int>(op)) +
                        " is built in, none of this communicator, or destroyed before",
                    "Destroy what ncclRedOpCreatePreMulSum made, once.");
  }
  comm->operators[index].reset();
  return ncclSuccess;
}

ncclResult_t enroll(const char* function, ncclComm* comm, void* buff, std::size_t size,
                    void** handle) {
  Use use(comm, function);
  if (use.result != ncclSuccess) return use.result;
  Engine& engine = Engine::instance();
  devices::Lock lock = engine.lock();
  if (handle == nullptr || buff == nullptr || size == 0) {
    return complain(comm, function, ncclInvalidArgument, "null-pointer",
                    "an argument is null, or the size is zero",
                    "Pass device memory and where to store the handle.");
  }
  const devices::Status status = engine.check(
      lock, comm->device, nullptr, {function, comm->describe()},
      {{.address = buff, .bytes = size, .touch = devices::Touch::write, .argument = "buff"}});
  if (status != devices::Status::success) return ncclInvalidArgument;
  // A place of its own for each registration: its address is the handle.
  auto* const place = new std::pair<void*, std::size_t>(buff, size);
  comm->registrations.push_back(place);
  *handle = place;
  return ncclSuccess;
}

ncclResult_t expel(const char* function, ncclComm* comm, const void* handle) {
  Use use(comm, function);
  if (use.result != ncclSuccess) return use.result;
  const devices::Lock lock = Engine::instance().lock();
  const auto found = std::find(comm->registrations.begin(), comm->registrations.end(), handle);
  if (found == comm->registrations.end()) {
    return complain(comm, function, ncclInvalidArgument, "not-a-registration",
                    "the handle is none of this communicator, or was given back before",
                    "Give every registration back once, to the communicator that made it.");
  }
  delete *found;
  comm->registrations.erase(found);
  return ncclSuccess;
}

ncclResult_t translate(devices::Status status) {
  switch (status) {
    case devices::Status::success:
      return ncclSuccess;
    case devices::Status::invalid_value:
      return ncclInvalidArgument;
    default:
      return ncclUnhandledCudaError;
  }
}

}  // namespace
}  // namespace lockstep::nccl

using namespace lockstep::nccl;

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t datatype,
                                      ncclScalarResidence_t residence, ncclComm_t comm) {
  return note_in_group(make_operator(op, scalar, datatype, residence, comm));
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  return note_in_group(destroy_operator(op, comm));
}

ncclResult_t ncclMemAlloc(void** ptr, size_t size) {
  if (ptr == nullptr) return ncclInvalidArgument;
  lockstep::devices::Engine& engine = lockstep::devices::Engine::instance();
  return translate(engine.allocate(lockstep::devices::MemoryKind::device, engine.current_device(),
                                   size, {"ncclMemAlloc"}, ptr));
}

ncclResult_t ncclMemFree(void* ptr) {
  return translate(lockstep::devices::Engine::instance().release(ptr, false, {"ncclMemFree"}));
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void* buff, size_t size, void** handle) {
  return note_in_group(enroll("ncclCommRegister", comm, buff, size, handle));
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void* handle) {
  return note_in_group(expel("ncclCommDeregister", comm, handle));
}

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* buff, size_t size, ncclWindow_t* win,
                                    int) {
  return note_in_group(
      enroll("ncclCommWindowRegister", comm, buff, size, reinterpret_cast<void**>(win)));
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win) {
  return note_in_group(expel("ncclCommWindowDeregister", comm, win));
}

LOCKSTEP_NCCL_PROFILED(ncclRedOpCreatePreMulSum);
LOCKSTEP_NCCL_PROFILED(ncclRedOpDestroy);
LOCKSTEP_NCCL_PROFILED(ncclMemAlloc);
LOCKSTEP_NCCL_PROFILED(ncclMemFree);
LOCKSTEP_NCCL_PROFILED(ncclCommRegister);
LOCKSTEP_NCCL_PROFILED(ncclCommDeregister);
LOCKSTEP_NCCL_PROFILED(ncclCommWindowRegister);
LOCKSTEP_NCCL_PROFILED(ncclCommWindowDeregister);
