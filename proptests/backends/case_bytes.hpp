// Cases and outcomes as bytes, for the way between processes of one machine: native byte order, no
// text. (What is kept or shown is a case file; see lockstep/kit/case_file.hpp.)
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <lockstep/kit/case.hpp>
#include <lockstep/kit/subject.hpp>

namespace lockstep::kit {

using Bytes = std::vector<std::byte>;

// All of a case but what it expects.
Bytes encode(const Case& c);
Case decode_case(std::span<const std::byte> bytes);

Bytes encode(const RankTranscript& transcript);
RankTranscript decode_transcript(std::span<const std::byte> bytes);

}  // namespace lockstep::kit
