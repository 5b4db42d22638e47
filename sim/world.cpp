#include <lockstep/sim/world.hpp>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <numeric>
#include <thread>

#include "rendezvous.hpp"

namespace lockstep::sim {
namespace {

void require_ranks(int ranks) {
  if (ranks < 1) {
    throw InvalidArgument("a world of " + std::to_string(ranks) +
                          " ranks: a world has at least one rank");
  }
}

std::vector<std::shared_ptr<Seat>> seat_world(int ranks, const Options& options) {
  auto census = std::make_shared<Census>(ranks);
  std::vector<int> members(static_cast<std::size_t>(ranks));
  std::iota(members.begin(), members.end(), 0);
  auto rendezvous = std::make_shared<Rendezvous>(census, "world", std::move(members), options);
  census->enroll(rendezvous);
  std::vector<std::shared_ptr<Seat>> seats;
  for (int rank = 0; rank < ranks; ++rank) {
    // The last handle on a world communicator is the last but for those made from it, and dropping
    // all of them is leaving the world: see ~Rank.
    seats.push_back(
        std::make_shared<Seat>(rendezvous, rank, std::make_shared<Rank>(census, rank), true));
  }
  return seats;
}

std::string text_of(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an exception that is no std::exception";
  }
}

}  // namespace

// The rank threads. They sleep between runs; a run hands each its communicator.
struct World::Threads {
  Threads(int ranks, Options options_) : options(options_) {
    workers.reserve(static_cast<std::size_t>(ranks));
    try {
      for (int rank = 0; rank < ranks; ++rank) workers.emplace_back([this, rank] { work(rank); });
    } catch (...) {
      stop();  // the system has no more threads: let go of those that it gave
      throw;
    }
  }
  ~Threads() { stop(); }

  void stop() {
    {
      std::lock_guard lock(mutex);
      stopping = true;
    }
    wake_workers.notify_all();
    for (std::thread& worker : workers) worker.join();
  }

  void work(int rank) {
    for (std::uint64_t seen = 0;;) {
      std::shared_ptr<Seat> seat;
      {
        std::unique_lock lock(mutex);
        wake_workers.wait(lock, [&] { return stopping || run_number != seen; });
        if (stopping) return;
        seen = run_number;
        seat = std::move(seats[static_cast<std::size_t>(rank)]);
      }
      play(rank, seat);
      seat.reset();
      std::lock_guard lock(mutex);
      if (--unfinished == 0) wake_caller.notify_one();
    }
  }

  // One rank's part of one run.
  void play(int rank, const std::shared_ptr<Seat>& seat) {
    // `seat` outlives the body, so that peers hear that the rank returned or threw, and not merely
    // that it dropped its communicator.
    Census& census = *seat->who->census;
    try {
      (*body)(Communicator(seat));
      census.leave(rank, "returned");
    } catch (...) {
      RankFailure failure{rank, std::current_exception(), text_of(std::current_exception())};
      const std::string how = "threw \"" + failure.text + "\"";
      {
        // Before the peers hear of it, so that their errors come after this one.
        std::lock_guard lock(mutex);
        failures.push_back(std::move(failure));
      }
      census.leave(rank, how);
    }
  }

  void run(const std::function<void(Communicator)>& body_) {
    std::unique_lock lock(mutex);
    if (unfinished > 0) {
      throw InvalidArgument(
          "World::run called while the world is running; a world runs one body "
          "at a time, and a rank cannot start another on its own world");
    }
    failures.clear();
    body = &body_;
    seats = seat_world(static_cast<int>(workers.size()), options);
    unfinished = workers.size();
    ++run_number;
    wake_workers.notify_all();
    wake_caller.wait(lock, [&] { return unfinished == 0; });
    if (failures.empty()) return;

    const std::exception_ptr first = failures.front().exception;
    lock.unlock();
    try {
      std::rethrow_exception(first);
    } catch (Error& error) {
      attach_others(error);
      throw;
    }
  }

  void attach_others(Error& first) {
    const std::string text = failures.front().text;
    std::vector<int> alike;
    for (std::size_t i = 1; i < failures.size(); ++i) {
      if (failures[i].text == text) alike.push_back(failures[i].rank);
    }
    first.attach("(rank " + std::to_string(failures.front().rank) + " failed first)");
    if (!alike.empty()) {
      std::ranges::sort(alike);
      first.attach("the same on " + rank_list(alike));
    }
    for (std::size_t i = 1; i < failures.size(); ++i) {
      if (failures[i].text == text) continue;
      // The first line says what happened; tables of who waits where would only be repeated.
      first.attach("rank " + std::to_string(failures[i].rank) + ": " +
                   failures[i].text.substr(0, failures[i].text.find('\n')));
    }
  }

  const Options options;
  std::vector<std::thread> workers;

  std::mutex mutex;
  std::condition_variable wake_workers;
  std::condition_variable wake_caller;
  bool stopping = false;
  std::uint64_t run_number = 0;
  std::size_t unfinished = 0;
  const std::function<void(Communicator)>* body = nullptr;
  std::vector<std::shared_ptr<Seat>> seats;
  std::vector<RankFailure> failures;  // in the order in which ranks failed
};

World::World(int ranks, Options options) {
  require_ranks(ranks);
  threads_ = std::make_unique<Threads>(ranks, options);
}

World::~World() = default;

int World::size() const {
  return static_cast<int>(threads_->workers.size());
}

const std::vector<RankFailure>& World::failures() const {
  return threads_->failures;
}

void World::run_ranks(const std::function<void(Communicator)>& body) {
  threads_->run(body);
}

std::vector<Communicator> make_communicators(int ranks, Options options) {
  require_ranks(ranks);
  std::vector<Communicator> communicators;
  for (std::shared_ptr<Seat>& seat : seat_world(ranks, options)) {
    communicators.emplace_back(std::move(seat));
  }
  return communicators;
}

}  // namespace lockstep::sim
