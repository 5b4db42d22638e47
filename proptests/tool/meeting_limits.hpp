// The limits that small calls are compared with.
#pragma once

#include <optional>

namespace lockstep::bench {

// Seconds from one thread to the next of the same core when each gives way to the other: what it
// costs to let one more rank run where there are more ranks than cores. The median of several
// passes; nothing where threads cannot be bound to a core.
std::optional<double> thread_switch();

// Seconds for two threads on two cores to learn that both are there, each by writing one cache line
// and reading the other's: what it costs two ranks to meet. The median of several passes; nothing
// where the process has fewer than two cores.
std::optional<double> core_meeting();

}  // namespace lockstep::bench
