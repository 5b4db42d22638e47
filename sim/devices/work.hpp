// Something that a stream executes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace lockstep::devices {

struct Node;
// A work at its place in a stream, from enqueue on; see node.hpp.
using NodeRef = std::shared_ptr<Node>;

enum class Touch : std::uint8_t { read, write };

// Where a touched range may lie.
enum class Home : std::uint8_t {
  own_device,  // memory of the stream's device, or host memory that devices can reach
  reachable,   // the same, and memory of devices whose peer access was enabled
  any_device,  // memory of any device, and host memory that devices can reach: copies
  anywhere,    // any device's memory and any host memory, pageable too
  host,        // host memory only
};

// A range that a work touches when it runs. The engine checks it when the work is enqueued (a live
// allocation, inside it, in the right home) and again when it runs (not freed since, initialized
// where read, ordered after other accesses to it). A range of zero bytes is not checked at all.
struct Access {
  const void* address;
  std::size_t bytes;
  Touch touch;
  const char* argument;  // its name in the call: "sendbuff"
  Home home = Home::own_device;
  // False where reading what nobody has written is no mistake, such as padding.
  bool must_be_initialized = true;
  // Of writes: false where the work may leave some of the bytes as they were.
  bool fills = true;
};

enum class Progress : std::uint8_t { done, blocked };

// The engine owns a work from enqueue on and destroys it when it is done or abandoned. Nothing runs
// before all earlier work of the stream, and all that the stream was told to wait for, is done.
class Work {
 public:
  virtual ~Work() = default;

  // Called when the work's turn has come, and again, until it says done. Whoever waits calls it, so
  // it must not wait itself: when it cannot finish yet it says `blocked`. Called with the engine's
  // lock held, by one thread at a time, unless unlocked() says otherwise.
  virtual Progress advance() = 0;

  // While blocked: works that have to get their turn first, such as the other ranks' parts of one
  // collective. The engine brings each of them to its turn and calls its advance(). May include the
  // work itself and works that are done.
  virtual std::vector<NodeRef> wants() const { return {}; }

  // While blocked: whom it waits for, to complete "waits for ...", for reports.
  virtual std::string awaited() const { return {}; }
  // While blocked: true if something outside this process may still unblock it; such a work is only
  // given up after the timeout.
  virtual bool awaits_others() const { return false; }

  // While blocked: true if the reason why it can never finish has been reported already. It is then
  // given up without another report.
  virtual bool told() const { return false; }

  // Instead of a turn, or of another one: it will never run, because its memory is gone or because
  // it can never finish; `reason` says so in a sentence. Called with the lock held.
  virtual void abandon(const std::string& reason) { (void)reason; }

  // True: advance() is called once, without the engine's lock, by whoever waits for it, and must
  // say done. For long loops over memory.
  virtual bool unlocked() const { return false; }
  // True for a function of the program: it runs without the lock, on a thread of the engine, and
  // the program may learn from it that earlier work is done. It may not call the runtime.
  virtual bool tells_host() const { return false; }
};

}  // namespace lockstep::devices
