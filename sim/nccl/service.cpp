#include "service.hpp"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "communicator.hpp"
#include "remote.hpp"

namespace lockstep::nccl {

using devices::Engine;

Service& Service::instance() {
  static Service* const service = new Service;  // outlives its thread
  return *service;
}

void Service::start() {
  if (started_) return;
  started_ = true;
  waker_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  std::thread([this] { run(); }).detach();
  static const bool once = [] {
    std::atexit([] { instance().say_goodbye(); });
    ::pthread_atfork(nullptr, nullptr, [] { instance().forget_in_child(); });
    return true;
  }();
  static_cast<void>(once);
}

bool Service::listen(const std::string& token) {
  if (listener_ >= 0) return true;
  listener_ = listen_at(token);
  if (listener_ < 0) return false;
  start();
  poke();
  return true;
}

void Service::serve(std::shared_ptr<Connection> connection) {
  start();
  connections_.push_back(std::move(connection));
  poke();
}

void Service::demand(const devices::NodeRef& node) {
  if (!node || std::find(demanded_.begin(), demanded_.end(), node) != demanded_.end()) return;
  start();
  demanded_.push_back(node);
  poke();
}

void Service::poke() {
  if (waker_ >= 0) ::eventfd_write(waker_, 1);
}

void Service::accept() {
  while (true) {
    const int descriptor = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (descriptor < 0) return;
    connections_.push_back(std::make_shared<RemoteMember>(descriptor));
  }
}

void Service::run() {
  Engine& engine = Engine::instance();
  engine.exempt_this_thread();
  std::vector<pollfd> ready;
  std::vector<std::shared_ptr<Connection>> polled;
  bool waits_for_work = false;
  while (true) {
    {
      const devices::Lock lock = engine.lock();
      std::erase_if(connections_, [](const auto& connection) { return !connection->open(); });
      polled = connections_;
      ready = {{waker_, POLLIN, 0}, {listener_, POLLIN, 0}};
      for (const auto& connection : polled) {
        const short events =
            static_cast<short>(connection->has_more_to_send() ? POLLIN | POLLOUT : POLLIN);
        ready.push_back({connection->descriptor(), events, 0});
      }
    }
    // A demanded work may wait for one that runs on another thread, whose end nobody tells.
    ::poll(ready.data(), ready.size(), waits_for_work ? 10 : -1);

    devices::Lock lock = engine.lock();
    eventfd_t ignored = 0;
    if (ready[0].revents != 0) ::eventfd_read(waker_, &ignored);
    if (ready[1].revents != 0) accept();
    for (std::size_t at = 0; at < polled.size(); ++at) {
      const short events = ready[at + 2].revents;
      if ((events & POLLOUT) != 0) polled[at]->write_some();
      if ((events & (POLLIN | POLLHUP | POLLERR)) != 0 && polled[at]->open()) {
        polled[at]->read_some();
        engine.wake(lock);
      }
    }
    for (std::size_t at = 0; at < demanded_.size(); ++at) {
      const devices::NodeRef node = demanded_[at];  // driving may demand more
      engine.drive(lock, node);
    }
    std::erase_if(demanded_, [&](const devices::NodeRef& node) { return engine.done(node); });
    waits_for_work = !demanded_.empty();
  }
}

// The process ends, and means to. Its ranks leave; and while ranks of other processes meet here, it
// stays for them.
void Service::say_goodbye() {
  Engine& engine = Engine::instance();
  devices::Lock lock = engine.lock();
  if (!started_) return;
  leave_all(lock);
  const auto deadline = std::chrono::steady_clock::now() + engine.options().timeout;
  while (std::chrono::steady_clock::now() < deadline) {
    bool busy = false;
    for (const auto& connection : connections_) busy = busy || connection->open();
    if (!busy) return;
    poke();
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    lock.lock();
  }
}

// A child has the descriptors but not the thread; it begins anew.
void Service::forget_in_child() {
  if (waker_ >= 0) ::close(waker_);
  if (listener_ >= 0) ::close(listener_);
  for (const auto& connection : connections_) ::close(connection->descriptor());
  auto* const abandoned = new std::vector(std::move(connections_));  // their memory may be in use
  static_cast<void>(abandoned);
  connections_.clear();
  demanded_.clear();
  waker_ = listener_ = -1;
  started_ = false;
}

}  // namespace lockstep::nccl
