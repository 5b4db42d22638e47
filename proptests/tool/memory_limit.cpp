#include "memory_limit.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

namespace lockstep::tool {

void limit_memory() {
  const auto memory = static_cast<rlim_t>(::sysconf(_SC_PHYS_PAGES)) *
                      static_cast<rlim_t>(::sysconf(_SC_PAGE_SIZE));
  rlimit limit{};
  if (::getrlimit(RLIMIT_DATA, &limit) != 0) return;
  // Data rather than address space: libraries reserve addresses by the terabyte without using them.
  limit.rlim_cur = std::min(limit.rlim_cur, memory - memory / 4);
  ::setrlimit(RLIMIT_DATA, &limit);
}

}  // namespace lockstep::tool
