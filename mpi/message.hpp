// What ranks tell each other besides elements.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>

#include <lockstep/signature_wire.hpp>

namespace lockstep::mpi {

// Between two ranks of a communicator: one `call` for each call, then perhaps one `failed`, and at
// the very end one `left`.
enum class Kind : std::uint8_t {
  call,    // enters the call `number`
  failed,  // ends this communicator, for `reason`; it may still form groups
  left,    // has dropped its last handle
};

enum class Reason : std::uint8_t { timed_out, exception };

// Travels as bytes, between machines of one byte order.
struct Message {
  // The call that is entered; in `failed` and `left`, how many calls were entered.
  std::uint64_t number = 0;
  std::uint64_t completed = 0;         // how many calls this rank has been through
  std::uint64_t conversation = 0;      // see Channel
  std::int64_t rows_for_receiver = 0;  // the exchanges: this message's receiver's send count
  SignatureDigest digest;              // of the call entered, or of the last one
  Kind kind = Kind::call;
  Reason reason = Reason::timed_out;
  std::uint8_t unused[6] = {};
};
static_assert(std::is_trivially_copyable_v<Message>);

// What a rank that will not come did last: "left after call 4 (all_reduce_sum)".
std::string describe_departure(const Message& message);

}  // namespace lockstep::mpi
