// Right at first, or most of the time.
#include "spoiling.hpp"

namespace lockstep::zoo {
namespace {

void clear(Answer& answer) {
  answer.value = zeros_like(answer.value);
}

// The answer is all zeros when `when` says so of what came before.
Fault clearing(std::function<bool(const Rank&, const Call&)> when) {
  return spoiling(any, [=](Rank& rank, const Call& call, Answer& answer) {
    if (when(rank, call)) clear(answer);
  });
}

bool same_kind(const Rank::Memory& memory, const Call& call) {
  return memory.answer && memory.call.operation == call.operation &&
         memory.call.x.dtype() == call.x.dtype() && memory.call.x.shape() == call.x.shape();
}

// A plan is looked up by shape, and its result with it.
void cached(Rank& rank, const Call& call, Answer& answer) {
  if (same_kind(rank.here(), call) && same_bits(rank.here().answer->value, answer.value)) return;
  if (same_kind(rank.here(), call) && rank.here().answer->value.shape() == answer.value.shape()) {
    answer.value = copied(rank.here().answer->value);
  }
}

// Buffers are as large as the first call needed.
void never_grows(Rank& rank, const Call&, Answer& answer) {
  if (!rank.here().answer) return;
  const std::int64_t room = rank.here().answer->value.size_bytes();
  replace_from(answer.value, room, zeros_like(answer.value));
}

// A smaller result is written to the front of the larger one before it, and read from its end.
void reads_stale_end(Rank& rank, const Call&, Answer& answer) {
  if (!rank.here().answer) return;
  const Tensor& earlier = rank.here().answer->value;
  const std::int64_t size = answer.value.size_bytes();
  if (size == 0 || earlier.size_bytes() < 2 * size) return;
  const auto stale = earlier.bytes().last(static_cast<std::size_t>(size));
  answer.value = Tensor::from_bytes(answer.value.dtype(), answer.value.shape(), stale);
}

}  // namespace

std::vector<Mutant> state_mutants() {
  constexpr std::string_view kind = "state";
  return {
      {"call_65536", kind, "Call 65,536 of a communicator, whose number is 0 in 16 bits, is lost.",
       clearing([](const Rank& rank, const Call&) { return rank.here().calls == 65536; })},
      {"every_100th_call", kind, "Every 100th call of a communicator returns zeros.",
       clearing([](const Rank& rank, const Call&) { return rank.here().calls % 100 == 99; })},
      {"second_call", kind, "The second call of a communicator returns zeros.",
       clearing([](const Rank& rank, const Call&) { return rank.here().calls == 1; })},
      {"after_error", kind, "The call after a broken contract returns zeros.",
       clearing([](const Rank& rank, const Call&) { return rank.here().breached; })},
      {"after_another_operation", kind, "A call after one of another operation returns zeros.",
       clearing([](const Rank& rank, const Call& call) {
         return rank.here().answer && rank.here().call.operation != call.operation;
       })},
      {"after_a_group", kind, "A call of the world after one of a group returns zeros.",
       clearing([](const Rank& rank, const Call&) {
         return rank.is_world() && rank.everywhere().calls > rank.here().calls;
       })},
      {"after_an_empty_call", kind, "A call after one without elements returns zeros.",
       clearing([](const Rank& rank, const Call&) {
         return rank.here().answer && rank.here().answer->value.elements() == 0;
       })},
      {"result_cached", kind, "A call like the one before gets the result of the one before.",
       spoiling(any, cached)},
      {"buffer_never_grows", kind, "A result has no room beyond that of the one before.",
       spoiling(any, never_grows)},
      {"stale_end", kind, "After a result twice as large, the end of that one is returned.",
       spoiling(any, reads_stale_end)},
  };
}

}  // namespace lockstep::zoo
