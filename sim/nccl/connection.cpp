#include "connection.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "service.hpp"

namespace lockstep::nccl {
namespace {

// An abstract address: it needs no file, and is gone with the process.
std::pair<sockaddr_un, socklen_t> address_of(const std::string& token) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = "lockstep-nccl-" + token;
  name.copy(address.sun_path + 1, sizeof address.sun_path - 1);
  return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())};
}

int unix_socket(int flags) {
  return ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
}

}  // namespace

int listen_at(const std::string& token) {
  const int descriptor = unix_socket(SOCK_NONBLOCK);
  if (descriptor < 0) return -1;
  const auto [address, length] = address_of(token);
  if (::bind(descriptor, reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      ::listen(descriptor, SOMAXCONN) != 0) {
    ::close(descriptor);
    return -1;
  }
  return descriptor;
}

int connect_to(const std::string& token) {
  const int descriptor = unix_socket(0);
  if (descriptor < 0) return -1;
  const auto [address, length] = address_of(token);
  if (::connect(descriptor, reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    ::close(descriptor);
    return -1;
  }
  return descriptor;
}

int peer_process(int descriptor) {
  ucred credentials{};
  socklen_t length = sizeof credentials;
  ::getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &credentials, &length);
  return credentials.pid;
}

Connection::~Connection() {
  close();
}

void Connection::close() {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
  outgoing_.clear();
}

void Connection::send(Message kind, Writer content) {
  if (!open()) return;
  std::vector<std::byte> bytes = content.take();
  Writer header;
  header.put(Header{bytes.size(), kind});
  outgoing_.push_back(header.take());
  if (!bytes.empty()) outgoing_.push_back(std::move(bytes));
  write_some();
  if (!outgoing_.empty()) Service::instance().poke();  // it may sleep, unaware of what is left
}

void Connection::write_some() {
  while (open() && !outgoing_.empty()) {
    const std::vector<std::byte>& front = outgoing_.front();
    const ssize_t written = ::send(descriptor_, front.data() + sent_, front.size() - sent_,
                                   MSG_DONTWAIT | MSG_NOSIGNAL);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      // Full: the service thread goes on. Otherwise the other side is gone, which reading tells.
      if (errno != EAGAIN && errno != EWOULDBLOCK) outgoing_.clear();
      return;
    }
    sent_ += static_cast<std::size_t>(written);
    if (sent_ == front.size()) {
      outgoing_.pop_front();
      sent_ = 0;
    }
  }
}

void Connection::read_some() {
  // A few pieces at a time, so that one busy peer does not starve the others.
  for (int pieces = 0; open() && pieces < 64; ++pieces) {
    constexpr std::size_t piece = 1 << 18;
    const std::size_t before = incoming_.size();
    incoming_.resize(before + piece);
    const ssize_t got = ::recv(descriptor_, incoming_.data() + before, piece, MSG_DONTWAIT);
    const int error = errno;
    incoming_.resize(before + static_cast<std::size_t>(got > 0 ? got : 0));
    if (got > 0) {
      deliver();
      continue;
    }
    if (got < 0 && error == EINTR) continue;
    if (got < 0 && (error == EAGAIN || error == EWOULDBLOCK)) return;
    close();
    ended();
    return;
  }
}

void Connection::deliver() {
  std::size_t at = 0;
  while (incoming_.size() - at >= sizeof(Header)) {
    Header header{};
    std::memcpy(&header, incoming_.data() + at, sizeof header);
    if (incoming_.size() - at - sizeof header < header.bytes) break;
    Reader content({incoming_.data() + at + sizeof header, header.bytes});
    at += sizeof header + header.bytes;
    received(header.kind, content);
  }
  incoming_.erase(incoming_.begin(), incoming_.begin() + static_cast<std::ptrdiff_t>(at));
}

}  // namespace lockstep::nccl
