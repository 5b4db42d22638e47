// What the simulated devices have against a program.
#pragma once

#include <string>
#include <vector>

namespace lockstep::devices {

// Who asked for something: the API function, and on whose behalf when the caller knows.
struct Call {
  std::string function;   // "cudaMemcpyAsync"
  std::string rank = {};  // "rank 3 of 8", where the caller speaks for a rank
};

// A broken rule, told once on standard error as a block:
//
//   == lockstep: use-after-free ==================================================
//   cudaMemcpyAsync, stream 3 of device 1
//     reads 4096 bytes at 0x..., inside an allocation that cudaFree released ...
//     Free it after the work that uses it is done: ...
//   ==============================================================================
struct Finding {
  std::string rule;                       // "use-after-free": short, stable, for tests and reports
  Call call;                              // where it happened
  int device = -1;                        // -1: none in particular
  std::string stream = {};                // "stream 3 of device 1"; may be empty
  std::string what;                       // one sentence: what happened
  std::vector<std::string> details = {};  // who else is involved, one line each
  std::string advice;                     // one sentence: what to do
};

// Prints the finding, counts it, appends it to the report file, and ends the process at once if the
// options say so. From any thread, with or without the engine's lock. A process with findings that
// would exit with status 0 exits with `findings_status` instead.
void report(const Finding& finding);
// How many there were so far.
int findings();
// The same, and they are forgotten: for tests, which make them on purpose.
int take_findings();
// Called when the process is about to end with status 0, after everything that the program itself
// left for its end: the last moment for findings.
void at_the_very_end(void (*look)());

inline constexpr int findings_status = 86;
// Ends the process with that status, on the spot.
[[noreturn]] void end_with_findings();

// One line on standard error for a function that is not covered: its name, and that it did nothing.
void refuse(const char* function, const char* reason);

}  // namespace lockstep::devices
