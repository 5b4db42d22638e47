// A set of byte offsets as disjoint half-open intervals.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

namespace lockstep::devices {

class Intervals {
 public:
  void add(std::size_t begin, std::size_t end) {
    if (begin >= end) return;
    auto at = ends_.upper_bound(begin);
    if (at != ends_.begin()) {
      const auto before = std::prev(at);
      if (before->second >= begin) {
        if (before->second >= end) return;
        begin = before->first;
        at = before;
      }
    }
    while (at != ends_.end() && at->first <= end) {
      end = std::max(end, at->second);
      at = ends_.erase(at);
    }
    ends_.emplace_hint(at, begin, end);
  }

  // The parts of [begin, end) that are not in the set, in order.
  std::vector<std::pair<std::size_t, std::size_t>> gaps(std::size_t begin, std::size_t end) const {
    std::vector<std::pair<std::size_t, std::size_t>> found;
    auto at = ends_.upper_bound(begin);
    if (at != ends_.begin()) begin = std::max(begin, std::prev(at)->second);
    for (; begin < end; ++at) {
      const std::size_t stop = at == ends_.end() ? end : std::min(end, at->first);
      if (begin < stop) found.emplace_back(begin, stop);
      if (at == ends_.end()) break;
      begin = std::max(begin, at->second);
    }
    return found;
  }

 private:
  std::map<std::size_t, std::size_t> ends_;  // begin -> end
};

}  // namespace lockstep::devices
