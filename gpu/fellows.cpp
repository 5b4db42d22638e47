#include "fellows.hpp"

#include <map>

namespace lockstep::gpu {

std::shared_ptr<Fellows> Fellows::of(const std::string& unique_id) {
  static std::mutex mutex;
  static std::map<std::string, std::weak_ptr<Fellows>> all;
  std::lock_guard lock(mutex);
  std::erase_if(all, [](const auto& entry) { return entry.second.expired(); });
  std::shared_ptr<Fellows> fellows = all[unique_id].lock();
  if (!fellows) {
    fellows = std::make_shared<Fellows>();
    all[unique_id] = fellows;
  }
  return fellows;
}

void Fellows::fail(int rank, const std::string& how) {
  std::lock_guard lock(mutex_);
  if (!failure_) failure_ = Failure{rank, how};
}

std::optional<Fellows::Failure> Fellows::failure() const {
  std::lock_guard lock(mutex_);
  return failure_;
}

}  // namespace lockstep::gpu
