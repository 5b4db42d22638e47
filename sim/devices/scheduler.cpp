// Which work runs next.

#include <algorithm>

#include "state.hpp"

namespace lockstep::devices {

bool& inside_host_function() {
  thread_local bool inside = false;
  return inside;
}

bool Engine::in_host_function() const {
  return inside_host_function();
}

void Engine::State::moved() {
  ++generation;
  last_progress = std::chrono::steady_clock::now();
  changed.notify_all();
}

void Engine::State::learn(const NodeRef& node) {
  learn(node->clock);
}

void Engine::State::learn(const Clock& clock) {
  host.join(clock);
  guard.release(host);
  std::erase_if(deliveries, [&](const Delivery& delivery) { return host.covers(delivery.moment); });
}

void Engine::State::look_at_the_end() {
  check_order_of_the_rest();
  for (const Delivery& delivery : deliveries) {
    find_fault(
        "never-awaited", delivery.call, delivery.stream.get(), delivery.stream->device,
        "the program ends, and nobody has waited for the work that writes " + delivery.range + ".",
        {},
        "Synchronize the stream, or an event recorded after it, before the result is "
        "used.");
  }
}

void Engine::State::finish(const NodeRef& node) {
  Stream& stream = *node->stream;
  node->state = Node::State::done;
  node->finished = std::chrono::steady_clock::now();
  node->dependencies.clear();
  // Also when it failed: that was reported, and that its results are missing follows from it.
  complete_accesses(*node);
  node->accesses.clear();
  node->homes.clear();
  node->work.reset();
  stream.clock = node->clock;
  if (stream.pending.front() == node) {
    stream.pending.pop_front();
  } else {
    std::erase(stream.pending, node);
  }
  --unfinished;
  if (stream.destroyed && stream.pending.empty()) forget_if_idle(node->stream);
  moved();
}

void Engine::State::give_up(const NodeRef& node, const std::string& reason, Status error) {
  if (node->state == Node::State::done) return;
  node->failed = true;
  Status& kept = devices[static_cast<std::size_t>(node->stream->device)].error;
  if (kept == Status::success) kept = error;
  if (!node->had_turn) {
    node->clock.join(node->stream->clock);
    node->clock.add(node->moment);
  }
  if (node->work) node->work->abandon(reason);
  if (node->state != Node::State::done) finish(node);
}

// Gives the oldest work of a stream its turn. True if anything happened: it is done, or it is
// blocked and had not had its turn before.
bool Engine::State::run_front(Lock& lock, const NodeRef& front) {
  const bool first = !front->had_turn;
  if (first) {
    front->clock.join(front->stream->clock);
    for (const NodeRef& dependency : front->dependencies) front->clock.join(dependency->clock);
    front->clock.add(front->moment);
    front->had_turn = true;
    if (!admit(*front)) {
      give_up(front, "the memory that it needs is gone", Status::illegal_address);
      return true;
    }
  }
  if (front->work == nullptr) {
    finish(front);
    return true;
  }
  if (front->work->tells_host()) {
    learn(front);  // the function may look at what came before
    front->state = Node::State::running;
    ++running;
    host_functions.push_back(front);
    host_functions_wake.notify_one();
    return true;
  }
  if (front->work->unlocked()) {
    front->state = Node::State::running;
    ++running;
    lock.unlock();
    front->work->advance();
    lock.lock();
    --running;
    finish(front);
    return true;
  }
  if (front->work->advance() == Progress::done) {
    if (front->state != Node::State::done) finish(front);
    return true;
  }
  return first;
}

bool Engine::State::pass(Lock& lock, const NodeRef& goal, int limit) {
  // Goals on the way: each is needed by the one below it. A goal whose oldest needed work is
  // blocked or runs elsewhere leads nowhere in this pass; those that need it neither.
  std::vector<NodeRef> goals = {goal};
  std::unordered_set<Node*> nowhere;
  bool progressed = false;
  while (!goals.empty() && limit > 0) {
    const NodeRef aim = goals.back();
    if (aim->state == Node::State::done) {
      goals.pop_back();
      continue;
    }
    const NodeRef front = aim->stream->pending.front();
    const auto dead_end = [&] {
      nowhere.insert(aim.get());
      nowhere.insert(front.get());
      goals.pop_back();
    };
    if (nowhere.contains(front.get()) || nowhere.contains(aim.get()) ||
        front->state == Node::State::running) {
      dead_end();
      continue;
    }
    const auto needed = std::find_if(
        front->dependencies.begin(), front->dependencies.end(),
        [](const NodeRef& dependency) { return dependency->state != Node::State::done; });
    if (needed != front->dependencies.end()) {
      if (nowhere.contains(needed->get())) {
        dead_end();
      } else {
        goals.push_back(*needed);
      }
      continue;
    }
    if (run_front(lock, front)) {
      progressed = true;
      --limit;
    }
    if (front->state == Node::State::done) continue;
    if (front->state == Node::State::running) {
      dead_end();
      continue;
    }
    // Blocked: its peers' turns have to come. Those on the way already are among the goals.
    nowhere.insert(front.get());
    for (const NodeRef& wanted : front->work->wants()) {
      if (wanted && wanted->state != Node::State::done && !nowhere.contains(wanted.get())) {
        goals.push_back(wanted);
      }
    }
  }
  return progressed;
}

bool Engine::State::run_all(Lock& lock) {
  bool progressed = false;
  for (bool again = true; again;) {
    again = false;
    std::vector<NodeRef> fronts;
    for (const Device& device : devices) {
      for (const StreamRef& stream : device.streams) {
        if (!stream->pending.empty()) fronts.push_back(stream->pending.front());
      }
    }
    for (const NodeRef& front : fronts) again = pass(lock, front, 1) || again;
    progressed = progressed || again;
  }
  return progressed;
}

bool Engine::drive(Lock& lock, const NodeRef& node) {
  bool progressed = false;
  while (node->state != Node::State::done && state_->pass(lock, node, 1 << 30)) progressed = true;
  return progressed;
}

void Engine::stir(Lock& lock) {
  State& state = *state_;
  if (state.options.seed == 0 || state.unfinished == 0) return;
  if (inside_host_function()) return;
  std::uniform_real_distribution<double> chance(0, 1);
  if (chance(state.random) >= state.eagerness) return;
  std::vector<NodeRef> ends;
  for (const Device& device : state.devices) {
    for (const StreamRef& stream : device.streams) {
      if (!stream->pending.empty()) ends.push_back(stream->pending.back());
    }
  }
  std::shuffle(ends.begin(), ends.end(), state.random);
  int steps = std::uniform_int_distribution<int>(1, 8)(state.random);
  for (const NodeRef& end : ends) {
    for (; steps > 0 && state.pass(lock, end, 1); --steps) {
    }
  }
}

void Engine::meet(const std::vector<NodeRef>& nodes) {
  Clock all;
  for (const NodeRef& node : nodes) all.join(node->clock);
  for (const NodeRef& node : nodes) node->clock.join(all);
}

}  // namespace lockstep::devices
