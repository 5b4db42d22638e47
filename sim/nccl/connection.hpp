// One end of a socket between two processes of a communicator, with whole messages in both
// directions. Guarded by the engine's lock.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "wire.hpp"

namespace lockstep::nccl {

class Connection {
 public:
  explicit Connection(int descriptor) : descriptor_(descriptor) {}
  virtual ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Queues a message and sends what can be sent at once.
  void send(Message kind, Writer content);
  int descriptor() const { return descriptor_; }
  bool open() const { return descriptor_ >= 0; }
  bool has_more_to_send() const { return !outgoing_.empty(); }
  // For the service thread, when the socket is ready: passes whole messages on to received(), and
  // the end of the other side, once, to ended().
  void read_some();
  void write_some();
  // No more messages, either way.
  void close();

 protected:
  virtual void received(Message kind, Reader& content) = 0;
  virtual void ended() = 0;

 private:
  struct Header {
    std::size_t bytes;
    Message kind;
  };
  void deliver();

  int descriptor_;
  std::deque<std::vector<std::byte>> outgoing_;
  std::size_t sent_ = 0;  // of the first
  std::vector<std::byte> incoming_;
};

// A socket that hears at the meeting point of a process, and one that calls there; -1 when it
// cannot be had. `token`: see unique_id.hpp.
int listen_at(const std::string& token);
int connect_to(const std::string& token);
// The process at the other end.
int peer_process(int descriptor);

}  // namespace lockstep::nccl
