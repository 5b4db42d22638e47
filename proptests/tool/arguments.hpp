// Values on the command line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::tool {

struct RankRange {
  int fewest = 1;
  int most = 1;
};

// "A..B" or "A", worlds of at least one rank. All of these throw Failure with status 2 and a
// message that names the option, what it was given and the rule.
RankRange parse_ranks(const std::string& text);

// World sizes as a list of ranges: "8", "2,8,64", "1..4,8"; in the order given.
std::vector<int> parse_rank_list(const std::string& text);

// Sizes in bytes, a list such as "64,4Ki,16Mi,1Gi"; the suffixes are powers of 1024.
std::vector<std::int64_t> parse_sizes(const std::string& option, const std::string& text);

// The entries of a list separated by commas; none is empty.
std::vector<std::string> parse_list(const std::string& option, const std::string& text);

// A decimal number of `least` or more.
std::int64_t parse_number(const std::string& option, const std::string& text, std::int64_t least);
std::uint64_t parse_seed(const std::string& text);

// A positive number of seconds.
double parse_seconds(const std::string& option, const std::string& text);

// As a POSIX shell reads it back: quoted where it must be.
std::string shell_quoted(const std::string& text);

}  // namespace lockstep::tool
