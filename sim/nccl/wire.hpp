// Messages between the processes of a communicator: what they are, and how values lie in them. Both
// ends are the same library on the same host, so values travel as they are in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "clique.hpp"
#include "gathering.hpp"

namespace lockstep::nccl {

enum class Message : std::uint8_t {
  // From a rank to its clique.
  enter,
  announce,
  arrive,
  leave,
  // From the clique to a rank.
  joined,
  failed,
  demanded,
  finished,
};

class Writer {
 public:
  template <class T>
  requires std::is_trivially_copyable_v<T>
  void put(const T& value) {
    put_bytes({reinterpret_cast<const std::byte*>(&value), sizeof value});
  }
  void put(const std::string& text) {
    put(text.size());
    put_bytes({reinterpret_cast<const std::byte*>(text.data()), text.size()});
  }
  void put_bytes(std::span<const std::byte> bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

// Reads what a Writer wrote, in the same order. Beyond the end it gives zeros and is no longer
// good().
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : left_(bytes) {}

  bool good() const { return good_; }
  template <class T>
  T get() {
    T value{};
    const auto from = get_bytes(sizeof value);
    if (!from.empty()) std::memcpy(&value, from.data(), sizeof value);
    return value;
  }
  std::string get_text() {
    const auto from = get_bytes(get<std::size_t>());
    return {reinterpret_cast<const char*>(from.data()), from.size()};
  }
  std::span<const std::byte> get_bytes(std::size_t count) {
    if (count > left_.size()) {
      good_ = false;
      return {};
    }
    const auto result = left_.first(count);
    left_ = left_.subspan(count);
    return result;
  }

 private:
  std::span<const std::byte> left_;
  bool good_ = true;
};

void put(Writer& to, const Entry& entry);
Entry get_entry(Reader& from);
void put(Writer& to, const Launch& launch);  // as announced
LaunchRef get_launch(Reader& from);

}  // namespace lockstep::nccl
