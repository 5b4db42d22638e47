#include <lockstep/kit/recording.hpp>

#include <algorithm>
#include <deque>
#include <mutex>

#include <lockstep/agreement.hpp>
#include <lockstep/error.hpp>
#include <lockstep/kit/case_file.hpp>

#include "recording_sample.hpp"
#include "whole_file.hpp"

namespace lockstep::kit {

void describe_failure(Outcome& outcome) {
  try {
    throw;
  } catch (const ContractError& error) {
    outcome.kind = Outcome::Kind::contract;
    outcome.violation = error.violation();
    outcome.message = error.what();
  } catch (const TransportError& error) {
    outcome.kind = Outcome::Kind::transport;
    outcome.message = error.what();
    outcome.lost_ranks = error.lost_ranks();
  } catch (const std::exception& error) {
    outcome.kind = Outcome::Kind::broken;
    outcome.message = error.what();
  } catch (...) {
    outcome.kind = Outcome::Kind::broken;
    outcome.message = "something was thrown that is no std::exception";
  }
}

struct Recording::State {
  explicit State(RecordingOptions options_)
      : options(std::move(options_)), waiting(static_cast<std::size_t>(options.ranks)) {}

  const RecordingOptions options;
  mutable std::mutex mutex;
  // By world rank, the calls that have not become a step yet, in the rank's order.
  std::vector<std::deque<SampledCall>> waiting;
  bool full = false;
  bool finished = false;
  Case current;
  std::int64_t current_bytes = 0;
  std::int64_t bytes = 0;
  std::vector<Case> cases;
  std::vector<std::string> files;
  std::int64_t steps = 0;
  std::int64_t sampled = 0;
  std::int64_t left_out = 0;

  std::size_t members(const std::vector<int>& group) const {
    return group.empty() ? waiting.size() : group.size();
  }
  std::deque<SampledCall>& calls_of(const std::vector<int>& group, std::size_t member) {
    return waiting[group.empty() ? member : static_cast<std::size_t>(group[member])];
  }

  // Makes the step of the next call of a rank, when all members are there, or, at the end, those
  // that make any more calls.
  bool complete(std::size_t rank, bool at_the_end) {
    if (waiting[rank].empty()) return false;
    const std::vector<int> group = waiting[rank].front().call.group;
    for (std::size_t member = 0; member < members(group); ++member) {
      const auto& calls = calls_of(group, member);
      if (calls.empty() ? !at_the_end : calls.front().call.group != group) return false;
    }
    std::vector<std::optional<SampledCall>> calls;
    for (std::size_t member = 0; member < members(group); ++member) {
      auto& queue = calls_of(group, member);
      calls.emplace_back();
      if (queue.empty()) continue;
      calls.back() = std::move(queue.front());
      queue.pop_front();
    }
    append(group, calls);
    return true;
  }

  void append(const std::vector<int>& group, std::vector<std::optional<SampledCall>>& calls) {
    const auto is_sampled = [](const auto& call) { return call && call->sampled; };
    const bool any_sampled = std::ranges::any_of(calls, is_sampled);
    if (full || (any_sampled && !check_in_full(calls))) {
      ++left_out;
      return;
    }
    Step step;
    step.group = group;
    const auto present = std::ranges::find_if(calls, [](const auto& call) { return bool(call); });
    std::int64_t size = 0;
    bool broadcasts = false;
    for (auto& call : calls) {
      // A rank that has left would have called what the others do.
      const RecordedCall& of = call ? call->call : (*present)->call;
      step.operations.push_back(of.operation);
      step.roots.push_back(of.root);
      broadcasts = broadcasts || of.operation == Operation::broadcast_float;
      if (!call) {
        step.inputs.emplace_back();
        step.received.emplace_back();
        continue;
      }
      size += of.input.size_bytes() + of.outcome.value.size_bytes();
      Input input;
      input.tensor = std::move(call->call.input);
      input.send_counts = std::move(call->call.send_counts);
      step.inputs.push_back(std::move(input));
      step.received.push_back(std::move(call->call.outcome));
    }
    if (!broadcasts) step.roots.clear();
    ++steps;
    if (any_sampled) ++sampled;
    current.steps.push_back(std::move(step));
    current_bytes += size;
    bytes += size;
    full = bytes >= options.most_bytes;
    if (current_bytes >= options.most_case_bytes) close();
  }

