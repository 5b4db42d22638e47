#include "message.hpp"

namespace lockstep::mpi {

std::string describe_departure(const Message& message) {
  const bool left = message.kind == Kind::left;
  if (message.number == 0)
    return left ? "left before its first call" : "failed before its first call";
  std::string call = "call " + std::to_string(message.number - 1) + " (";
  call += name(message.digest.operation);
  call += ")";
  if (left) return (message.completed == message.number ? "left after " : "left during ") + call;
  return "gave up in " + call +
         (message.reason == Reason::timed_out ? ", which timed out" : ", in which it threw");
}

}  // namespace lockstep::mpi
