#include "unique_id.hpp"

#include <sys/random.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

namespace lockstep::nccl {
namespace {

constexpr char magic[8] = {'L', 'o', 'c', 'k', 's', 't', 'e', 'p'};
constexpr std::size_t token_digits = 32;

// The layout of the 128 bytes.
struct Packed {
  char magic[8];
  std::int32_t process;
  std::int32_t unused;
  std::uint64_t number;
  char token[token_digits];
};
static_assert(sizeof(Packed) <= NCCL_UNIQUE_ID_BYTES);

std::string draw_token() {
  unsigned char bytes[token_digits / 2] = {};
  if (getrandom(bytes, sizeof bytes, 0) != static_cast<ssize_t>(sizeof bytes)) {
    // Unlikely; the process number still tells processes of one host apart.
    const pid_t self = getpid();
    std::memcpy(bytes, &self, sizeof self);
  }
  std::string token;
  for (const unsigned char byte : bytes) {
    token += "0123456789abcdef"[byte >> 4];
    token += "0123456789abcdef"[byte & 15];
  }
  return token;
}

const std::string& own_token() {
  static const std::string token = draw_token();
  return token;
}

}  // namespace

bool UniqueId::of_this_process() const {
  return process == getpid() && token == own_token();
}

UniqueId make_unique_id() {
  static std::atomic<std::uint64_t> next{0};
  return {getpid(), own_token(), next.fetch_add(1)};
}

ncclUniqueId pack(const UniqueId& id) {
  Packed packed{};
  std::memcpy(packed.magic, magic, sizeof magic);
  packed.process = id.process;
  packed.number = id.number;
  std::memcpy(packed.token, id.token.data(), token_digits);
  ncclUniqueId bytes{};
  std::memcpy(bytes.internal, &packed, sizeof packed);
  return bytes;
}

std::optional<UniqueId> unpack(const ncclUniqueId& bytes) {
  Packed packed{};
  std::memcpy(&packed, bytes.internal, sizeof packed);
  if (std::memcmp(packed.magic, magic, sizeof magic) != 0) return std::nullopt;
  return UniqueId{packed.process, std::string(packed.token, token_digits), packed.number};
}

}  // namespace lockstep::nccl
