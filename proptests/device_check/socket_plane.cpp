#include "socket_plane.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <tuple>

#include <lockstep/error.hpp>

namespace lockstep::device_check {
namespace {

std::size_t index(int rank) {
  return static_cast<std::size_t>(rank);
}

}  // namespace

std::vector<std::vector<int>> Sockets::mesh(int ranks) {
  std::vector<std::vector<int>> all(index(ranks), std::vector<int>(index(ranks), -1));
  for (int a = 0; a < ranks; ++a) {
    for (int b = a + 1; b < ranks; ++b) {
      int ends[2];
      if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0) {
        throw Error(std::string("socketpair: ") + std::strerror(errno));
      }
      all[index(a)][index(b)] = ends[0];
      all[index(b)][index(a)] = ends[1];
    }
  }
  return all;
}

void Sockets::send(std::uint64_t plane, int peer, std::span<const std::int64_t> words) {
  const Header header{plane, static_cast<std::int64_t>(words.size())};
  write_all(peer, &header, sizeof header);
  write_all(peer, words.data(), words.size_bytes());
}

void Sockets::say_left(std::uint64_t plane, int peer) noexcept {
  const Header header{plane, -1};
  try {
    write_all(peer, &header, sizeof header);
  } catch (const std::exception&) {
    // Its process is gone.
  }
}

// Reads from everybody meanwhile, or processes with much to say would wait for each other in a
// circle.
void Sockets::read_until_writable(int peer) {
  std::vector<pollfd> ready;
  std::vector<int> peers;
  for (int other = 0; other < size(); ++other) {
    if (sockets_[index(other)] < 0 || gone_.contains(other)) continue;
    const short events = static_cast<short>(other == peer ? POLLIN | POLLOUT : POLLIN);
    ready.push_back({sockets_[index(other)], events, 0});
    peers.push_back(other);
  }
  ::poll(ready.data(), ready.size(), -1);
  for (std::size_t i = 0; i < ready.size(); ++i) {
    if ((ready[i].revents & (POLLIN | POLLHUP | POLLERR)) != 0) read_some(peers[i]);
  }
}

void Sockets::write_all(int peer, const void* data, std::size_t bytes) {
  const auto* next = static_cast<const char*>(data);
  while (bytes > 0 && !gone_.contains(peer)) {
    const ssize_t written = ::send(sockets_[index(peer)], next, bytes, MSG_NOSIGNAL);
    if (written > 0) {
      next += written;
      bytes -= static_cast<std::size_t>(written);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      read_until_writable(peer);
    } else if (errno != EINTR) {
      gone_.insert(peer);
    }
  }
}

void Sockets::read_some(int peer) {
  std::vector<std::byte>& bytes = incoming_[peer];
  char buffer[65536];
  const ssize_t got = ::recv(sockets_[index(peer)], buffer, sizeof buffer, 0);
  if (got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
    gone_.insert(peer);
    return;
  }
  if (got < 0) return;
  const auto* begin = reinterpret_cast<const std::byte*>(buffer);
  bytes.insert(bytes.end(), begin, begin + got);
  Header header{};
  while (bytes.size() >= sizeof header) {
    std::memcpy(&header, bytes.data(), sizeof header);
    const std::size_t length = header.words < 0 ? 0 : static_cast<std::size_t>(header.words) * 8;
    if (bytes.size() < sizeof header + length) return;
    if (header.words < 0) {
      left_.insert({header.plane, peer});
    } else {
      Words words(static_cast<std::size_t>(header.words));
      if (length > 0) std::memcpy(words.data(), bytes.data() + sizeof header, length);
      messages_[{header.plane, peer}].push_back(std::move(words));
    }
    bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(sizeof header + length));
  }
}

Sockets::Words Sockets::receive(std::span<const std::uint64_t> planes, int peer) {
  const std::uint64_t plane = planes.back();
  while (true) {
    const auto queue = messages_.find({plane, peer});
    if (queue != messages_.end()) {
      Words words = std::move(queue->second.front());
      queue->second.pop_front();
      if (queue->second.empty()) messages_.erase(queue);
      return words;
    }
    for (const std::uint64_t one : planes) {
      if (left_.contains({one, peer})) throw TransportError("it has left", {peer});
    }
    if (gone_.contains(peer)) throw TransportError("its process has ended", {peer});
    pollfd ready = {sockets_[index(peer)], POLLIN, 0};
    ::poll(&ready, 1, -1);
    read_some(peer);
  }
}

