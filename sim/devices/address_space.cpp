#include "address_space.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iterator>

namespace lockstep::devices {
namespace {

constexpr std::size_t alignment = 256;
constexpr std::size_t page = 4096;
constexpr std::size_t batch = std::size_t{1} << 16;  // of small pieces
constexpr std::size_t opening = std::size_t{64} << 20;

// 0x7ff1 to 0x7fff and their negatives; little endian, as the devices are.
std::uint16_t poison_word = 0x7ff5;

[[noreturn]] void no_room(std::size_t bytes) {
  std::fprintf(stderr,
               "lockstep: no addresses for simulated memory (%zu MiB): %s; set LOCKSTEP_SIM_MEMORY "
               "to fewer bytes per device\n",
               bytes >> 20, std::strerror(errno));
  std::fflush(nullptr);
  ::_exit(2);
}

std::uintptr_t reserve(std::size_t bytes, int protection, int flags, int file) {
  void* at = ::mmap(nullptr, bytes, protection, flags | MAP_NORESERVE, file, 0);
  if (at == MAP_FAILED) no_room(bytes);
  return reinterpret_cast<std::uintptr_t>(at);
}

}  // namespace

AddressSpace::AddressSpace(std::size_t window, Owner owner) : window_(window), owner_(owner) {
  constexpr int apart = MAP_PRIVATE | MAP_ANONYMOUS;
  if (owner == Owner::device) {
    begin_ = reserve(window, PROT_NONE, apart, -1);
    shift_ = reserve(window, PROT_NONE, apart, -1) - begin_;
    return;
  }
  // The same pages at two places.
  const int file = ::memfd_create("lockstep-host-memory", MFD_CLOEXEC);
  if (file < 0 || ::ftruncate(file, static_cast<off_t>(window)) != 0) no_room(window);
  begin_ = reserve(window, PROT_NONE, MAP_SHARED, file);
  shift_ = reserve(window, PROT_READ | PROT_WRITE, MAP_SHARED, file) - begin_;
  ::close(file);
  opened_ = window;
}

bool AddressSpace::open(std::size_t size) {
  if (size <= opened_) return true;
  const std::size_t target = std::min(window_, (size + opening - 1) / opening * opening);
  if (::mprotect(view(begin_ + opened_), target - opened_, PROT_READ | PROT_WRITE) != 0)
    return false;
  opened_ = target;
  return true;
}

std::size_t AddressSpace::span(std::size_t bytes) const {
  const std::size_t step = owner_ == Owner::device ? alignment : page;
  return (bytes + step - 1) / step * step + step;
}

std::uintptr_t AddressSpace::take(std::size_t bytes) {
  if (bytes > window_) return 0;
  const std::size_t needed = span(bytes);
  if (window_ - used_ >= needed && open(used_ + needed)) {
    const std::uintptr_t at = begin_ + used_;
    used_ += needed;
    return at;
  }
  for (auto piece = free_.begin(); piece != free_.end(); ++piece) {
    if (piece->second < needed) continue;
    const auto [at, length] = *piece;
    free_.erase(piece);
    if (length > needed) free_.emplace(at + needed, length - needed);
    return at;
  }
  return 0;
}

void AddressSpace::give_back(std::uintptr_t begin, std::size_t bytes) {
  const std::uintptr_t end = begin + span(bytes);
  auto piece = free_.upper_bound(begin);
  if (piece != free_.begin() && std::prev(piece)->first + std::prev(piece)->second == begin) {
    --piece;
    piece->second = end - piece->first;
  } else {
    piece = free_.emplace_hint(piece, begin, end - begin);
  }
  const auto after = std::next(piece);
  if (after != free_.end() && after->first == end) {
    piece->second += after->second;
    free_.erase(after);
  }
  // Addresses are handed out anew for as long as there are any, so what small pieces leave behind
  // must go, too: many at a time, when the last of them comes back.
  if (owner_ == Owner::host) return;
  const std::uintptr_t first = std::max((piece->first + batch - 1) / batch, begin / batch) * batch;
  const std::uintptr_t last =
      std::min((piece->first + piece->second) / batch, (end + batch - 1) / batch) * batch;
  if (first < last) drop(first, last - first);
}

void AddressSpace::drop(std::uintptr_t begin, std::size_t bytes) {
  if (owner_ == Owner::host) {
    const std::size_t length = span(bytes) - page;
    ::mprotect(reinterpret_cast<void*>(begin), length, PROT_NONE);
    ::madvise(view(begin), length, MADV_REMOVE);
    return;
  }
  const std::uintptr_t first = (begin + shift_ + page - 1) / page * page;
  const std::uintptr_t last = (begin + shift_ + bytes) / page * page;
  if (first < last) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

void choose_poison(std::uint64_t seed) {
  poison_word = static_cast<std::uint16_t>(0x7ff1 + (seed + 4) % 15 + (seed / 15 % 2) * 0x8000);
}

void fill_with_poison(std::byte* begin, std::size_t bytes, std::uintptr_t address) {
  const std::byte two[2] = {static_cast<std::byte>(poison_word & 0xff),
                            static_cast<std::byte>(poison_word >> 8)};
  std::size_t at = 0;
  for (; at < bytes && (address + at) % 2 != 0; ++at) begin[at] = two[1];
  const std::size_t words = (bytes - at) / 2;
  auto* word = begin + at;
  std::uint64_t four = poison_word;
  four |= four << 16;
  four |= four << 32;
  std::size_t done = 0;
  for (; done + 4 <= words; done += 4) std::memcpy(word + 2 * done, &four, 8);
  for (; done < words; ++done) std::memcpy(word + 2 * done, two, 2);
  if ((bytes - at) % 2 != 0) begin[bytes - 1] = two[0];
}

}  // namespace lockstep::devices
