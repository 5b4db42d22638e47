// Peers that threw or are stuck.
#include <string>

#include "spoiling.hpp"

namespace lockstep::zoo {
namespace {

// What became of the missing peer, as the right error tells it.
bool threw(const TransportError& error) {
  return std::string_view(error.what()).find(" threw \"") != std::string_view::npos;
}
bool stuck(const TransportError& error) {
  return std::string_view(error.what()).find("did not arrive within") != std::string_view::npos;
}

Answer own_tensor(const Call& call) {
  return {copied(call.x), call.send_counts};
}

using Loss = bool (*)(const TransportError&);

// Does something else with the error for such a loss.
Fault instead_of(Loss loss,
                 std::function<Answer(Rank&, const Call&, const TransportError&)> answer) {
  return [=](Rank& rank, const Call& call) {
    try {
      return rank.right(call);
    } catch (const TransportError& error) {
      if (!loss(error)) throw;
      return answer(rank, call, error);
    }
  };
}

Answer go_on_alone(Rank&, const Call& call, const TransportError&) {
  return own_tensor(call);
}

// Whoever comes last still finds what the others left.
Answer last_goes_on_alone(Rank& rank, const Call& call, const TransportError& error) {
  if (!rank.last()) throw TransportError(error);
  return own_tensor(call);
}

// The loss is noticed when the next call begins.
Fault one_call_late(Loss loss) {
  return [=](Rank& rank, const Call& call) {
    const bool known = rank.here().lost;
    try {
      return rank.right(call);
    } catch (const TransportError& error) {
      if (known || !loss(error)) throw;
      rank.remember_loss();
      return own_tensor(call);
    }
  };
}

Answer told_once(Rank& rank, const Call& call, const TransportError& error) {
  if (!rank.here().lost) throw TransportError(error);
  return own_tensor(call);
}

Answer told_otherwise_later(Rank& rank, const Call&, const TransportError& error) {
  if (!rank.here().lost) throw TransportError(error);
  throw TransportError("the communicator is closed", error.lost_ranks());
}

Answer told_otherwise_on_the_last(Rank& rank, const Call&, const TransportError& error) {
  if (!rank.last()) throw TransportError(error);
  throw TransportError("connection reset by peer", error.lost_ranks());
}

Answer nobody_named(Rank&, const Call&, const TransportError& error) {
  throw TransportError(error.what(), {});
}

Answer oneself_named(Rank& rank, const Call&, const TransportError& error) {
  throw TransportError(error.what(), {rank.rank()});
}

// The peer's exception goes through to everybody.
Answer passed_through(Rank&, const Call&, const TransportError& error) {
  throw std::runtime_error(error.what());
}

Answer as_breach(Rank&, const Call& call, const TransportError& error) {
  throw ContractError({Violation::operation, call.operation, error.what()}, "world", 0);
}

Answer never_given_up(Rank& rank, const Call&, const TransportError&) {
  rank.hang();
}

}  // namespace

std::vector<Mutant> loss_mutants() {
  constexpr std::string_view kind = "losses";
  return {
      {"throw_ignored", kind, "Where a rank threw, the others get their own tensors.",
       instead_of(threw, go_on_alone)},
      {"throw_ignored_by_last", kind, "Where a rank threw, the last rank gets its own tensor.",
       instead_of(threw, last_goes_on_alone)},
      {"throw_noticed_late", kind, "That a rank threw is noticed one call too late.",
       one_call_late(threw)},
      {"throw_told_once", kind, "Only the first call tells of a rank that threw.",
       instead_of(threw, told_once)},
      {"throw_told_otherwise", kind, "The last rank is told something else of a rank that threw.",
       instead_of(threw, told_otherwise_on_the_last)},
      {"throw_told_otherwise_later", kind, "Later calls tell something else of a rank that threw.",
       instead_of(threw, told_otherwise_later)},
      {"throw_names_nobody", kind, "The error for a rank that threw does not say which.",
       instead_of(threw, nobody_named)},
      {"throw_names_oneself", kind, "The error for a rank that threw names whoever gets it.",
       instead_of(threw, oneself_named)},
      {"throw_passed_through", kind, "What a rank threw is thrown at the others as it is.",
       instead_of(threw, passed_through)},
      {"throw_as_breach", kind, "A rank that threw is a broken contract.",
       instead_of(threw, as_breach)},
      {"throw_hangs", kind, "Whoever needs a rank that threw waits for ever.",
       instead_of(threw, never_given_up)},
      {"stall_ignored", kind, "After the timeout the others get their own tensors.",
       instead_of(stuck, go_on_alone)},
      {"stall_noticed_late", kind, "That a rank is stuck is noticed one call too late.",
       one_call_late(stuck)},
      {"stall_told_once", kind, "The call after the timeout works again.",
       instead_of(stuck, told_once)},
      {"stall_told_otherwise", kind,
       "The last rank is told something else of a rank that is stuck.",
       instead_of(stuck, told_otherwise_on_the_last)},
      {"stall_names_nobody", kind, "The error after a timeout does not say who is stuck.",
       instead_of(stuck, nobody_named)},
      {"stall_as_breach", kind, "A rank that is stuck is a broken contract.",
       instead_of(stuck, as_breach)},
      {"stall_hangs", kind, "Whoever needs a rank that is stuck waits for ever.",
       instead_of(stuck, never_given_up)},
  };
}

}  // namespace lockstep::zoo
