// One rank's part of a case, played on a communicator of the backend under test.
//
// The rank trusts nothing. It passes tensors of its own, some of them a part of a larger block, and
// looks at the whole block after the call; it keeps every result, beside a copy made at once, and
// compares the two when all is over.
#include <algorithm>
#include <list>
#include <map>

#include <lockstep/kit/backend.hpp>
#include <lockstep/kit/recording.hpp>
#include <lockstep/kit/subject.hpp>

#include "result_types.hpp"
#include "step_values.hpp"

namespace lockstep::kit {
namespace {

Tensor deep_copy(const Tensor& x) {
  return Tensor::from_bytes(x.dtype(), x.shape(), x.bytes());
}

Tensor through_strides(const Tensor& x) {
  const Laid laid = laid_out(x, MemoryLayout::strided);
  if (x.elements() == 0) return deep_copy(x);
  return Tensor::from_strided(x.dtype(), x.shape(), laid.view.strides,
                              laid.block.data() + laid.view.origin * size_of(x.dtype()));
}

// A tensor to pass to the backend, and what its memory held before.
class Passed {
 public:
  // A tensor made for this call, as far as a dense one can have that layout.
  Passed(const Tensor& x, MemoryLayout layout) {
    if (layout == MemoryLayout::slice) {
      block_ = laid_out(x, layout).block;
      tensor_ = block_.slice_rows(1, x.elements() + 1).reshape(x.shape());
    } else {
      tensor_ = layout == MemoryLayout::strided ? through_strides(x) : deep_copy(x);
      block_ = tensor_;
    }
    before_ = deep_copy(block_);
  }
  // A tensor that the backend returned, the very same.
  explicit Passed(const Tensor& result) : tensor_(result), block_(result) {
    before_ = deep_copy(block_);
  }

  const Tensor& tensor() const { return tensor_; }
  bool changed() const { return !same_bits(block_, before_); }

 private:
  Tensor tensor_;
  Tensor block_;
  Tensor before_;
};

struct Returned {
  Tensor value;
  std::vector<std::int64_t> receive_counts;
};

Returned call(Subject& subject, Operation operation, const Tensor& x, std::int64_t root,
              std::span<const std::int64_t> send_counts) {
  switch (operation) {
    case Operation::all_gather_float:
      return {subject.all_gather_float(FloatTensor(x)), {}};
    case Operation::all_gather_int:
      return {subject.all_gather_int(IntTensor(x)), {}};
    case Operation::reduce_scatter_sum:
      return {subject.reduce_scatter_sum(FloatTensor(x)), {}};
    case Operation::all_reduce_sum:
      return {subject.all_reduce_sum(FloatTensor(x)), {}};
    case Operation::broadcast_float:
      return {subject.broadcast_float(FloatTensor(x), root), {}};
    case Operation::all_to_all_v_float: {
      auto exchange = subject.all_to_all_v_float(FloatTensor(x), send_counts);
      return {std::move(exchange.value), std::move(exchange.receive_counts)};
    }
    case Operation::all_to_all_v_int: {
      auto exchange = subject.all_to_all_v_int(IntTensor(x), send_counts);
      return {std::move(exchange.value), std::move(exchange.receive_counts)};
    }
    case Operation::split:
      break;
  }
  throw InvalidArgument("a case has no such operation");
}

// Of what `operation` returned, with respect to what the rank passed.
FloatTensor gradient(Subject& subject, Operation operation, const Returned& result,
                     std::int64_t root, const std::optional<FloatTensor>& upstream) {
  const auto floats = [&] { return FloatTensor(result.value); };
  switch (operation) {
    case Operation::all_gather_float:
      return subject.all_gather_gradient(floats(), upstream);
    case Operation::all_gather_int:
      return subject.all_gather_int_gradient(IntTensor(result.value), upstream);
    case Operation::reduce_scatter_sum:
      return subject.reduce_scatter_gradient(floats(), upstream);
    case Operation::all_reduce_sum:
      return subject.all_reduce_gradient(floats(), upstream);
    case Operation::broadcast_float:
      return subject.broadcast_gradient(floats(), root, upstream);
    case Operation::all_to_all_v_float:
      return subject.all_to_all_v_gradient({floats(), result.receive_counts}, upstream);
    case Operation::all_to_all_v_int:
      return subject.all_to_all_v_int_gradient({IntTensor(result.value), result.receive_counts},
                                               upstream);
    case Operation::split:
      break;
  }
  throw InvalidArgument("a case has no such operation");
}

// Whether two calls with the same arguments went alike. (Messages number the calls.)
bool alike(const Outcome& a, const Outcome& b) {
  if (a.kind != b.kind) return false;
  if (a.kind == Outcome::Kind::contract) return a.violation == b.violation;
  return a.kind != Outcome::Kind::value ||
         (same_bits(a.value, b.value) && a.receive_counts == b.receive_counts);
}

class Performance {
 public:
  Performance(const Case& c, int rank, Subject& world, RankTranscript& transcript)
      : case_(c), rank_(rank), world_(world), transcript_(transcript) {
    transcript_.assign(c.steps.size(), std::nullopt);
  }

