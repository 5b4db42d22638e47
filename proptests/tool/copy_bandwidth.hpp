// The limit that moving data is compared with.
#pragma once

namespace lockstep::bench {

// Bytes a second that all cores copy together between buffers beyond any cache, with streaming
// stores: the median of several passes. Counts each byte once, though it is read and written.
double copy_bandwidth();

}  // namespace lockstep::bench
