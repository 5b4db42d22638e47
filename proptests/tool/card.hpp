// The conformance card: what a verification found, for a person.
#pragma once

#include <string>

#include "report_json.hpp"

namespace lockstep::tool {

std::string card(const VerifyRun& run);

}  // namespace lockstep::tool
