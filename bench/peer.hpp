// A library that Lockstep is compared with: one rank's end of it, and the program around that.
//
// What is measured, and how, is proptests/tool/bench_measure.hpp, as for Lockstep itself. Where the
// two differ it is in favour of the peer: its buffers are made once, before the clock starts, and
// nothing compares what the ranks ask for.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>

#include <lockstep/operation.hpp>

#include "bench_plan.hpp"

namespace lockstep::bench {

class Peer {
 public:
  virtual ~Peer() = default;

  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  virtual bool offers(Operation operation) const = 0;

  // One call of an operation on FloatTensor, on f32: from `send` into `receive`, which has exactly
  // the room for the result. An exchange sends equal parts to all ranks; the root of a broadcast is
  // rank 0, which may leave its `receive` alone.
  virtual void call(Operation operation, std::span<const float> send, std::span<float> receive) = 0;
  // The largest of what the ranks pass; nobody returns before everybody has entered.
  virtual double slowest(double seconds) = 0;
};

struct PeerArguments {
  Arguments plan;                   // its dtypes are not asked for
  std::optional<std::string> json;  // as `lockstep bench --json`
};

// Reads the command line and calls `body` with it; returns the exit status. What is wrong with the
// command line, or thrown by the body, is said on standard error.
int peer_main(int argc, char** argv, const std::function<void(const PeerArguments&)>& body);

// Measures; rank 0 prints the table and writes the JSON. The number of ranks is the peer's.
void measure_peer(const std::string& name, Peer& peer, const PeerArguments& arguments);

}  // namespace lockstep::bench
