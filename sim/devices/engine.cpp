// Devices, streams and events.

#include "engine.hpp"

#include <algorithm>
#include <thread>

#include "../brief_mutex.hpp"
#include "fault.hpp"
#include "state.hpp"
#include "text.hpp"

namespace lockstep::devices {
namespace {

// Handles are numbers in a part of the addresses where nothing is ever mapped, never used twice.
constexpr std::uintptr_t stream_handles = 0x5700'0000'0000'0000;
constexpr std::uintptr_t event_handles = 0x5600'0000'0000'0000;
constexpr std::uintptr_t handle_step = 64;

void* make_handle(std::uintptr_t family, std::uint64_t number) {
  return reinterpret_cast<void*>(family + handle_step * number);
}

bool was_handle(void* handle, std::uintptr_t family, std::uint64_t made) {
  const auto value = reinterpret_cast<std::uintptr_t>(handle);
  return value > family && value <= family + handle_step * made;
}

// The runtime's names for default streams.
constexpr std::uintptr_t legacy_handle = 1;
constexpr std::uintptr_t per_thread_handle = 2;

thread_local int current = 0;

// Default streams of the calling thread, by device; destroyed with the thread.
struct ThreadStreams {
  std::vector<StreamRef> streams;

  ~ThreadStreams() {
    for (const StreamRef& stream : streams) {
      if (stream) Engine::instance().retire_stream(stream);
    }
  }
};
thread_local ThreadStreams thread_streams;

}  // namespace

Engine::State::State()
    : options(read_options()),
      devices(static_cast<std::size_t>(options.devices)),
      memory(options.devices, options.memory) {
  choose_poison(options.seed);
  watch_faults();
  at_the_very_end([] {
    State& state = *Engine::instance().state_;
    // The helper holds the lock now and then for a moment. A thread that was in the engine when the
    // process began to end may hold it for ever: then nothing can be said.
    if (const std::optional<Lock> held = state.lock_in_time()) state.look_at_the_end();
  });
  for (int device = 0; device < options.devices; ++device) {
    devices[static_cast<std::size_t>(device)].legacy = make_stream(Stream::Kind::legacy, device, 0);
  }
  if (options.seed != 0) {
    random.seed(options.seed);
    // From nearly as late as possible to nearly as early.
    constexpr double choices[] = {0.05, 0.25, 0.5, 1.0};
    eagerness = choices[std::uniform_int_distribution<int>(0, 3)(random)];
    refusals = std::uniform_int_distribution<int>(0, 4)(random);
  }
}

std::optional<Lock> Engine::State::lock_in_time() {
  for (int tries = 0; tries < 2000; ++tries) {
    Lock held(mutex, std::try_to_lock);
    if (held.owns_lock()) return held;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return std::nullopt;
}

Engine::Engine() : state_(std::make_unique<State>()) {}

Engine& Engine::instance() {
  static Engine& engine = *new Engine;
  return engine;
}

const Options& Engine::options() const {
  return state_->options;
}

Lock Engine::lock() {
  // Whoever sleeps here while the mutex is taken is not stuck; see settle_if_stuck().
  state_->entering.fetch_add(1);
  sim::lock_brief(state_->mutex);
  state_->entering.fetch_sub(1);
  return Lock(state_->mutex, std::adopt_lock);
}

int Engine::device_count() const {
  return state_->options.devices;
}

int Engine::current_device() const {
  return current;
}

Status Engine::set_device(int device) {
  if (device < 0 || device >= device_count()) return Status::invalid_device;
  current = device;
  return Status::success;
}

Status Engine::device_error(int device) {
  const Lock held = lock();
  return state_->devices[static_cast<std::size_t>(device)].error;
}

Status Engine::enable_peer(int device, int peer) {
  const Lock held = lock();
  return state_->devices[static_cast<std::size_t>(device)].peers.insert(peer).second
             ? Status::success
             : Status::invalid_value;
}

Status Engine::disable_peer(int device, int peer) {
  const Lock held = lock();
  return state_->devices[static_cast<std::size_t>(device)].peers.erase(peer) != 0
             ? Status::success
             : Status::invalid_value;
}

// --- streams

StreamRef Engine::State::make_stream(Stream::Kind kind, int device, int priority) {
  auto stream = std::make_shared<Stream>(Stream{kind, device, priority});
  // A slot of a stream that is gone is taken over when the host knows that its works are done, and
  // so every work of the new stream comes after them.
  auto slot = std::find_if(free_slots.begin(), free_slots.end(), [&](const auto& free) {
    return host.covers({free.first, free.second});
  });
  // Works that nobody waited for keep their slots, but clocks must not grow for ever: after many
  // other streams came and went, the host is taken to know of them.
  constexpr std::size_t most_unknown = 64;
  if (slot == free_slots.end() && free_slots.size() > most_unknown) {
    slot = std::find_if(free_slots.begin(), free_slots.end(), [&](const auto& free) {
      return std::none_of(deliveries.begin(), deliveries.end(), [&](const Delivery& delivery) {
        return delivery.moment.slot == free.first;
      });
    });
    if (slot != free_slots.end()) host.add({slot->first, slot->second});
  }
  if (slot != free_slots.end()) {
    stream->slot = slot->first;
    stream->time = slot->second;
    free_slots.erase(slot);
  } else {
    stream->slot = slots++;
  }
  devices[static_cast<std::size_t>(device)].streams.push_back(stream);
  return stream;
}

void Engine::State::forget_if_idle(const StreamRef& stream) {
  if (!stream->pending.empty()) return;
  std::erase(devices[static_cast<std::size_t>(stream->device)].streams, stream);
  free_slots.emplace_back(stream->slot, stream->time);
  stream->latest = nullptr;
}

StreamRef Engine::State::per_thread(int device) {
  auto& streams = thread_streams.streams;
  const auto index = static_cast<std::size_t>(device);
  if (streams.size() <= index) streams.resize(devices.size());
  if (!streams[index]) streams[index] = make_stream(Stream::Kind::per_thread, device, 0);
  return streams[index];
}

void* Engine::create_stream(int device, bool blocking, int priority) {
  const Lock held = lock();
  const StreamRef stream = state_->make_stream(
      blocking ? Stream::Kind::blocking : Stream::Kind::non_blocking, device, priority);
  stream->number = ++state_->streams_made;
  stream->handle = make_handle(stream_handles, stream->number);
  state_->streams.emplace(stream->handle, stream);
  return stream->handle;
}

StreamRef Engine::find_stream(void* handle, DefaultStream flavour, const Call* call) {
  const Lock held = lock();
  const auto value = reinterpret_cast<std::uintptr_t>(handle);
  if (value == per_thread_handle || (value == 0 && flavour == DefaultStream::per_thread)) {
    return state_->per_thread(current);
  }
  if (value == legacy_handle || value == 0) {
    return state_->devices[static_cast<std::size_t>(current)].legacy;
  }
  const auto found = state_->streams.find(handle);
  if (found != state_->streams.end()) return found->second;
  if (call != nullptr) {
    const bool destroyed = was_handle(handle, stream_handles, state_->streams_made);
    state_->find_fault(destroyed ? "use-after-destroy" : "not-a-stream", *call, nullptr, current,
                       destroyed ? "its stream was destroyed before."
                                 : "its stream argument is no stream: " + address_text(value) + ".",
                       {}, "Pass a stream that cudaStreamCreate made and that still lives.");
  }
  return nullptr;
}

Status Engine::destroy_stream(void* handle, const Call& call) {
  const StreamRef stream = find_stream(handle, DefaultStream::legacy, &call);
  if (!stream || stream->handle == nullptr) return Status::invalid_handle;
  retire_stream(stream);
  return Status::success;
}

void Engine::retire_stream(const StreamRef& stream) {
  Lock held = lock();
  state_->streams.erase(stream->handle);
  stream->destroyed = true;
  state_->forget_if_idle(stream);
  if (stream->pending.empty() || inside_host_function()) return;
  // Nobody may ever ask for the rest. It is run late, but it must not pile up.
  constexpr std::size_t most_left = 16;
  constexpr int at_once = 4;  // more than one comes per call, less than a call has time for
  auto& left = state_->left_behind;
  left.push_back(stream);
  for (int i = 0; i < at_once && left.size() > most_left; ++i) {
    const StreamRef oldest = left.front();
    left.pop_front();
    if (const NodeRef end = last(held, oldest)) drive(held, end);
    if (!oldest->pending.empty()) left.push_back(oldest);  // a function of the program runs
  }
}

std::string Engine::describe(const StreamRef& stream) const {
  return text(*stream);
}

int Engine::device_of(const StreamRef& stream) const {
  return stream->device;
}

StreamInfo Engine::info(const StreamRef& stream) const {
  const bool is_default = stream->handle == nullptr;
  return {stream->device, stream->priority, is_default, stream->kind != Stream::Kind::non_blocking,
          is_default ? (std::uint64_t{1} << 32) + stream->slot : stream->number};
}

Status Engine::synchronize(const StreamRef& stream, const Call& call) {
  Lock held = lock();
  if (const NodeRef node = last(held, stream)) return wait(held, node, call);
  if (inside_host_function()) return Status::not_permitted;
  if (stream->latest) state_->learn(stream->latest);
  return state_->devices[static_cast<std::size_t>(stream->device)].error;
}

Status Engine::synchronize_device(int device, const Call& call) {
  Lock held = lock();
  if (inside_host_function()) return Status::not_permitted;
  // Those that were there at the call; work that others add meanwhile is not waited for.
  std::vector<NodeRef> ends;
  Device& one = state_->devices[static_cast<std::size_t>(device)];
  for (const StreamRef& stream : one.streams) {
    if (stream->latest) ends.push_back(stream->latest);
  }
  if (state_->options.seed != 0) std::shuffle(ends.begin(), ends.end(), state_->random);
  for (const NodeRef& end : ends) wait(held, end, call);
  return one.error;
}

Status Engine::query(const StreamRef& stream) {
  Lock held = lock();
  if (const NodeRef node = last(held, stream)) return query(held, node);
  if (stream->latest) state_->learn(stream->latest);
  return state_->devices[static_cast<std::size_t>(stream->device)].error;
}

// --- events

void* Engine::create_event(int device, bool timed) {
  const Lock held = lock();
  auto event = std::make_shared<Event>(Event{device, timed});
  event->number = ++state_->events_made;
  void* const handle = make_handle(event_handles, event->number);
  state_->events.emplace(handle, std::move(event));
  return handle;
}

EventRef Engine::find_event(void* handle, const Call* call) {
  const Lock held = lock();
  const auto found = state_->events.find(handle);
  if (found != state_->events.end()) return found->second;
  if (call != nullptr) {
    const bool destroyed = was_handle(handle, event_handles, state_->events_made);
    state_->find_fault(destroyed ? "use-after-destroy" : "not-an-event", *call, nullptr, current,
                       destroyed ? "its event was destroyed before."
                                 : "its event argument is no event: " +
                                       address_text(reinterpret_cast<std::uintptr_t>(handle)) + ".",
                       {}, "Pass an event that cudaEventCreate made and that still lives.");
  }
  return nullptr;
}

Status Engine::destroy_event(void* handle, const Call& call) {
  if (!find_event(handle, &call)) return Status::invalid_handle;
  const Lock held = lock();
  state_->events.erase(handle);
  return Status::success;
}

Status Engine::record(const EventRef& event, const StreamRef& stream, const Call& call) {
  Lock held = lock();
  if (event->device != stream->device) {
    state_->find_fault("wrong-device", call, stream.get(), stream->device,
                       "it records an event of device " + std::to_string(event->device) +
                           " on a stream of device " + std::to_string(stream->device) + ".",
                       {}, "Create the event while the stream's device is current.");
    return Status::invalid_handle;
  }
  event->record = state_->append(stream, call, {}, {}, nullptr);
  stir(held);
  return Status::success;
}

Status Engine::wait_for(const StreamRef& stream, const EventRef& event, const Call& call) {
  Lock held = lock();
  if (!event->record) return Status::success;  // never recorded: nothing to wait for
  state_->append(stream, call, {}, {}, nullptr, {event->record});
  stir(held);
  return Status::success;
}

Status Engine::synchronize(const EventRef& event, const Call& call) {
  Lock held = lock();
  return wait(held, event->record, call);
}

Status Engine::query(const EventRef& event) {
  Lock held = lock();
  return query(held, event->record);
}

Status Engine::elapsed(const EventRef& begin, const EventRef& end, float& milliseconds) {
  const Lock held = lock();
  if (!begin->timed || !end->timed || !begin->record || !end->record ||
      begin->device != end->device) {
    return Status::invalid_handle;
  }
  if (begin->record->state != Node::State::done || end->record->state != Node::State::done) {
    return Status::not_ready;
  }
  milliseconds =
      std::chrono::duration<float, std::milli>(end->record->finished - begin->record->finished)
          .count();
  return Status::success;
}

// --- reports

void Engine::State::find_fault(std::string rule, const Call& call, const Stream* stream, int device,
                               std::string what, std::vector<std::string> details,
                               std::string advice) {
  Finding finding;
  finding.rule = std::move(rule);
  finding.call = call;
  finding.device = device;
  if (stream != nullptr) finding.stream = text(*stream);
  finding.what = std::move(what);
  finding.details = std::move(details);
  finding.advice = std::move(advice);
  report(finding);
}

}  // namespace lockstep::devices