  void play(const std::function<void()>& stall) {
    if (case_.window) window_ = world_.window();
    std::optional<std::size_t> departure;
    for (std::size_t step = 0; step < case_.steps.size(); ++step) {
      const std::optional<std::size_t> member = member_of(case_.steps[step], rank_);
      if (!member) continue;
      Outcome& outcome = transcript_[step].emplace();
      // A rank that has left, or met with what no rule allows, takes no further part: its peers
      // must notice, and nothing that it could still say would tell more.
      if (!case_.steps[step].inputs[*member]) {
        departure = step;
        break;
      }
      enter(step, *member, outcome);
      if (outcome.kind == Outcome::Kind::broken) break;
    }
    const bool broke_off = std::ranges::any_of(transcript_, [](const auto& outcome) {
      return outcome && outcome->kind == Outcome::Kind::broken;
    });
    if (case_.window && !broke_off) take_back();
    for (const Kept& kept : kept_) {
      if (!same_bits(kept.result, kept.copy)) transcript_[kept.step]->result_changed = true;
    }
    if (departure) leave(*departure, stall);
  }

 private:
  // A result that the backend may have kept a hand on.
  struct Kept {
    std::size_t step;
    Tensor result;
    Tensor copy;
  };

  // Holding on to everything, as a rank that throws or is stuck does.
  void leave(std::size_t step, const std::function<void()>& stall) const {
    switch (*departure_of(case_, rank_)) {
      case Departure::returns:
        return;
      case Departure::throws:
        throw InjectedFault("rank " + std::to_string(rank_) + " throws in step " +
                            std::to_string(step) + ", as the case says");
      case Departure::stalls:
        stall();
    }
  }

  Subject& communicator(const std::vector<int>& group) {
    if (group.empty()) return world_;
    std::unique_ptr<Subject>& subject = groups_[group];
    if (subject == nullptr) subject = world_.group(group);
    if (subject == nullptr) throw Error("communicators of chosen ranks are not offered");
    return *subject;
  }

  void enter(std::size_t index, std::size_t member, Outcome& outcome) {
    const Step& step = case_.steps[index];
    const Input& input = *step.inputs[member];
    const std::int64_t root = root_of(step, member);
    try {
      if (!case_.window) passed_.clear();
      const Passed& passed =
          hold(index, input.from_step ? Passed(value_of(static_cast<std::size_t>(*input.from_step)))
                                      : Passed(input.tensor, input.layout));
      const auto make = [&] {
        if (case_.window) return recorded_call(index, member, passed.tensor());
        Subject& subject = communicator(step.group);
        subject.lay_out_inputs(input.layout);
        Returned returned =
            call(subject, step.operations[member], passed.tensor(), root, input.send_counts);
        subject.lay_out_inputs(MemoryLayout::dense);
        return returned;
      };
      for (std::int64_t repetition = 0; repetition < step.repeat; ++repetition) {
        Outcome now;
        try {
          Returned returned = make();
          now.kind = Outcome::Kind::value;
          now.value = std::move(returned.value);
          now.receive_counts = std::move(returned.receive_counts);
        } catch (...) {
          describe_failure(now);
        }
        const bool over = now.kind == Outcome::Kind::broken;
        if (repetition == 0 || (outcome.repetition == 0 && !alike(now, outcome))) {
          now.repetition = repetition;
          take(index, std::move(now), outcome);
        }
        if (over) break;
      }
      outcome.input_changed = passed.changed();
      if (outcome.input_changed && input.from_step) {
        excuse(static_cast<std::size_t>(*input.from_step));
      }
      if (outcome.kind != Outcome::Kind::value) return;
      if (!asks_for_gradient(step)) return;
      // Integers have no gradient, whatever the other steps of a window.
      if (case_.window && !takes_integers(step.operations[member])) return;
      differentiate(index, member, communicator(step.group), outcome);
    } catch (...) {
      describe_failure(outcome);
    }
  }

