// Do the ranks' calls fit together? One pure function answers for every backend: the simulator asks
// it directly, a backend between processes after exchanging signatures.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include <lockstep/dtype.hpp>
#include <lockstep/error.hpp>
#include <lockstep/operation.hpp>
#include <lockstep/shape.hpp>

namespace lockstep {

// What one rank asks for, without its elements.
struct Signature {
  Operation operation = Operation::split;
  DType dtype = DType::f32;
  Shape shape;
  std::int64_t root = 0;                       // broadcast_float
  std::span<const std::int64_t> send_counts;   // the exchanges: rows for each rank
};

// The breach that the contract reports for these calls, entry r being rank r's, or nothing when they
// fit together. A world of one is checked like any other.
std::optional<Breach> find_breach(std::span<const Signature> signatures);

// The shape of what `rank` gets back from calls without a breach.
Shape result_shape(std::span<const Signature> signatures, int rank);

// "rank 0", "ranks 1-3, 5": sorted ranks as messages name them.
std::string rank_list(std::span<const int> ranks);

}  // namespace lockstep
