// Record a program's collectives and judge them later, perhaps on another machine: every rank wraps
// its communicator, and the calls of all ranks become case files.
//
//   lockstep::kit::Recording recording({.ranks = 4, .backend = "mine", .directory = "out"});
//   my::World(4).run([&](my::Communicator c) {
//     train(lockstep::kit::Recorded(c, recording, c.rank()));
//   });
//   recording.finish();                        // and then: lockstep replay out/recorded-*.json
//
// A call on tensors of more elements than `most_elements` is recorded as the same call on a sample
// of its elements, chosen alike on all ranks, which has a right answer as well: columns of a row,
// rows of a shard, of a share, or of an exchange's block. Shapes and counts are compared in full
// all the same. A broken call with a tensor that large is left out.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/collective.hpp>
#include <lockstep/kit/case.hpp>
#include <lockstep/kit/subject.hpp>

namespace lockstep::kit {

struct RecordingOptions {
  int ranks = 1;                      // of the world
  std::string backend = "backend";    // its name, for reports
  SumRule sum_rule = SumRule::exact;  // that it promises
  // Where the files go, "<name>-0.json" and so on; cases() has them in any case.
  std::string directory = {};
  std::string name = "recorded";
  std::int64_t most_elements = 1024;       // of one tensor, the rest is sampled
  std::int64_t most_case_bytes = 4 << 20;  // of values in one case, then the next one begins
  std::int64_t most_bytes = 256 << 20;     // of all values, then recording ends
};

// What the exception that is being handled makes of a rank's outcome.
void describe_failure(Outcome& outcome);

// One rank's call, and what came of it.
struct RecordedCall {
  std::vector<int> group;  // world ranks; empty for the world
  Operation operation = Operation::all_gather_float;
  std::int64_t root = 0;
  std::vector<std::int64_t> send_counts;
  Tensor input;
  Outcome outcome;
};

// The calls of all ranks of one world, which threads may add at once. What belongs together is
// found by the order of each rank's calls on each communicator.
class Recording {
 public:
  // Throws InvalidArgument for less than one rank, or limits below one.
  explicit Recording(RecordingOptions options);
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  void add(int world_rank, RecordedCall call);

  // No rank calls any more: a rank that a call still waits for has left. Writes what has not been
  // written. Throws Error where a file cannot be written, or the calls that are left fit together
  // in no order (ranks that called on different communicators in different orders).
  void finish();

  // What was recorded, after finish().
  const std::vector<Case>& cases() const;
  const std::vector<std::string>& files() const;
  std::int64_t steps() const;     // recorded
  std::int64_t sampled() const;   // among them on samples
  std::int64_t left_out() const;  // broken calls on large tensors, and all beyond most_bytes

  const RecordingOptions& options() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Passes every call on to the communicator that it wraps, and records it. It offers what that one
// offers, up to all five concepts of lockstep/collective.hpp.
template <TensorCollective C>
class Recorded {
  using Transfer = HostTransfer<C>;

 public:
  using float_tensor = typename C::float_tensor;
  using int_tensor = typename C::int_tensor;

  // A communicator of the world. The recording must outlive it.
  Recorded(C communicator, Recording& recording, int world_rank)
      : Recorded(std::move(communicator), recording, world_rank, {}) {}
  // One of these world ranks, in this order, however it was made.
  Recorded(C communicator, Recording& recording, int world_rank, std::vector<int> group)
      : communicator_(std::move(communicator)),
        recording_(&recording),
        world_rank_(world_rank),
        group_(std::move(group)) {}

  int world_size() const { return communicator_.world_size(); }
  int rank() const requires BroadcastTensorCollective<C> { return communicator_.rank(); }
  decltype(auto) autodiff_context() const { return communicator_.autodiff_context(); }

  float_tensor all_gather_float(const float_tensor& x) const {
    return call(Operation::all_gather_float, x, 0, {}, [&](C& c) { return c.all_gather_float(x); });
  }
  int_tensor all_gather_int(const int_tensor& x) const requires IntegerTensorCollective<C> {
    return call(Operation::all_gather_int, x, 0, {}, [&](C& c) { return c.all_gather_int(x); });
  }
  float_tensor reduce_scatter_sum(const float_tensor& x) const {
    return call(Operation::reduce_scatter_sum, x, 0, {},
                [&](C& c) { return c.reduce_scatter_sum(x); });
  }
  float_tensor all_reduce_sum(const float_tensor& x) const requires ReplicatedTensorCollective<C> {
    return call(Operation::all_reduce_sum, x, 0, {}, [&](C& c) { return c.all_reduce_sum(x); });
  }
  float_tensor broadcast_float(const float_tensor& x,
                               std::int64_t root) const requires BroadcastTensorCollective<C> {
    return call(Operation::broadcast_float, x, root, {},
                [&](C& c) { return c.broadcast_float(x, root); });
  }
  VariableTensorExchange<float_tensor> all_to_all_v_float(
      const float_tensor& x,
      std::span<const std::int64_t> send_counts) const requires VariableTensorCollective<C> {
    return call(Operation::all_to_all_v_float, x, 0, send_counts,
                [&](C& c) { return c.all_to_all_v_float(x, send_counts); });
  }
  VariableTensorExchange<int_tensor> all_to_all_v_int(
      const int_tensor& x,
      std::span<const std::int64_t> send_counts) const requires VariableTensorCollective<C> {
    return call(Operation::all_to_all_v_int, x, 0, send_counts,
                [&](C& c) { return c.all_to_all_v_int(x, send_counts); });
  }

  Recorded group(std::span<const int> ranks) const requires Groupable<C> {
    std::vector<int> members;
    for (const int rank : ranks) {
      members.push_back(group_.empty() ? rank : group_.at(static_cast<std::size_t>(rank)));
    }
    return Recorded(communicator_.group(ranks), *recording_, world_rank_, std::move(members));
  }

  friend std::ostream& operator<<(std::ostream& out, const Recorded& c) {
    return out << "recorded " << c.communicator_;
  }

 private:
  template <class X, class Make>
  auto call(Operation operation, const X& x, std::int64_t root,
            std::span<const std::int64_t> send_counts, Make make) const {
    RecordedCall record;
    record.group = group_;
    record.operation = operation;
    record.root = root;
    record.send_counts.assign(send_counts.begin(), send_counts.end());
    record.input = copied(Transfer::download(communicator_, X(x)));
    try {
      auto result = make(communicator_);
      record.outcome.kind = Outcome::Kind::value;
      if constexpr (requires { result.receive_counts; }) {
        record.outcome.value = copied(Transfer::download(communicator_, X(result.value)));
        record.outcome.receive_counts = result.receive_counts;
      } else {
        record.outcome.value = copied(Transfer::download(communicator_, X(result)));
      }
      keep(record, x);
      return result;
    } catch (...) {
      if (record.outcome.kind == Outcome::Kind::absent) {
        describe_failure(record.outcome);
        keep(record, x);
      }
      throw;
    }
  }

  template <class X>
  void keep(RecordedCall& record, const X& x) const {
    const Tensor after = Transfer::download(communicator_, X(x));
    record.outcome.input_changed = !same_bits(record.input, after);
    recording_->add(world_rank_, std::move(record));
  }

  static Tensor copied(const Tensor& x) {
    return Tensor::from_bytes(x.dtype(), x.shape(), x.bytes());
  }

  mutable C communicator_;
  Recording* recording_;
  int world_rank_;
  std::vector<int> group_;
};

}  // namespace lockstep::kit
