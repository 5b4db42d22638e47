// A control plane between processes of one machine that needs nothing but sockets, for machines
// with a GPU and little else.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/gpu/control_plane.hpp>

namespace lockstep::device_check {

// One process's sockets to all others, and the messages that have come. Used by one thread.
class Sockets {
 public:
  // A socket between each two of `ranks` processes that will be forked: entry r is what process r
  // keeps. Throws Error.
  static std::vector<std::vector<int>> mesh(int ranks);

  // `sockets` has one for each rank, -1 at this one's place.
  Sockets(int rank, std::vector<int> sockets) : rank_(rank), sockets_(std::move(sockets)) {}

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(sockets_.size()); }

  using Words = std::vector<std::int64_t>;
  void send(std::uint64_t plane, int peer, std::span<const std::int64_t> words);
  void say_left(std::uint64_t plane, int peer) noexcept;
  // The next message of the peer on the last of these planes. Throws TransportError when it has
  // left any of them, or its process is gone.
  Words receive(std::span<const std::uint64_t> planes, int peer);

 private:
  struct Header {
    std::uint64_t plane;
    std::int64_t words;  // -1: the peer has left the plane
  };

  void write_all(int peer, const void* data, std::size_t bytes);
  void read_until_writable(int peer);
  void read_some(int peer);

  int rank_;
  std::vector<int> sockets_;
  std::map<int, std::vector<std::byte>> incoming_;  // what has come of the next message
  std::map<std::pair<std::uint64_t, int>, std::deque<Words>> messages_;
  std::set<std::pair<std::uint64_t, int>> left_;
  std::set<int> gone_;
};

class SocketPlane final : public gpu::ControlPlane {
 public:
  // Of these ranks of the job, this process among them. Planes of different keys are different. Who
  // has left one of the planes `above`, leaves this one as well.
  SocketPlane(std::shared_ptr<Sockets> sockets, std::vector<int> members, std::string name,
              std::string key, std::vector<std::uint64_t> above = {});
  ~SocketPlane() override;

  int rank() const override { return rank_; }
  int world_size() const override { return static_cast<int>(members_.size()); }
  std::string name() const override { return name_; }
  std::vector<std::int64_t> all_gather(std::span<const std::int64_t> words) override;
  std::vector<std::int64_t> all_to_all(std::span<const std::int64_t> words) override;
  std::unique_ptr<gpu::ControlPlane> group(std::span<const int> ranks) override;
  std::unique_ptr<gpu::ControlPlane> split(std::int64_t color, std::int64_t key) override;

  // Of every rank, however many words each has.
  std::vector<std::vector<std::int64_t>> gather_any(std::span<const std::int64_t> words);

 private:
  std::unique_ptr<gpu::ControlPlane> part(const std::vector<int>& ranks, const std::string& how,
                                          std::vector<std::uint64_t> above);

  std::shared_ptr<Sockets> sockets_;
  std::vector<int> members_;
  std::string name_;
  std::string key_;
  std::vector<std::uint64_t> planes_;  // those above, and this one
  int rank_;
  int splits_ = 0;
};

}  // namespace lockstep::device_check