  const Passed& hold(std::size_t step, Passed passed) {
    return passed_.emplace_back(step, std::move(passed)).second;
  }

  // Makes what a call gave the outcome of its step, and keeps the tensor.
  void take(std::size_t index, Outcome now, Outcome& outcome) {
    std::erase_if(kept_, [=](const Kept& kept) { return kept.step == index; });
    outcome = std::move(now);
    if (outcome.kind == Outcome::Kind::value) {
      outcome.value = keep(index, std::move(outcome.value));
    }
  }

  // The gradient with respect to the rank's input. Every member comes here, or none does: all can
  // see in the case whether anybody's loss reaches the result.
  void differentiate(std::size_t index, std::size_t member, Subject& subject, Outcome& outcome) {
    const Step& step = case_.steps[index];
    const Passed* passed = nullptr;
    std::optional<FloatTensor> upstream;
    if (const std::optional<Tensor>& given = step.upstream[member]) {
      passed = &hold(index, Passed(*given, upstream_layout(index)));
      upstream = FloatTensor(passed->tensor());
    }
    const Returned result{value_of(index), outcome.receive_counts};
    const std::int64_t root = root_of(step, member);
    try {
      outcome.gradient =
          keep(index, gradient(subject, step.operations[member], result, root, upstream));
    } catch (const ContractError& error) {
      outcome.gradient_violation = error.violation();
      outcome.message = error.what();
    } catch (const TransportError& error) {
      outcome.message = error.what();
    }
    if (passed != nullptr && passed->changed()) outcome.input_changed = true;
  }

  // A call of a window.
  Returned recorded_call(std::size_t index, std::size_t member, const Tensor& x) {
    const Step& step = case_.steps[index];
    const Input& input = *step.inputs[member];
    SubjectWindow::Input recorded{std::nullopt, x};
    if (input.from_step) {
      recorded.from_call = window_call_.at(static_cast<std::size_t>(*input.from_step));
    }
    auto returned = window_->call(step.group, step.operations[member], recorded,
                                  root_of(step, member), input.send_counts);
    window_call_[index] = window_calls_++;
    return {std::move(returned.value), std::move(returned.receive_counts)};
  }

