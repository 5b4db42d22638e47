#include "memory.hpp"

#include <algorithm>
#include <map>
#include <string>

#include "check.hpp"

namespace lockstep::gpu {
namespace {

// Each device has a pool of its own, which keeps freed memory for the next allocation: giving it
// back to the driver would make streams wait. Devices that can reach this one may do so, as NCCL
// does between devices of one process. Pools live as long as the process.
cudaMemPool_t pool_of(int device) {
  static std::mutex mutex;
  static std::map<int, cudaMemPool_t> pools;
  std::lock_guard lock(mutex);
  cudaMemPool_t& pool = pools[device];
  if (pool != nullptr) return pool;

  cudaMemPoolProps properties = {};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = device;
  check(cudaMemPoolCreate(&pool, &properties), "cudaMemPoolCreate");
  std::uint64_t everything = UINT64_MAX;
  check(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &everything),
        "cudaMemPoolSetAttribute");
  int devices = 0;
  check(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
  for (int other = 0; other < devices; ++other) {
    int reaches = 0;
    if (other == device || cudaDeviceCanAccessPeer(&reaches, other, device) != cudaSuccess ||
        reaches == 0) {
      continue;
    }
    cudaMemAccessDesc access = {};
    access.location.type = cudaMemLocationTypeDevice;
    access.location.id = other;
    access.flags = cudaMemAccessFlagsProtReadWrite;
    check(cudaMemPoolSetAccess(pool, &access, 1), "cudaMemPoolSetAccess");
  }
  return pool;
}

}  // namespace

std::shared_ptr<Memory> Memory::allocate(std::int64_t bytes, const Stream& stream) {
  if (bytes == 0) return std::make_shared<Memory>(nullptr, stream);
  const OnDevice here(stream.device());
  void* data = nullptr;
  const cudaError_t status = cudaMallocFromPoolAsync(&data, static_cast<std::size_t>(bytes),
                                                     pool_of(stream.device()), stream.get());
  if (status != cudaSuccess) {
    const std::string what = std::to_string(bytes) + " bytes on device " +
                             std::to_string(stream.device()) + ", cudaMallocFromPoolAsync";
    check(status, what.c_str());
  }
  return std::make_shared<Memory>(static_cast<std::byte*>(data), stream);
}

Memory::~Memory() {
  if (data_ == nullptr) return;
  try {
    const OnDevice here(stream_.device());
    await_borrowers();
    cudaFreeAsync(data_, stream_.get());
  } catch (const std::exception&) {
    // The device or the driver is gone, and the memory with it.
  }
}

void Memory::await_borrowers() {
  std::lock_guard lock(mutex_);
  for (const auto& [other, done] : borrowers_) done.hold(stream_);
  borrowers_.clear();
}

void Memory::lend(const Stream& other) const {
  if (data_ != nullptr) other.wait_for(stream_);
}

void Memory::give_back(const Stream& other) {
  if (data_ == nullptr || other == stream_) return;
  std::lock_guard lock(mutex_);
  auto borrower = std::ranges::find(borrowers_, other, [](const auto& b) { return b.first; });
  if (borrower == borrowers_.end()) {
    borrower = borrowers_.insert(borrowers_.end(), {other, Event()});
  }
  borrower->second.record(other);
}

}  // namespace lockstep::gpu
