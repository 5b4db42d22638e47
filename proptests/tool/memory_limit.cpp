#include "memory_limit.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

namespace lockstep::tool {

void limit_memory() {
#if !defined(LOCKSTEP_ADDRESS_SANITIZER) && !defined(LOCKSTEP_THREAD_SANITIZER)
  // Not beside a sanitizer, whose shadow counts as data.
  const auto memory = static_cast<rlim_t>(::sysconf(_SC_PHYS_PAGES)) *
                      static_cast<rlim_t>(::sysconf(_SC_PAGE_SIZE));
  rlimit limit{};
  if (::getrlimit(RLIMIT_DATA, &limit) != 0) return;
  // Data rather than address space: libraries reserve addresses by the terabyte without using them.
  limit.rlim_cur = std::min(limit.rlim_cur, memory - memory / 4);
  ::setrlimit(RLIMIT_DATA, &limit);
#endif
}

}  // namespace lockstep::tool
