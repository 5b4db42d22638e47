// elements.hpp on simulated devices, which run no kernels: the same loops, compiled for oneTBB, as
// work on the stream in the place of one.
#if defined(LOCKSTEP_THREAD_SANITIZER)
#define THRUST_DEVICE_SYSTEM THRUST_DEVICE_SYSTEM_CPP  // oneTBB is not built for it
#else
#define THRUST_DEVICE_SYSTEM THRUST_DEVICE_SYSTEM_TBB
#endif

#include <thrust/execution_policy.h>

#include <string>
#include <vector>

#include <lockstep/gpu/error.hpp>

#include "element_loops.hpp"
#include "kernel.hpp"

namespace lockstep::gpu {
namespace {

using devices::Access;
using devices::Touch;

// Simulated device memory is elsewhere than its addresses say.
template <class Byte>
Byte* view(Byte* address) {
  return static_cast<Byte*>(devices::Engine::instance().view(address));
}

std::size_t size(std::int64_t bytes) {
  return static_cast<std::size_t>(bytes);
}

Fold in_view(Fold work) {
  DeviceAddends& addends = work.addends;
  addends.own = view(addends.own);
  if (addends.count > 1) {
    // Any one of the others shows where the blocks are.
    const std::int64_t other = addends.own_rank == 0 ? 1 : 0;
    addends.blocks = view(addends.blocks + other * addends.stride) - other * addends.stride;
  }
  work.out = view(work.out);
  return work;
}
Divide in_view(Divide work) {
  work.x = view(work.x);
  work.out = view(work.out);
  return work;
}
SwapAxes in_view(SwapAxes work) {
  work.x = view(work.x);
  work.out = view(work.out);
  return work;
}

// Below this many bytes of work, waking another thread costs more than it saves.
constexpr std::size_t smallest_parallel_bytes = 256 * 1024;

template <class Work>
void launch(const char* what, const Work& work, CUstream_st* stream, std::vector<Access> accesses) {
  std::size_t bytes = 0;
  for (const Access& access : accesses) bytes += access.bytes;
  const auto run = [work, small = bytes < smallest_parallel_bytes] {
    if (small) {
      carry_out(thrust::seq, in_view(work));
    } else {
      carry_out(thrust::device, in_view(work));
    }
  };
  const devices::Status status = devices::launch(stream, {what}, std::move(accesses), run);
  if (status != devices::Status::success) {
    throw DeviceError(std::string(what) + ": the simulated device refused it");
  }
}

}  // namespace

void enqueue(const Fold& work, CUstream_st* stream) {
  if (work.elements == 0) return;
  const std::size_t bytes = size(work.elements * size_of(work.dtype));
  const DeviceAddends& addends = work.addends;
  std::vector<Access> accesses = {{addends.own, bytes, Touch::read, "own addend"},
                                  {work.out, bytes, Touch::write, "sum"}};
  for (std::int64_t rank = 0; rank < addends.count; ++rank) {
    if (rank == addends.own_rank) continue;
    accesses.push_back({addends.blocks + rank * addends.stride, bytes, Touch::read, "addend"});
  }
  launch("sum on the device", work, stream, std::move(accesses));
}

void enqueue(const Divide& work, CUstream_st* stream) {
  if (work.elements == 0) return;
  const std::size_t bytes = size(work.elements * size_of(work.dtype));
  launch("division on the device", work, stream,
         {{work.x, bytes, Touch::read, "dividend"}, {work.out, bytes, Touch::write, "quotient"}});
}

void enqueue(const SwapAxes& work, CUstream_st* stream) {
  const std::size_t bytes =
      size(work.outer * work.left * work.right * work.inner * work.element_bytes);
  if (bytes == 0) return;
  launch("moving an axis on the device", work, stream,
         {{work.x, bytes, Touch::read, "tensor"}, {work.out, bytes, Touch::write, "result"}});
}

}  // namespace lockstep::gpu