  // The gradients of a window, which every rank of the world asks for together.
  void take_back() {
    std::vector<std::optional<FloatTensor>> upstream(static_cast<std::size_t>(window_calls_));
    for (const auto& [step, call] : window_call_) {
      const std::optional<Tensor>* given = own_upstream(step);
      if (given == nullptr || !*given) continue;
      const Passed& passed = hold(step, Passed(**given, upstream_layout(step)));
      upstream[static_cast<std::size_t>(call)] = FloatTensor(passed.tensor());
    }
    const std::vector<bool> reached = reached_steps(case_);
    const auto with_gradient = [&](auto&& change) {
      for (const auto& [step, call] : window_call_) {
        if (reached[step]) change(step, call, *transcript_[step]);
      }
    };
    try {
      const auto back = window_->backward(upstream);
      for (const auto& [step, call] : window_call_) {
        if (const auto& gradient = back.at(static_cast<std::size_t>(call))) {
          transcript_[step]->gradient = keep(step, *gradient);
        }
      }
      // Nothing comes back to a rank whose tensor had no part in a result: a gradient of zeros.
      with_gradient([&](std::size_t step, int, Outcome& outcome) {
        const auto member = *member_of(case_.steps[step], rank_);
        if (!outcome.gradient && !depends_on_input(case_.steps[step], member)) {
          outcome.gradient = Tensor::zeros(outcome.value.dtype(), outcome.value.shape());
        }
      });
    } catch (const ContractError& error) {
      with_gradient([&](std::size_t, int, Outcome& outcome) {
        outcome.gradient_violation = error.violation();
        outcome.message = error.what();
      });
    } catch (const TransportError& error) {
      with_gradient([&](std::size_t, int, Outcome& outcome) { outcome.message = error.what(); });
    } catch (...) {
      // It belongs to no step; the first of this rank's stands for all.
      for (auto& outcome : transcript_) {
        if (outcome) return describe_failure(*outcome);
      }
    }
    for (const auto& [step, passed] : passed_) {
      if (passed.changed() && transcript_[step]) transcript_[step]->input_changed = true;
    }
  }

  const std::optional<Tensor>* own_upstream(std::size_t step) const {
    const Step& asked = case_.steps[step];
    if (takes_integers(asked.operations[0]) || asked.upstream.empty()) return nullptr;
    return &asked.upstream[*member_of(asked, rank_)];
  }

  static std::int64_t root_of(const Step& step, std::size_t member) {
    return step.roots.empty() ? 0 : step.roots[member];
  }

  // What the backend returned to this rank in an earlier step.
  const Tensor& value_of(std::size_t step) const {
    const auto kept = std::ranges::find(kept_, step, &Kept::step);
    if (kept == kept_.end()) {
      throw Error("step " + std::to_string(step) + " gave this rank nothing to pass on");
    }
    return kept->result;
  }

  // Takes a result as it is now: that it changed as the input of a later call has been noted there.
  void excuse(std::size_t step) {
    const auto kept = std::ranges::find(kept_, step, &Kept::step);
    kept->copy = deep_copy(kept->result);
  }

  // Keeps a result for the end, and returns a copy of it that nobody else knows.
  Tensor keep(std::size_t step, Tensor result) {
    kept_.push_back({step, std::move(result), Tensor()});
    kept_.back().copy = deep_copy(kept_.back().result);
    return kept_.back().copy;
  }

  // Both ways of holding a tensor, on every rank and beside each other in every step.
  MemoryLayout upstream_layout(std::size_t step) const {
    return (step + static_cast<std::size_t>(rank_)) % 2 == 1 ? MemoryLayout::slice
                                                             : MemoryLayout::dense;
  }

  const Case& case_;
  const int rank_;
  Subject& world_;
  std::map<std::vector<int>, std::unique_ptr<Subject>> groups_;
  std::vector<Kept> kept_;  // a step's value before its gradient
  // What the backend was given: in the latest step, or in all steps of a window.
  std::list<std::pair<std::size_t, Passed>> passed_;
  std::unique_ptr<SubjectWindow> window_;
  std::map<std::size_t, int> window_call_;  // by step, the number of its call
  int window_calls_ = 0;
  RankTranscript& transcript_;
};

}  // namespace

void perform(const Case& c, int world_rank, Subject& world, RankTranscript& transcript,
             const std::function<void()>& stall) {
  Performance(c, world_rank, world, transcript).play(stall);
}

Transcript assemble(const Case& c, std::span<const RankTranscript> ranks) {
  Transcript transcript;
  for (std::size_t step = 0; step < c.steps.size(); ++step) {
    std::vector<Outcome>& outcomes = transcript.emplace_back(c.steps[step].members());
    for (std::size_t member = 0; member < outcomes.size(); ++member) {
      const RankTranscript& rank =
          ranks[static_cast<std::size_t>(c.steps[step].world_rank(member))];
      // A rank that broke off reported nothing of later steps.
      if (step < rank.size() && rank[step]) outcomes[member] = *rank[step];
    }
  }
  return transcript;
}

}  // namespace lockstep::kit