  // What cannot be seen on the sample: shapes, dtypes and counts. False when the call is a broken
  // one, of which a sample is no case.
  static bool check_in_full(std::vector<std::optional<SampledCall>>& calls) {
    std::vector<Signature> signatures;
    for (const auto& call : calls) {
      if (!call) return true;  // a lost call gives nobody a value
      signatures.push_back({call->call.operation, call->call.input.dtype(), call->input_shape,
                            call->call.root, call->send_counts});
    }
    if (find_breach(signatures)) return false;
    for (std::size_t member = 0; member < calls.size(); ++member) {
      SampledCall& call = *calls[member];
      Outcome& outcome = call.call.outcome;
      if (outcome.kind != Outcome::Kind::value) continue;
      const Shape shape = result_shape(signatures, static_cast<int>(member));
      std::vector<std::int64_t> counts;
      if (is_all_to_all_v(call.call.operation)) {
        for (const auto& source : calls) counts.push_back(source->send_counts[member]);
      }
      const auto type = [](DType dtype, const Shape& of) {
        return std::string(name(dtype)) + " " + to_string(of);
      };
      const auto list = [](const std::vector<std::int64_t>& of) {
        return to_string(Shape(std::span<const std::int64_t>(of)));
      };
      std::string wrong;
      if (call.value_dtype != signatures[member].dtype || call.value_shape != shape) {
        wrong = "the result was " + type(call.value_dtype, call.value_shape) + ", where " +
                type(signatures[member].dtype, shape) + " is due";
      } else if (call.receive_counts != counts) {
        wrong = "the receive counts were " + list(call.receive_counts) + ", where " + list(counts) +
                " are due";
      }
      if (wrong.empty()) continue;
      const bool changed = outcome.input_changed;
      outcome = Outcome();
      outcome.kind = Outcome::Kind::broken;
      outcome.message = wrong + " (before sampling)";
      outcome.input_changed = changed;
    }
    return true;
  }

  void close() {
    if (current.steps.empty()) return;
    current.world = options.ranks;
    current.recorded = RecordedBackend{options.backend, options.sum_rule};
    if (options.sum_rule == SumRule::rank_order) current.sum_rule = SumRule::rank_order;
    if (!options.directory.empty()) {
      const std::string name = options.name + "-" + std::to_string(files.size()) + ".json";
      files.push_back(write_whole_file_in(options.directory, name, write_case(current)));
    }
    cases.push_back(std::exchange(current, Case()));
    current_bytes = 0;
  }
};

Recording::Recording(RecordingOptions options) {
  if (options.ranks < 1) throw InvalidArgument("a recording of a world without ranks");
  if (std::min({options.most_elements, options.most_case_bytes, options.most_bytes}) < 1) {
    throw InvalidArgument("the limits of a recording are 1 at least");
  }
  state_ = std::make_unique<State>(std::move(options));
}

Recording::~Recording() = default;

void Recording::add(int world_rank, RecordedCall call) {
  State& state = *state_;
  if (world_rank < 0 || world_rank >= state.options.ranks) {
    throw InvalidArgument("rank " + std::to_string(world_rank) + " of a recording of " +
                          std::to_string(state.options.ranks) + " ranks");
  }
  const auto ranks = static_cast<int>(state.members(call.group));
  SampledCall sampled = sample(std::move(call), ranks, state.options.most_elements);
  const auto rank = static_cast<std::size_t>(world_rank);
  const std::lock_guard lock(state.mutex);
  if (state.finished) throw InvalidArgument("a call after the recording was finished");
  state.waiting[rank].push_back(std::move(sampled));
  // One step may let the next one of any rank be seen.
  bool progress = state.complete(rank, false);
  while (progress) {
    progress = false;
    for (std::size_t other = 0; other < state.waiting.size(); ++other) {
      progress = state.complete(other, false) || progress;
    }
  }
}

void Recording::finish() {
  State& state = *state_;
  const std::lock_guard lock(state.mutex);
  state.finished = true;
  bool progress = true;
  while (progress) {
    progress = false;
    for (std::size_t rank = 0; rank < state.waiting.size(); ++rank) {
      progress = state.complete(rank, true) || progress;
    }
  }
  state.close();
  for (std::size_t rank = 0; rank < state.waiting.size(); ++rank) {
    if (state.waiting[rank].empty()) continue;
    const RecordedCall& call = state.waiting[rank].front().call;
    throw Error("recording ends at " + std::string(name(call.operation)) + " of rank " +
                std::to_string(rank) +
                ": its peers made other calls, on other communicators, "
                "in an order that does not fit");
  }
}

const std::vector<Case>& Recording::cases() const {
  return state_->cases;
}
const std::vector<std::string>& Recording::files() const {
  return state_->files;
}
std::int64_t Recording::steps() const {
  return state_->steps;
}
std::int64_t Recording::sampled() const {
  return state_->sampled;
}
std::int64_t Recording::left_out() const {
  return state_->left_out;
}
const RecordingOptions& Recording::options() const {
  return state_->options;
}

}  // namespace lockstep::kit
