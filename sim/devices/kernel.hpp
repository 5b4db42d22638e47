// Loops of the simulation's own, run on a stream in the place of a kernel.
//
// Kernels cannot run here, and a host function cannot stand in for one: the program's addresses of
// device memory lead nowhere, as on a real machine. Code that is part of the simulation says what
// it touches and asks for the bytes with view():
//
//   launch(stream, {"fold"},
//          {{x, bytes, Touch::read, "x"}, {out, bytes, Touch::write, "out"}}, [=] {
//            const auto* from = static_cast<const float*>(Engine::instance().view(x));
//            ...
//          });
#pragma once

#include <functional>
#include <vector>

#include "engine.hpp"

namespace lockstep::devices {

// Enqueues `body` on the stream with this handle (a cudaStream_t), with the checks of any work:
// what it touches must be of the stream's device. It runs once, without the engine's lock, when its
// turn has come; it must not call the runtime and must not throw. Not success where the accesses
// are refused; `body` is dropped then.
Status launch(void* stream, const Call& call, std::vector<Access> accesses,
              std::function<void()> body);

}  // namespace lockstep::devices
