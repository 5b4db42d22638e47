// The thread that speaks to the other processes, and runs works for them: where a rank of another
// process waits for a launch of this one, nobody here need be waiting. It starts when it is first
// needed. All functions want the engine's lock held.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "connection.hpp"
#include "engine.hpp"

namespace lockstep::nccl {

class Service {
 public:
  static Service& instance();

  // Opens this process' meeting point. False when that cannot be.
  bool listen(const std::string& token);
  // Reads and writes at a connection from now on.
  void serve(std::shared_ptr<Connection> connection);
  // Runs the work and what it needs, as soon as that can be.
  void demand(const devices::NodeRef& node);
  // Something new was enqueued that a demanded work may wait for.
  void progress() {
    if (!demanded_.empty()) poke();
  }
  // Wakes the thread, which then looks at everything anew.
  void poke();

 private:
  Service() = default;
  void start();
  [[noreturn]] void run();
  void accept();
  void say_goodbye();
  void forget_in_child();

  bool started_ = false;
  int waker_ = -1;
  int listener_ = -1;
  std::vector<std::shared_ptr<Connection>> connections_;
  std::vector<devices::NodeRef> demanded_;
};

}  // namespace lockstep::nccl