SocketPlane::SocketPlane(std::shared_ptr<Sockets> sockets, std::vector<int> members,
                         std::string name, std::string key, std::vector<std::uint64_t> above)
    : sockets_(std::move(sockets)),
      members_(std::move(members)),
      name_(std::move(name)),
      key_(std::move(key)),
      planes_(std::move(above)),
      rank_(static_cast<int>(std::ranges::find(members_, sockets_->rank()) - members_.begin())) {
  planes_.push_back(std::hash<std::string>()(key_));
}

SocketPlane::~SocketPlane() {
  for (int member : members_) {
    if (member != sockets_->rank()) sockets_->say_left(planes_.back(), member);
  }
}

std::vector<std::vector<std::int64_t>> SocketPlane::gather_any(
    std::span<const std::int64_t> words) {
  for (int member : members_) {
    if (member != sockets_->rank()) sockets_->send(planes_.back(), member, words);
  }
  std::vector<std::vector<std::int64_t>> all(members_.size());
  for (int rank = 0; rank < world_size(); ++rank) {
    if (rank == rank_) {
      all[index(rank)].assign(words.begin(), words.end());
      continue;
    }
    try {
      all[index(rank)] = sockets_->receive(planes_, members_[index(rank)]);
    } catch (const TransportError& error) {
      throw TransportError(
          "rank " + std::to_string(rank) + " can no longer arrive: " + error.what(), {rank});
    }
  }
  return all;
}

std::vector<std::int64_t> SocketPlane::all_gather(std::span<const std::int64_t> words) {
  std::vector<std::int64_t> joined;
  for (const auto& theirs : gather_any(words)) {
    joined.insert(joined.end(), theirs.begin(), theirs.end());
  }
  return joined;
}

std::vector<std::int64_t> SocketPlane::all_to_all(std::span<const std::int64_t> words) {
  // Everybody gets everything, which is more than is needed and little enough.
  std::vector<std::int64_t> mine;
  for (const auto& theirs : gather_any(words)) mine.push_back(theirs[index(rank_)]);
  return mine;
}

std::unique_ptr<gpu::ControlPlane> SocketPlane::part(const std::vector<int>& ranks,
                                                     const std::string& how,
                                                     std::vector<std::uint64_t> above) {
  std::vector<int> members;
  std::string list;
  for (int rank : ranks) {
    members.push_back(members_[index(rank)]);
    list += (list.empty() ? "" : ", ") + std::to_string(rank);
  }
  const std::string suffix = "." + how + "{" + list + "}";
  return std::make_unique<SocketPlane>(sockets_, std::move(members), name_ + suffix, key_ + suffix,
                                       std::move(above));
}

std::unique_ptr<gpu::ControlPlane> SocketPlane::group(std::span<const int> ranks) {
  const std::vector<int> list(ranks.begin(), ranks.end());
  const bool fits = std::ranges::all_of(list, [&](int rank) {
    return rank >= 0 && rank < world_size() && std::ranges::count(list, rank) == 1;
  });
  if (!fits || std::ranges::count(list, rank_) != 1) {
    throw InvalidArgument(name_ + ": these ranks make no group with rank " + std::to_string(rank_));
  }
  return part(list, "group", planes_);
}

std::unique_ptr<gpu::ControlPlane> SocketPlane::split(std::int64_t color, std::int64_t key) {
  const std::int64_t wish[] = {color, key};
  const std::vector<std::int64_t> all = all_gather(wish);
  std::vector<std::tuple<std::int64_t, int>> alike;
  for (int rank = 0; rank < world_size(); ++rank) {
    if (all[2 * index(rank)] == color) alike.emplace_back(all[2 * index(rank) + 1], rank);
  }
  std::ranges::sort(alike);
  std::vector<int> ranks;
  for (const auto& [unused, rank] : alike) ranks.push_back(rank);
  return part(ranks, "split@" + std::to_string(splits_++), {});
}

}  // namespace lockstep::device_check
