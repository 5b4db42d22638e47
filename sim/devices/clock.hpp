// Who happened after whom. Every stream has a slot in which its works are numbered from 1; a clock
// says for each slot up to which work everything is known to be done.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::devices {

struct Moment {
  std::size_t slot = 0;
  std::uint64_t time = 0;
};

class Clock {
 public:
  bool covers(const Moment& moment) const {
    return moment.time == 0 || (moment.slot < times_.size() && times_[moment.slot] >= moment.time);
  }

  void add(const Moment& moment) {
    if (moment.slot >= times_.size()) times_.resize(moment.slot + 1, 0);
    times_[moment.slot] = std::max(times_[moment.slot], moment.time);
  }

  void join(const Clock& other) {
    if (other.times_.size() > times_.size()) times_.resize(other.times_.size(), 0);
    for (std::size_t slot = 0; slot < other.times_.size(); ++slot) {
      times_[slot] = std::max(times_[slot], other.times_[slot]);
    }
  }

 private:
  std::vector<std::uint64_t> times_;
};

}  // namespace lockstep::devices
