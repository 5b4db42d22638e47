// The memory of one simulated device: a window of addresses that the program holds, which nobody
// can touch, and the bytes behind it at another place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

namespace lockstep::devices {

class AddressSpace {
 public:
  enum class Owner { device, host };

  // Reserves `window` bytes of addresses. Ends the process with a message when there are none.
  AddressSpace(std::size_t window, Owner owner);

  // An address with room for `bytes`, or 0: aligned to 256 on a device, to pages of its own on the
  // host. Released addresses are taken again as late as possible; there is a gap after each piece.
  std::uintptr_t take(std::size_t bytes);
  // Gives a piece back for good. The caller decides how long it stays in quarantine before.
  void give_back(std::uintptr_t begin, std::size_t bytes);

  std::byte* view(std::uintptr_t address) const {
    return reinterpret_cast<std::byte*>(address + shift_);
  }
  bool contains(std::uintptr_t address) const {
    return address >= begin_ && address < begin_ + window_;
  }
  // Lets the system have the pages behind a piece that nobody will read again. On the host the
  // program cannot touch it from here on.
  void drop(std::uintptr_t begin, std::size_t bytes);

 private:
  std::size_t span(std::size_t bytes) const;
  bool open(std::size_t size);

  std::size_t window_;
  Owner owner_;
  std::uintptr_t begin_ = 0;
  std::uintptr_t shift_ = 0;  // modulo 2^64
  // How much of the view may be touched. It grows as it is used: the system counts writable memory
  // against a process's limit (RLIMIT_DATA) whether it is touched or not.
  std::size_t opened_ = 0;
  std::size_t used_ = 0;  // never handed out beyond this offset
  std::map<std::uintptr_t, std::size_t> free_;
};

// Fills with the poison of this run: 16-bit words that are a NaN as f16 and bf16, and together as
// f32 and f64. A fresh byte that is read stands out whatever it is taken for.
void fill_with_poison(std::byte* begin, std::size_t bytes, std::uintptr_t address);
void choose_poison(std::uint64_t seed);

}  // namespace lockstep::devices
