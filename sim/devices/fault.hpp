// Memory accesses of the program that the processor refuses: what they mean is reported.
#pragma once

namespace lockstep::devices {

// From here on. The program's own handler, or a sanitizer's, gets what is none of ours.
void watch_faults();

}  // namespace lockstep::devices
