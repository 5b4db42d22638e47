// Threads that wait, and what is done when nothing can come any more.
//
// A waiting thread runs what it needs by itself. When there is nothing left that it could run it
// sleeps until something changes, and looks around a few times a second. If then every thread of
// the process waits in the engine, or sleeps until another thread wakes it, all work that can run
// at all is run: one of them may be woken by it. If that changes nothing either, nothing ever will:
// the waiting is reported and what is blocked is abandoned. Where threads are still busy with
// something else, or where another process may help, the same follows when nothing happened for the
// timeout.

#include <algorithm>
#include <thread>

#include "census.hpp"
#include "state.hpp"
#include "text.hpp"

namespace lockstep::devices {
namespace {

using namespace std::chrono_literals;

constexpr auto look_around = 20ms;
constexpr int quiet_looks = 4;  // so often in a row before anything follows from it
constexpr auto helper_looks_around = 5ms;
// With threads busy elsewhere, after how long works run though nobody asks for them.
constexpr auto patience = 1000ms;

class Waiting {
 public:
  Waiting(std::vector<Waiter*>& waiters, Waiter& waiter) : waiters_(waiters), waiter_(waiter) {
    waiter_.thread = thread_id();
    waiters_.push_back(&waiter_);
  }
  ~Waiting() { std::erase(waiters_, &waiter_); }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  std::vector<Waiter*>& waiters_;
  Waiter& waiter_;
};

// The works that stand in the way of `node`: blocked ones, at the fronts of streams.
void blocked_before(const NodeRef& node, std::vector<NodeRef>& found,
                    std::unordered_set<const Node*>& seen) {
  std::vector<NodeRef> left = {node};
  while (!left.empty()) {
    const NodeRef next = left.back();
    left.pop_back();
    if (next->state == Node::State::done || !seen.insert(next.get()).second) continue;
    if (const NodeRef front = next->stream->pending.front(); front != next) {
      left.push_back(front);
      continue;
    }
    if (next->had_turn) found.push_back(next);
    for (const NodeRef& dependency : next->dependencies) left.push_back(dependency);
    if (next->had_turn && next->work) {
      for (const NodeRef& wanted : next->work->wants()) {
        if (wanted) left.push_back(wanted);
      }
    }
  }
}

}  // namespace

std::string Engine::State::describe(const Waiter& waiter) const {
  std::string line = "thread " + std::to_string(waiter.thread) + " is in " + waiter.call.function;
  if (!waiter.call.rank.empty()) line += " of " + waiter.call.rank;
  return line + " and waits for " + (waiter.node ? text(*waiter.node) : (*waiter.awaited)());
}

// A host function may take its time, but not for ever. It cannot be given up: it is in the middle
// of the program's own code.
void Engine::State::end_in_host_function(std::chrono::seconds quiet) {
  for (const Device& device : devices) {
    for (const StreamRef& stream : device.streams) {
      if (stream->pending.empty()) continue;
      const NodeRef& front = stream->pending.front();
      if (front->state != Node::State::running || !front->work || !front->work->tells_host())
        continue;
      std::vector<std::string> details;
      for (const Waiter* waiter : waiters) details.push_back(describe(*waiter));
      find_fault(
          "never-completes", front->call, stream.get(), stream->device,
          "the function has not returned for " + std::to_string(quiet.count()) +
              " seconds (LOCKSTEP_SIM_TIMEOUT), and others wait for it. The program ends here.",
          std::move(details),
          "A host function must not wait for a thread that waits for its stream. On real "
          "devices this hangs.");
      end_with_findings();
    }
  }
}

void Engine::State::settle_if_stuck(Lock& lock, std::uint64_t seen) {
  // One of those who wait is enough.
  if (generation != seen || waiters.front()->thread != thread_id()) return;
  const auto quiet = std::chrono::steady_clock::now() - last_progress;
  if (running > 0) {
    if (quiet >= options.timeout) {
      end_in_host_function(std::chrono::duration_cast<std::chrono::seconds>(quiet));
    }
    return;
  }
  std::vector<int> waiting;
  bool others = false;
  for (const Waiter* waiter : waiters) {
    waiting.push_back(waiter->thread);
    if (waiter->awaited != nullptr) others = others || waiter->others;
  }
  const bool all_asleep = others_idle(waiting) == Idleness::asleep;
  if (entering > 0) return;  // it looked asleep, but waits only for this to be over
  if (all_asleep || quiet > patience) {
    if (run_all(lock)) return;
  }
  if (generation != seen || running > 0) return;

  std::vector<NodeRef> blocked;
  std::unordered_set<const Node*> visited;
  for (const Waiter* waiter : waiters) {
    if (waiter->node) blocked_before(waiter->node, blocked, visited);
  }
  for (const NodeRef& node : blocked) {
    others = others || (node->work && node->work->awaits_others());
  }
  if (quiet < options.timeout && (!all_asleep || others)) return;

  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(quiet).count();
  Finding finding;
  finding.rule = "never-completes";
  finding.call = waiters.front()->call;
  if (waiters.front()->node) {
    finding.device = waiters.front()->node->stream->device;
    finding.stream = text(*waiters.front()->node->stream);
  }
  finding.what = all_asleep && !others
                     ? "every thread of the process waits, and nothing can come any more."
                     : "nothing has happened for " + std::to_string(seconds) +
                           " seconds (LOCKSTEP_SIM_TIMEOUT).";
  for (const Waiter* waiter : waiters) finding.details.push_back(describe(*waiter));
  for (const NodeRef& node : blocked) {
    std::string awaited = node->work ? node->work->awaited() : "";
    finding.details.push_back(text(*node) + " waits for " +
                              (awaited.empty() ? "something unknown" : awaited));
  }
  finding.advice =
      "Let every rank make the same calls in the same order, and put the calls that one thread "
      "makes "
      "for several ranks into one group. On real devices this hangs.";
  const bool told =
      !blocked.empty() && std::all_of(blocked.begin(), blocked.end(), [](const NodeRef& node) {
        return node->work && node->work->told();
      });
  if (!told) report(finding);

  for (Waiter* waiter : waiters) {
    if (!waiter->node) waiter->given_up = true;
  }
  for (const NodeRef& node : blocked) {
    give_up(node, "it could never complete", Status::launch_failure);
  }
  moved();
}

Status Engine::wait(Lock& lock, const NodeRef& node, const Call& call) {
  State& state = *state_;
  if (node == nullptr) return Status::success;
  if (inside_host_function()) return Status::not_permitted;
  if (node->state != Node::State::done) {
    Waiter waiter{call, node};
    const Waiting waiting(state.waiters, waiter);
    for (int looks = 0; node->state != Node::State::done;) {
      if (state.pass(lock, node, 1 << 30)) {
        looks = 0;
        continue;
      }
      if (node->state == Node::State::done) break;
      const std::uint64_t seen = state.generation;
      if (state.changed.wait_for(lock, look_around, [&] { return state.generation != seen; })) {
        looks = 0;
      } else if (++looks >= quiet_looks) {
        state.settle_if_stuck(lock, seen);
      }
    }
  }
  state.learn(node);
  const Status error = state.devices[static_cast<std::size_t>(node->stream->device)].error;
  return error != Status::success ? error : node->failed ? Status::launch_failure : Status::success;
}

bool Engine::wait_until(Lock& lock, const Call& call, const std::function<bool()>& ready,
                        const std::function<std::string()>& awaited, bool others) {
  State& state = *state_;
  Waiter waiter{call, nullptr, &awaited, others};
  const Waiting waiting(state.waiters, waiter);
  for (int looks = 0; !waiter.given_up;) {
    if (ready()) return true;
    const std::uint64_t seen = state.generation;
    if (state.changed.wait_for(lock, look_around, [&] { return state.generation != seen; })) {
      looks = 0;
    } else if (++looks >= quiet_looks) {
      state.settle_if_stuck(lock, seen);
    }
  }
  return false;
}

void Engine::wake(Lock&) {
  state_->moved();
}

bool Engine::done(const NodeRef& node) const {
  return node == nullptr || node->state == Node::State::done;
}

NodeRef Engine::last(Lock&, const StreamRef& stream) const {
  return stream->pending.empty() ? nullptr : stream->pending.back();
}

Status Engine::query(Lock& lock, const NodeRef& node) {
  State& state = *state_;
  if (node == nullptr || node->state == Node::State::done) {
    if (node != nullptr) state.learn(node);
    return Status::success;
  }
  if (inside_host_function()) return Status::not_permitted;
  // Not ready at first; then one work nearer with every poll, and with luck two.
  const auto now = std::chrono::steady_clock::now();
  if (node->polls == 0) node->polled_since = now;
  if (node->polls++ >= state.refusals) state.pass(lock, node, 1);
  // A program that polls for ever hangs as much as one that waits.
  if (node->state != Node::State::done &&
      now - std::max(node->polled_since, state.last_progress) > state.options.timeout) {
    Waiter waiter{{"cudaStreamQuery or cudaEventQuery"}, node};
    const Waiting waiting(state.waiters, waiter);
    state.settle_if_stuck(lock, state.generation);
  }
  if (node->state != Node::State::done) return Status::not_ready;
  state.learn(node);
  return state.devices[static_cast<std::size_t>(node->stream->device)].error;
}

void Engine::exempt_this_thread() {
  exempt_thread(thread_id());
}

// The thread that runs works when the program waits in a way that the engine cannot see.
void Engine::State::help() {
  exempt_thread(thread_id());
  Lock lock(mutex);
  std::uint64_t seen = 0;
  int looks = 0;
  // When it last ran everything in vain. That is no progress: polls count from the last real one.
  std::chrono::steady_clock::time_point in_vain = {};
  while (true) {
    if (unfinished == 0 && looks > 100 * quiet_looks) {
      helper_sleeps = true;
      helper_wakes.wait(lock, [this] { return !helper_sleeps; });
    }
    lock.unlock();
    std::this_thread::sleep_for(helper_looks_around);
    lock.lock();
    looks = generation == seen ? looks + 1 : 0;
    seen = generation;
    if (looks < quiet_looks || unfinished == 0 || !waiters.empty() || running > 0) continue;
    const auto quiet = std::chrono::steady_clock::now() - std::max(last_progress, in_vain);
    if (quiet < patience && others_idle({}) != Idleness::asleep) continue;
    if (entering > 0) continue;  // it looked asleep, but waits only for the helper
    std::vector<StreamRef> busy;
    for (const Device& device : devices) {
      for (const StreamRef& stream : device.streams) {
        if (!stream->pending.empty()) busy.push_back(stream);
      }
    }
    run_all(lock);
    // The program may see what was done, by whatever means it waits.
    for (const StreamRef& stream : busy) learn(stream->clock);
    if (generation == seen) in_vain = std::chrono::steady_clock::now();
  }
}

// Host functions run on a thread of their own, like on a real device: the thread that waits may
// hold what they need.
void Engine::State::serve_host_functions() {
  exempt_thread(thread_id());
  inside_host_function() = true;
  Lock lock(mutex);
  while (true) {
    host_functions_wake.wait(lock, [this] { return !host_functions.empty(); });
    const NodeRef node = host_functions.front();
    host_functions.pop_front();
    lock.unlock();
    node->work->advance();
    lock.lock();
    --running;
    finish(node);
  }
}

void Engine::State::start_threads() {
  if (threads_started) return;
  threads_started = true;
#if defined(LOCKSTEP_THREAD_SANITIZER)
  const std::vector<int> before = threads_of_process();
#endif
  std::thread([this] { help(); }).detach();
  std::thread([this] { serve_host_functions(); }).detach();
#if defined(LOCKSTEP_THREAD_SANITIZER)
  exempt_others_than(before);  // ours, and the one of the sanitizer, which starts with the first
#endif
}

}  // namespace lockstep::devices
