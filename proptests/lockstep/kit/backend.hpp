// A backend as the tool sees it: a shared library with one entry point.
//
// A backend whose ranks are threads of one process derives from ThreadBackend, says how to start a
// world, and names itself with LOCKSTEP_BACKEND:
//
//   class MyBackend : public lockstep::kit::ThreadBackend {
//     lockstep::kit::BackendInfo info() const override { return {.name = "mine"}; }
//     void launch(int world, const RankBody& body) override {
//       my::World(world).run([&](my::Communicator c) {
//         lockstep::kit::SubjectOf<my::Communicator> subject(c);
//         body(c.rank(), subject);
//       });
//     }
//   };
//   LOCKSTEP_BACKEND(MyBackend)
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/kit/case.hpp>
#include <lockstep/kit/subject.hpp>
#include <lockstep/sum_rule.hpp>

namespace lockstep::kit {

// What a backend says of itself.
struct BackendInfo {
  std::string name = {};
  std::string description = {};  // one line, for `lockstep backends`
  SumRule sum_rule = SumRule::exact;
  // Why it cannot run on this machine at present; empty when it can.
  std::string unavailable = {};
  // The largest world it can run here.
  int most_ranks = 4096;
  // Parts of the contract that it does not claim; the card says "not offered" for them.
  bool offers_groups = true;     // sub-communicators of chosen ranks
  bool offers_departure = true;  // a rank that leaves becomes a TransportError on its peers
  // So does a rank whose body throws. (The exception is an InjectedFault. A ThreadBackend may let
  // one out of launch() when all ranks are through.)
  bool offers_throws = false;
  // A peer that is stuck becomes a TransportError after the timeout: see Backend::set_timeout().
  bool offers_stalls = false;
};

// What the user chose on the command line.
struct BackendOptions {
  std::optional<SumRule> sum_rule = {};  // for backends that can follow several
};

// The backend itself failed: it could not start a world, or its processes died. Exit status 3.
class BackendBroken : public Error {
 public:
  using Error::Error;
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual BackendInfo info() const = 0;
  // Called once before the first case. Throws InvalidArgument for an option that it cannot serve.
  virtual void configure(const BackendOptions& options) { (void)options; }

  // Runs the whole case in a fresh world of `c.world` ranks, and reports every rank's outcomes.
  // Throws BackendBroken when that is impossible.
  virtual Transcript run(const Case& c) = 0;

  // How long a rank of the next worlds waits for a peer before it gives it up; nothing, as at first,
  // for as long as it takes. Called around cases in which a rank stalls, and only where
  // info().offers_stalls.
  virtual void set_timeout(std::optional<std::chrono::milliseconds> timeout) { (void)timeout; }

  // For backends whose ranks are processes: the command to put before this one's own command line so
  // that a world of `ranks` can run, or nothing when this process can run it already.
  virtual std::vector<std::string> launcher(int ranks) const {
    (void)ranks;
    return {};
  }
  // In a process that only lends its rank to the judge in another one: serves until the judge is
  // done, and returns the process's exit status. Nothing in the judge's own process.
  virtual std::optional<int> serve() { return std::nullopt; }

  // What one rank of a world does. When it returns, the rank has left; so it has when it throws
  // InjectedFault, which it does only where info().offers_throws, and throws nothing else.
  using RankBody = std::function<void(int rank, Subject& world)>;

  // Calls `body` for every rank that this process plays in a fresh world of `ranks`, each on a
  // thread of its own, and returns when all have returned. Where ranks are processes, each process
  // of the job calls this in the same order, without serve(), and plays one rank or none. For
  // programs that no case describes, such as measurements; not offered unless overridden. Throws
  // BackendBroken when there is no such world.
  virtual void run_ranks(int ranks, const RankBody& body) {
    (void)ranks;
    (void)body;
    throw BackendBroken("it runs cases only");
  }
};

// A backend whose ranks are threads of this process.
class ThreadBackend : public Backend {
 public:
  // Calls `body` once for every rank of a fresh world, each on a thread of its own, and returns when
  // all have returned.
  virtual void launch(int world, const RankBody& body) = 0;

  Transcript run(const Case& c) override;
  void run_ranks(int ranks, const RankBody& body) override { launch(ranks, body); }
};

// The entry point of a backend library: one object named `lockstep_backend`.
struct BackendEntry {
  // The version of this interface that the library was built for; the tool refuses any other.
  std::uint32_t abi;
  Backend* (*make)();  // a new backend, owned by the caller
};
inline constexpr std::uint32_t backend_abi = 4;

}  // namespace lockstep::kit

#define LOCKSTEP_BACKEND(Type)                                                       \
  extern "C" __attribute__((visibility("default")))                                  \
  const ::lockstep::kit::BackendEntry lockstep_backend = {                           \
      ::lockstep::kit::backend_abi, []() -> ::lockstep::kit::Backend* { return new Type; }}
