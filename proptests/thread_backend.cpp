// A case whose ranks are threads of this process: who plays when, and what becomes of what they
// say.

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <string>
#include <vector>

#include <lockstep/kit/backend.hpp>
#include <lockstep/kit/subject.hpp>

#include "step_values.hpp"

namespace lockstep::kit {
namespace {

// Holds back the ranks that stall until all others are through.
class Stalls {
 public:
  explicit Stalls(const Case& c) {
    if (!has_stall(c)) return;
    for (int rank = 0; rank < c.world; ++rank) {
      const bool stalls = departure_of(c, rank) == Departure::stalls;
      stalls_.push_back(stalls);
      if (!stalls) ++busy_;
    }
  }

  void wait() {
    std::unique_lock lock(mutex_);
    none_busy_.wait(lock, [this] { return busy_ == 0; });
  }
  // The rank has played its part.
  void finished(int rank) {
    if (stalls_.empty() || stalls_[static_cast<std::size_t>(rank)]) return;
    const std::lock_guard lock(mutex_);
    if (--busy_ == 0) none_busy_.notify_all();
  }

 private:
  std::vector<bool> stalls_;
  std::mutex mutex_;
  std::condition_variable none_busy_;
  int busy_ = 0;
};

// What a backend's launch() did that it must not. It is told in a rank's thread, where a backend
// may well catch it, and again to whoever called.
class Misuse {
 public:
  [[noreturn]] void tell(const std::string& what) {
    std::lock_guard lock(mutex_);
    what_ = what;
    throw BackendBroken(what);
  }
  void require_none() {
    std::lock_guard lock(mutex_);
    if (!what_.empty()) throw BackendBroken(what_);
  }

 private:
  std::mutex mutex_;
  std::string what_;
};

}  // namespace

Transcript ThreadBackend::run(const Case& c) {
  const int most = info().most_ranks;
  if (c.world > most) {
    throw BackendBroken("a world of " + std::to_string(c.world) + " ranks, where " +
                        std::to_string(most) + " are the most");
  }
  std::vector<RankTranscript> ranks(static_cast<std::size_t>(c.world));
  Misuse misuse;
  try {
    Stalls stalls(c);
    std::vector<std::atomic<bool>> entered(ranks.size());
    launch(c.world, [&](int rank, Subject& world) {
      if (rank < 0 || rank >= c.world) {
        misuse.tell("it ran rank " + std::to_string(rank) + " in a world of " +
                    std::to_string(c.world));
      }
      if (entered[static_cast<std::size_t>(rank)].exchange(true)) {
        misuse.tell("it ran rank " + std::to_string(rank) + " twice");
      }
      RankTranscript& transcript = ranks[static_cast<std::size_t>(rank)];
      try {
        perform(c, rank, world, transcript, [&] { stalls.wait(); });
      } catch (...) {
        stalls.finished(rank);
        throw;
      }
      stalls.finished(rank);
    });
  } catch (const InjectedFault&) {
    // The first of the ranks that had to throw.
  } catch (const BackendBroken&) {
    throw;
  } catch (const std::exception& error) {
    throw BackendBroken(error.what());
  }
  misuse.require_none();
  return assemble(c, ranks);
}

}  // namespace lockstep::kit
