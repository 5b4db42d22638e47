#include "text.hpp"

#include <cstdio>

#include "node.hpp"

namespace lockstep::devices {

std::string bytes_text(std::size_t bytes) {
  return std::to_string(bytes) + (bytes == 1 ? " byte" : " bytes");
}

std::string address_text(std::uintptr_t address) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(address));
  return text;
}

std::string range_text(const Access& access) {
  return bytes_text(access.bytes) + " at " +
         address_text(reinterpret_cast<std::uintptr_t>(access.address)) + " (" + access.argument +
         ")";
}

std::string text(const Allocation& allocation) {
  std::string words = bytes_text(allocation.bytes) + " at " + address_text(allocation.begin) +
                      " from " + allocation.origin;
  if (allocation.device >= 0) words += " on device " + std::to_string(allocation.device);
  return words;
}

const char* verb(Touch touch) {
  return touch == Touch::read ? "reads" : "writes";
}

std::string text(const Stream& stream) {
  const std::string device = " of device " + std::to_string(stream.device);
  switch (stream.kind) {
    case Stream::Kind::legacy:
      return "the legacy default stream" + device;
    case Stream::Kind::per_thread:
      return "a thread's default stream" + device;
    default:
      return "stream " + std::to_string(stream.number) + device;
  }
}

std::string text(const Node& node) {
  std::string words = node.call.function;
  if (!node.call.rank.empty()) words += " by " + node.call.rank;
  return words + " on " + text(*node.stream);
}

}  // namespace lockstep::devices
