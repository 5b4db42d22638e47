// What the tests between processes share.
//
// They are run by four processes: `mpirun -np 4 mpi-test`. All run the same tests in the same
// order, each on fresh communicators. A failed expectation never ends a test early, so a process
// that fails stays in step with the others; if one throws, it leaves its communicators, and the
// others get an error instead of waiting.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <lockstep/error.hpp>
#include <lockstep/mpi/communicator.hpp>
#include <lockstep/tensor.hpp>

#include "expect.hpp"

namespace lockstep::testing {

using mpi::Communicator;
using Counts = std::vector<std::int64_t>;

inline constexpr int ranks = 4;

// Of the whole run; set by main().
inline const mpi::Environment* environment = nullptr;

// The barrier keeps one slow process from running into another's time limit.
inline Communicator world(mpi::Options options = {}) {
  MPI_Barrier(MPI_COMM_WORLD);
  return Communicator(*environment, options);
}

// Everybody's text, by rank. Uses MPI directly, so that it works whatever became of a communicator.
inline std::vector<std::string> from_all_ranks(const std::string& text) {
  constexpr int most = 2000;  // characters
  std::vector<char> mine(most), all(most * ranks);
  text.copy(mine.data(), most - 1);
  MPI_Allgather(mine.data(), most, MPI_CHAR, all.data(), most, MPI_CHAR, MPI_COMM_WORLD);
  std::vector<std::string> texts;
  for (int rank = 0; rank < ranks; ++rank) texts.emplace_back(all.data() + rank * most);
  return texts;
}

inline void expect_equal_on_all_ranks(const std::string& text) {
  const std::vector<std::string> texts = from_all_ranks(text);
  for (const std::string& other : texts) EXPECT_EQ(other, texts[0]);
}

}  // namespace lockstep::testing
