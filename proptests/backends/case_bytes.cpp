#include "case_bytes.hpp"

#include <cstring>
#include <string>
#include <type_traits>

#include <lockstep/kit/backend.hpp>

namespace lockstep::kit {
namespace {

// Each type is written and read by one function for both directions, so that the two cannot differ:
// `Archive` is either of the two classes below.
class Writer {
 public:
  template <class T>
  requires(std::is_arithmetic_v<T> || std::is_enum_v<T>) void plain(const T& value) {
    raw(&value, sizeof value);
  }
  void raw(const void* data, std::size_t size) {
    const std::size_t written = bytes_.size();
    bytes_.resize(written + size);
    if (size > 0) std::memcpy(bytes_.data() + written, data, size);
  }
  template <class List>
  void length(const List& list) {
    plain(static_cast<std::uint64_t>(list.size()));
  }
  Bytes take() { return std::move(bytes_); }

 private:
  Bytes bytes_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <class T>
  requires(std::is_arithmetic_v<T> || std::is_enum_v<T>) void plain(T& value) {
    raw(&value, sizeof value);
  }
  void raw(void* data, std::size_t size) {
    if (size > bytes_.size()) throw BackendBroken("a message between processes is cut off");
    if (size > 0) std::memcpy(data, bytes_.data(), size);
    bytes_ = bytes_.subspan(size);
  }
  template <class List>
  void length(List& list) {
    std::uint64_t size = 0;
    plain(size);
    if (size > bytes_.size()) throw BackendBroken("a message between processes is cut off");
    list.resize(size);
  }

 private:
  std::span<const std::byte> bytes_;
};

template <class T>
requires(std::is_arithmetic_v<T> || std::is_enum_v<T>) void walk(auto& archive, T& value) {
  archive.plain(value);
}

void walk(Writer& archive, std::string& text) {
  archive.length(text);
  archive.raw(text.data(), text.size());
}
void walk(Reader& archive, std::string& text) {
  archive.length(text);
  archive.raw(text.data(), text.size());
}

void walk(Writer& archive, Tensor& tensor) {
  archive.plain(tensor.dtype());
  archive.plain(static_cast<std::uint64_t>(tensor.shape().size()));
  for (std::int64_t axis : tensor.shape().axes()) archive.plain(axis);
  archive.raw(tensor.data(), static_cast<std::size_t>(tensor.size_bytes()));
}
void walk(Reader& archive, Tensor& tensor) {
  DType dtype{};
  archive.plain(dtype);
  std::vector<std::int64_t> axes;
  archive.length(axes);
  for (std::int64_t& axis : axes) archive.plain(axis);
  tensor = Tensor::uninitialized(dtype, Shape(std::span<const std::int64_t>(axes)));
  const std::span<std::byte> bytes = tensor.mutable_bytes();
  archive.raw(bytes.data(), bytes.size());
}

template <class T>
void walk(auto& archive, std::optional<T>& maybe);
template <class T>
void walk(auto& archive, std::vector<T>& list);

void walk(auto& archive, Input& input) {
  walk(archive, input.from_step);
  if (!input.from_step) walk(archive, input.tensor);
  walk(archive, input.send_counts);
  walk(archive, input.layout);
}

void walk(auto& archive, Step& step) {
  walk(archive, step.group);
  walk(archive, step.operations);
  walk(archive, step.roots);
  walk(archive, step.inputs);
  walk(archive, step.departures);
  walk(archive, step.upstream);
  walk(archive, step.repeat);
}

void walk(auto& archive, Case& c) {
  walk(archive, c.world);
  walk(archive, c.sum_rule);
  walk(archive, c.window);
  walk(archive, c.steps);
}

void walk(auto& archive, Outcome& outcome) {
  walk(archive, outcome.kind);
  if (outcome.kind == Outcome::Kind::value) walk(archive, outcome.value);
  walk(archive, outcome.receive_counts);
  walk(archive, outcome.violation);
  walk(archive, outcome.message);
  walk(archive, outcome.lost_ranks);
  walk(archive, outcome.gradient);
  walk(archive, outcome.gradient_violation);
  walk(archive, outcome.input_changed);
  walk(archive, outcome.result_changed);
  walk(archive, outcome.repetition);
}

template <class T>
void walk(auto& archive, std::optional<T>& maybe) {
  bool present = maybe.has_value();
  archive.plain(present);
  if (present && !maybe) maybe.emplace();
  if (present) walk(archive, *maybe);
}

template <class T>
void walk(auto& archive, std::vector<T>& list) {
  archive.length(list);
  for (T& item : list) walk(archive, item);
}

template <class T>
Bytes encoded(T value) {
  Writer writer;
  walk(writer, value);
  return writer.take();
}

template <class T>
T decoded(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  T value;
  walk(reader, value);
  return value;
}

}  // namespace

Bytes encode(const Case& c) {
  return encoded(c);
}
Case decode_case(std::span<const std::byte> bytes) {
  return decoded<Case>(bytes);
}
Bytes encode(const RankTranscript& transcript) {
  return encoded(transcript);
}
RankTranscript decode_transcript(std::span<const std::byte> bytes) {
  return decoded<RankTranscript>(bytes);
}

}  // namespace lockstep::kit
