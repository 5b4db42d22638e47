// Tags keep apart the kinds of messages that travel on one MPI communicator.
#pragma once

#include <cstdint>

namespace lockstep::mpi::tags {

inline constexpr int control = 1;  // who enters which call, who leaves
inline constexpr int data = 2;     // elements
inline constexpr int split = 3;    // inside MPI_Comm_create_group, for a split

// New communicators, before and inside MPI_Comm_create_group. MPI guarantees tags up to 32767;
// those that are formed at one time and share a tag tell their messages apart by the conversation
// they carry.
inline int forming(std::uint64_t conversation) {
  return static_cast<int>(16 + conversation % 16000);
}
inline int creation(std::uint64_t conversation) {
  return forming(conversation) + 16000;
}

}  // namespace lockstep::mpi::tags
