// How the tool ends.
#pragma once

#include <lockstep/error.hpp>

namespace lockstep::tool {

enum ExitStatus : int {
  all_held = 0,
  divergence = 1,
  bad_usage = 2,      // of the command line, or a file that is not what it should be
  backend_broke = 3,  // it could not run a case, or did not finish one
  cannot_run_here = 77,
};

// Ends the tool with a message and this status.
class Failure : public Error {
 public:
  Failure(ExitStatus status, std::string message) : Error(std::move(message)), status_(status) {}
  ExitStatus status() const { return status_; }

 private:
  ExitStatus status_;
};

}  // namespace lockstep::tool
