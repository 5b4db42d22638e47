#include <lockstep/mpi/environment.hpp>

#include <algorithm>

#include <lockstep/error.hpp>

#include "check.hpp"
#include "runtime.hpp"

namespace lockstep::mpi {
namespace {

// How long the end of a program waits for peers that may be a little behind.
constexpr std::chrono::seconds farewell_limit{5};

bool finalized() {
  int flag = 0;
  return MPI_Finalized(&flag) != MPI_SUCCESS || flag != 0;
}

}  // namespace

Runtime::Runtime() {
  int initialized = 0;
  int provided = MPI_THREAD_SINGLE;
  check(MPI_Initialized(&initialized), "MPI_Initialized");
  if (initialized == 0) {
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
    ours_ = true;
  } else {
    check(MPI_Query_thread(&provided), "MPI_Query_thread");
  }
  if (provided < MPI_THREAD_SERIALIZED) {
    if (ours_) MPI_Finalize();
    throw TransportError(
        "this MPI lets only the main thread use it; MPI_THREAD_SERIALIZED is needed", {});
  }
  one_thread_ = provided < MPI_THREAD_MULTIPLE;
}

void Runtime::adopt(std::shared_ptr<Link> link) {
  std::lock_guard lock(mutex_);
  close_settled();
  links_.push_back(std::move(link));
}

void Runtime::leave(Link& link) noexcept {
  std::lock_guard lock(mutex_);
  if (open_ && !finalized()) link.leave();
}

void Runtime::close_settled() {
  std::erase_if(links_, [](const std::shared_ptr<Link>& link) {
    if (!link->has_left() || !link->settled() || !link->idle()) return false;
    link->close();
    return true;
  });
}

void Runtime::shut_down() noexcept {
  std::lock_guard lock(mutex_);
  open_ = false;
  if (finalized()) return;
  for (const std::shared_ptr<Link>& link : links_) link->leave();
  const auto unsettled = [&] {
    return std::ranges::any_of(links_, [](const auto& link) { return !link->settled(); });
  };
  Patience patience(farewell_limit);
  while (unsettled() && patience.pause()) {
  }
  close_settled();
  const bool stuck = std::ranges::any_of(
      links_, [](const auto& link) { return link->has_failed() && !link->settled(); });
  // MPI may still write into the buffers of what has not settled: they are never freed.
  for (std::shared_ptr<Link>& link : links_) new std::shared_ptr<Link>(std::move(link));
  links_.clear();
  if (ours_ && !stuck) MPI_Finalize();
}

Environment::Environment() : runtime_(std::make_shared<Runtime>()) {}
Environment::~Environment() {
  runtime_->shut_down();
}

}  // namespace lockstep::mpi
