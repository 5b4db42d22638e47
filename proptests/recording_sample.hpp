// Recorded calls on large tensors, cut down to the same calls on a sample of their elements.
//
// Every operation treats all columns of a row alike, and all rows of a shard, a share or an
// exchange's block; the two that keep the shape treat all elements alike. So when all ranks keep
// the same columns, and the same rows of every such unit, what is left is again a call of that
// operation, and its right answer is the same part of the right answer. Which are kept follows from
// the operation and from lengths that ranks agree on, never from what a rank alone knows.
#pragma once

#include <cstdint>
#include <vector>

#include <lockstep/kit/recording.hpp>

namespace lockstep::kit {

struct SampledCall {
  RecordedCall call;  // cut down where `sampled`
  // As they were before.
  Shape input_shape;
  std::vector<std::int64_t> send_counts;
  DType value_dtype{};
  Shape value_shape;
  std::vector<std::int64_t> receive_counts;
  bool sampled = false;
};

// `ranks` is the size of the communicator, `most_elements` what is kept of a tensor, about. A
// result that has not the shape that the rank itself expects is not kept at all.
SampledCall sample(RecordedCall call, int ranks, std::int64_t most_elements);

}  // namespace lockstep::kit
