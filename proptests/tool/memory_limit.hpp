// A case of a few lines can ask for results beyond any memory: twenty all-gathers, each of the one
// before. Such a case is bad input, not a reason for the system to end somebody's processes.
#pragma once

namespace lockstep::tool {

// From now on an allocation beyond the machine's memory fails with std::bad_alloc.
void limit_memory();

}  // namespace lockstep::tool
