// Operations on their way into the streams of a device.
#pragma once

#include <cstdint>
#include <vector>

#include "call.hpp"
#include "engine.hpp"

struct ncclComm;

namespace lockstep::nccl {

// One operation with its buffers.
struct Request {
  Call call;
  const void* sendbuff = nullptr;
  void* recvbuff = nullptr;
  devices::StreamRef stream;
  Scalar scalar{};  // of a premultiplied sum, unless it is on the device:
  const void* device_scalar = nullptr;
};

// The operations of one group on one communicator.
struct Batch {
  std::vector<Request> requests;
  std::uint64_t thread = 0;
  std::uint64_t group = 0;
};

// Puts them into their streams as one launch: it starts when all these streams have come to it, and
// all of them wait for it. Without the engine's lock.
ncclResult_t enqueue(ncclComm* comm, Batch batch);

}  // namespace lockstep::nccl
