// A forward window with a fault in its way back.
#pragma once

#include <memory>

#include <lockstep/kit/window.hpp>

#include "communicator.hpp"

namespace lockstep::zoo {

std::unique_ptr<kit::SubjectWindow> faulty_window(WindowFault fault, const Communicator& world);

}  // namespace lockstep::zoo
