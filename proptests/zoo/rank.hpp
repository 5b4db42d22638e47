// One rank of one communicator that does everything right, and all that a fault may want to know.
//
// Every tensor that goes in and comes out is copied, as between processes: what a fault overwrites
// is its own rank's and nobody else's.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include <lockstep/oracle.hpp>
#include <lockstep/sim/communicator.hpp>

namespace lockstep::zoo {

// What one rank passes to one collective, whichever it is.
struct Call {
  Operation operation = Operation::all_gather_float;
  Tensor x;
  std::int64_t root = 0;
  std::vector<std::int64_t> send_counts = {};
};
// What it gets back: a tensor, and from an exchange the receive counts.
using Answer = reference::Result;

// What one rank passes when it asks for the gradient of a call, and what it knows of that call.
struct GradientCall {
  Call forward;   // what this rank passed
  Answer result;  // what it got back
  std::optional<Tensor> upstream;  // of a floating dtype; nothing where its loss uses no result
};

// What the ranks of one communicator passed to the latest call. A rank can be at most one call
// ahead of another, so two sets of places are enough for nobody to overwrite what somebody still
// reads.
class Board {
 public:
  explicit Board(std::size_t ranks) { calls_.fill(std::vector<Call>(ranks)); }

  void post(int rank, std::uint64_t number, Call call) {
    calls_[number % 2][static_cast<std::size_t>(rank)] = std::move(call);
  }
  std::span<const Call> posted(std::uint64_t number) const { return calls_[number % 2]; }

 private:
  std::array<std::vector<Call>, 2> calls_;
};

// The boards of one world: its own, and one for each list of ranks that is a group. A group of the
// whole world is still another communicator than the world.
class Boards {
 public:
  std::shared_ptr<Board> of(bool is_world, const std::vector<int>& ranks);

 private:
  std::mutex mutex_;
  std::map<std::pair<bool, std::vector<int>>, std::shared_ptr<Board>> boards_;
};

// The kit's timeout for one case at a time. A real hang cannot be ended within a process, so the
// ranks that would wait for ever wait for this instead.
class Patience {
 public:
  explicit Patience(std::chrono::milliseconds limit) : limit_(limit) {}

  void begin_case();
  // Sleeps until the time of the case is up, then throws an Error that says so.
  [[noreturn]] void exhaust();
  // Whether a rank of the latest case had to be released.
  bool exhausted() const;

 private:
  using Clock = std::chrono::steady_clock;
  const std::chrono::milliseconds limit_;
  mutable std::mutex mutex_;
  Clock::time_point deadline_{};
  bool exhausted_ = false;
};

class Rank {
 public:
  // What was there before the present call.
  struct Memory {
    std::uint64_t calls = 0;
    bool breached = false;  // the latest call broke the contract
    bool lost = false;      // a call met with a missing peer
    Call call;              // the latest one that gave an answer, and its answer
    std::optional<Answer> answer;
    std::optional<Tensor> gradient;  // the latest one that was given
  };

  // A rank of a world, or of a group in it. `everywhere` is shared by its communicators.
  Rank(sim::Communicator right, bool is_world, std::vector<int> world_ranks, SumRule rule,
       std::shared_ptr<Boards> boards, std::shared_ptr<Memory> everywhere, Patience& patience);

  int rank() const { return right_.rank(); }
  int size() const { return right_.world_size(); }
  bool last() const { return rank() == size() - 1; }
  // The world ranks of the communicator, in its order; and the caller's own.
  const std::vector<int>& world_ranks() const { return world_ranks_; }
  int world_rank() const { return world_ranks_[static_cast<std::size_t>(rank())]; }
  bool is_world() const { return is_world_; }

  // Makes the call as it should be made. Throws what the contract says.
  Answer right(const Call& call);
  // What every rank passed to the call that right() has just completed.
  std::span<const Call> everybody() const { return board_->posted(rights_ - 1); }
  // What this rank would get if everybody had passed these, which must fit the contract.
  Answer had_they_passed(std::span<const Call> calls, SumRule rule) const;
  Answer had_they_passed(std::span<const Call> calls) const {
    return had_they_passed(calls, rule_);
  }

  // The gradient as it should be. Throws what the contract says.
  Tensor right_gradient(const GradientCall& call);
  // The first part of it alone: everybody has an upstream like its result, zeros where there is
  // none; or everybody throws.
  Tensor agreed_upstream(const GradientCall& call);
  // What everybody passes, by rank: entered by all, with tensors of one type.
  std::vector<Tensor> everybodys(const Tensor& x);
  // Any integers of each rank, told to all; and does any rank say so? Entered by all.
  std::vector<std::vector<std::int64_t>> tell_all(std::span<const std::int64_t> integers);
  bool anybody(bool says);

  // On this communicator, and on all communicators of this rank together.
  const Memory& here() const { return here_; }
  const Memory& everywhere() const { return *everywhere_; }

  // Never returns, as far as the caller can tell.
  [[noreturn]] void hang() { patience_.exhaust(); }

  // A sub-communicator of these ranks of the world.
  std::shared_ptr<Rank> group(const std::vector<int>& ranks) const;

  void remember(const Call& call, const Answer& answer);
  void remember_gradient(const Tensor& gradient);
  void remember_breach();
  void remember_loss();

  const sim::Communicator& communicator() const { return right_; }

 private:
  sim::Communicator right_;
  bool is_world_;
  std::vector<int> world_ranks_;
  SumRule rule_;
  std::shared_ptr<Boards> boards_;
  std::shared_ptr<Board> board_;
  std::uint64_t rights_ = 0;  // calls of right() so far
  bool finished_ = false;     // one met with a missing peer
  Memory here_;
  std::shared_ptr<Memory> everywhere_;
  Patience& patience_;
};

}  // namespace lockstep::zoo
