// The memory of the simulated devices: what is kept of it after it was freed.

#include <sys/mman.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "address_space.hpp"
#include "memory.hpp"
#include "node.hpp"

namespace lockstep::devices {
namespace {

constexpr std::size_t page = 4096;

// How many of the pages of [begin, begin + bytes) the process has.
std::int64_t resident_pages(const std::byte* begin, std::size_t bytes) {
  std::vector<unsigned char> pages(bytes / page);
  EXPECT_EQ(::mincore(const_cast<std::byte*>(begin), bytes, pages.data()), 0);
  return std::count_if(pages.begin(), pages.end(), [](unsigned char one) { return one & 1; });
}

// Addresses are not used again for as long as there are others. What small pieces leave behind must
// not pile up, in whatever order they come back.
TEST(AddressSpace, GivesTheSystemThePagesBehindSmallPieces) {
  constexpr std::size_t bytes = 1000;
  constexpr std::size_t count = 1024;
  AddressSpace space(std::size_t{1} << 30, AddressSpace::Owner::device);
  std::vector<std::uintptr_t> pieces(count);
  for (std::uintptr_t& piece : pieces) {
    piece = space.take(bytes);
    std::memset(space.view(piece), 1, bytes);
  }
  const std::byte* begin = space.view(pieces.front());
  const std::size_t length = (pieces.back() - pieces.front()) / page * page;
  ASSERT_EQ(resident_pages(begin, length), static_cast<std::int64_t>(length / page));

  for (std::size_t i = 0; i < count; i += 2) space.give_back(pieces[i], bytes);
  EXPECT_EQ(resident_pages(begin, length), static_cast<std::int64_t>(length / page))
      << "there is a live piece in every page";
  for (std::size_t i = 1; i < count; i += 2) {
    ASSERT_EQ(*space.view(pieces[i]), std::byte{1}) << "a live piece lost its bytes: " << i;
    space.give_back(pieces[i], bytes);
  }
  EXPECT_LE(resident_pages(begin, length), 32) << "what lies at the two ends may stay";
}

TEST(AddressSpace, LeavesTheNeighboursOfAFreedPieceAlone) {
  constexpr std::size_t bytes = std::size_t{1} << 20;
  AddressSpace space(std::size_t{1} << 30, AddressSpace::Owner::device);
  std::uintptr_t pieces[3];
  for (std::uintptr_t& piece : pieces) {
    piece = space.take(bytes);
    std::memset(space.view(piece), 7, bytes);
  }
  space.give_back(pieces[1], bytes);
  for (const std::uintptr_t piece : {pieces[0], pieces[2]}) {
    EXPECT_EQ(std::count(space.view(piece), space.view(piece) + bytes, std::byte{7}),
              std::int64_t{1} << 20);
  }
}

// A program that allocates and frees for days must not keep all the work that it ever did.
TEST(Memory, KeepsNoWorkOfMemoryThatWasFreed) {
  static Memory& memory = *new Memory(1, std::size_t{1} << 30);  // its addresses are never given up
  const AllocationRef allocation = memory.allocate(MemoryKind::pool, 0, 64, "test");
  auto allocating = std::make_shared<Node>();
  auto user = std::make_shared<Node>();
  const std::weak_ptr<Node> allocating_seen = allocating;
  allocation->allocating = std::move(allocating);
  allocation->users.push_back(user);
  allocation->records.push_back({allocation->begin, allocation->end(), Touch::write, {}, "test"});

  memory.retire(allocation);
  EXPECT_TRUE(allocating_seen.expired());
  EXPECT_TRUE(allocation->users.empty());
  EXPECT_TRUE(allocation->records.empty());
  EXPECT_EQ(memory.find(allocation->begin), allocation) << "it is still known as freed";
}

}  // namespace
}  // namespace lockstep::devices
