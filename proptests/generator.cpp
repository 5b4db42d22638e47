#include <algorithm>
#include <numeric>
#include <string>

#include <lockstep/kit/generator.hpp>

#include "dice.hpp"
#include "program_builder.hpp"

namespace lockstep::kit {
namespace {

// The longest program.
constexpr std::int64_t most_steps = 20;

Operation draw_operation(Dice& dice) {
  return dice.pick(tensor_operations);
}

// Up to three calls of one operation, the later ones now and then on what the earlier gave, or of
// the same shapes: a second call of the same kind shows what the first one left behind.
void calls_of(Operation operation, Dice& dice, ProgramBuilder& program) {
  program.call(operation);
  for (int calls = dice.pick({0, 0, 0, 1, 2}); calls > 0; --calls) {
    if (!dice.one_in(3) || !program.call_again()) program.call(operation);
  }
}

// A broken call, sometimes after a good one, always before one that shows that the communicator
// still works.
void broken_contract(Dice& dice, ProgramBuilder& program) {
  if (dice.one_in(3)) program.call(draw_operation(dice));
  for (int calls = dice.pick({1, 1, 2}); calls > 0; --calls) {
    program.broken_call(draw_operation(dice));
  }
  program.call(draw_operation(dice));
}

std::vector<int> draw_group(Dice& dice, std::vector<int> candidates) {
  dice.shuffle(std::span<int>(candidates));
  candidates.resize(1 + dice.index(candidates.size()));
  return candidates;
}

// Some of those who leave in this way return instead.
void leave(Dice& dice, ProgramBuilder& program, const std::vector<int>& ranks, Departure how) {
  std::vector<int> returning, others;
  for (const int rank : ranks) {
    const bool returns = how != Departure::returns && !others.empty() && dice.one_in(3);
    (returns ? returning : others).push_back(rank);
  }
  program.leave(returning);
  program.leave(others, how);
}

// Ranks leave, one or some, perhaps some more later; the others call on. Groups that need nobody
// who left must go on working.
void missing_rank(Dice& dice, ProgramBuilder& program, bool groups, Departure how) {
  if (dice.one_in(2)) program.call(draw_operation(dice));
  const int world = program.program().world;
  std::vector<int> everybody = program.present();
  for (int departures = dice.pick({1, 1, 1, 2}); departures > 0; --departures) {
    std::vector<int> leaving = dice.some_of(world);
    // Somebody must stay and notice.
    const int witness = dice.pick(everybody);
    std::erase(leaving, witness);
    if (leaving.empty() && world > 1) leaving.push_back((witness + 1) % world);
    std::erase_if(everybody, [&](int rank) { return std::ranges::count(leaving, rank) > 0; });
    leave(dice, program, leaving, how);
    // A missing rank outranks a broken rule.
    if (dice.one_in(6)) {
      program.broken_call(draw_operation(dice));
    } else {
      program.call(draw_operation(dice));
    }
    if (groups && dice.one_in(2)) {
      program.call(draw_operation(dice), draw_group(dice, everybody));
    }
    if (groups && dice.one_in(4)) {
      std::vector<int> anybody(static_cast<std::size_t>(world));
      std::iota(anybody.begin(), anybody.end(), 0);
      std::vector<int> group = draw_group(dice, std::move(anybody));
      if (std::ranges::count(group, witness) == 0) group.push_back(witness);
      program.call(draw_operation(dice), std::move(group));
    }
  }
  program.call(draw_operation(dice));
}

// A rank gets stuck, now and then two. Each call that needs it costs the timeout, so there are few.
void stuck_rank(Dice& dice, ProgramBuilder& program, bool groups) {
  program.keep_small();
  if (dice.one_in(2)) program.call(draw_operation(dice));
  const int world = program.program().world;
  std::vector<int> waiting = program.present();
  for (int stuck = world > 2 && dice.one_in(4) ? 2 : 1; stuck > 0 && world > 1; --stuck) {
    const int rank = dice.pick(waiting);
    std::erase(waiting, rank);
    program.leave(std::vector<int>{rank}, Departure::stalls);
  }
  program.call(draw_operation(dice));
  if (groups && dice.one_in(2)) program.call(draw_operation(dice), draw_group(dice, waiting));
  program.call(draw_operation(dice));
}

// Groups in any order, used again and in turn with the world.
void calls_in_groups(Dice& dice, ProgramBuilder& program) {
  const std::vector<int> everybody = program.present();
  std::vector<std::vector<int>> groups;
  for (int count = static_cast<int>(dice.between(1, 3)); count > 0; --count) {
    groups.push_back(draw_group(dice, everybody));
  }
  program.call(draw_operation(dice), groups[0]);
  for (int calls = static_cast<int>(dice.between(0, 4)); calls > 0; --calls) {
    const std::vector<int> group = dice.one_in(4) ? std::vector<int>{} : dice.pick(groups);
    if (dice.one_in(10)) {
      program.broken_call(draw_operation(dice), group);
    } else {
      program.call(draw_operation(dice), group);
    }
  }
}

// Calls that say something of one another, with or without others around.
void related_calls(Dice& dice, ProgramBuilder& program, bool groups) {
  for (int sets = dice.pick({1, 1, 1, 2}); sets > 0; --sets) {
    if (dice.one_in(4)) program.call(draw_operation(dice));
    Relation relation = dice.pick(all_relations);
    if (relation == Relation::relabelled_ranks && !groups) relation = Relation::split_rows;
    program.related_calls(relation, groups && dice.one_in(5) ? draw_group(dice, program.present())
                                                             : std::vector<int>{});
  }
}

// A program that is taken back as a whole: losses use some results, on some ranks, and reach others
// through them.
void forward_window(Dice& dice, ProgramBuilder& program, bool groups) {
  program.open_window();
  program.keep_small();
  std::vector<std::vector<int>> communicators(1);  // the world first
  for (int count = groups ? static_cast<int>(dice.between(0, 2)) : 0; count > 0; --count) {
    communicators.push_back(draw_group(dice, program.present()));
  }
  for (int calls = static_cast<int>(dice.between(2, 8)); calls > 0; --calls) {
    Operation operation = draw_operation(dice);
    if (takes_integers(operation) && !dice.one_in(4)) operation = Operation::all_gather_float;
    const std::vector<int> group = dice.one_in(2) ? communicators[0] : dice.pick(communicators);
    if (dice.one_in(20)) {
      program.broken_call(operation, group);
      continue;
    }
    program.call(operation, group);
    if (dice.one_in(2)) program.differentiate();
  }
}

// Calls whose gradients are asked for, now and then in a group or of integers.
void calls_and_gradients(Dice& dice, ProgramBuilder& program, bool groups) {
  if (dice.one_in(3)) return forward_window(dice, program, groups);
  for (int calls = dice.pick({1, 1, 1, 2, 3}); calls > 0; --calls) {
    Operation operation = draw_operation(dice);
    if (takes_integers(operation) && !dice.one_in(8)) operation = Operation::broadcast_float;
    program.call(operation, groups && dice.one_in(5) ? draw_group(dice, program.present())
                                                     : std::vector<int>{});
    program.differentiate();
  }
}

// One call again and again, sometimes between others: up to beyond the numbers at which buffers,
// caches and counters wrap around. The longest in worlds of one, where no rank waits for another.
void repeated_call(Dice& dice, ProgramBuilder& program) {
  const int world = program.program().world;
  if (dice.one_in(4)) program.call(draw_operation(dice));
  program.call(draw_operation(dice));
  std::int64_t times = dice.between(2, 5);
  if (world <= 4 && dice.one_in(8)) times = dice.between(100, 300);
  if (world == 1 && dice.one_in(20)) times = dice.between(65'537, 65'600);
  program.repeat(times);
  if (dice.one_in(4)) program.call(draw_operation(dice));
}

// Results fed into later calls, shapes that come again, groups in turn with the world, and broken
// calls among good ones. Mostly a few calls; many of them only of small tensors, which are cheap.
void mixed_program(Dice& dice, ProgramBuilder& program, bool groups) {
  const std::vector<int> everybody = program.present();
  const std::vector<std::vector<int>> known = {draw_group(dice, everybody),
                                               draw_group(dice, everybody)};
  std::int64_t calls = dice.between(2, 8);
  if (dice.one_in(12)) {
    calls = dice.one_in(4) ? most_steps : dice.between(9, most_steps);
    program.keep_small();
  }
  for (; calls > 0; --calls) {
    if (groups && dice.one_in(6)) {
      program.call(draw_operation(dice),
                   dice.one_in(2) ? dice.pick(known) : draw_group(dice, everybody));
    } else if (dice.one_in(12)) {
      program.broken_call(draw_operation(dice));
    } else if (!dice.one_in(5) || !program.call_again()) {
      program.call(draw_operation(dice));
    }
  }
}

constexpr Property all_properties[] = {
    {"all_gather_float", "all_gather_float joins every rank's rows in rank order, bit for bit"},
    {"all_gather_int", "all_gather_int joins every rank's rows in rank order, bit for bit"},
    {"reduce_scatter_sum", "reduce_scatter_sum gives each rank its rows of the sum"},
    {"all_reduce_sum", "all_reduce_sum gives every rank the same bits of the sum"},
    {"broadcast_float", "broadcast_float gives every rank the root's elements, bit for bit"},
    {"all_to_all_v_float", "all_to_all_v_float moves every row to its rank, counts exact"},
    {"all_to_all_v_int", "all_to_all_v_int moves every row to its rank, counts exact"},
    {"gradient",
     "gradients are the transposes of the calls, also of whole programs; ranks without a loss enter"},
    {"repetition", "a call made again and again goes like the first every time"},
    {"programs", "calls follow one another, on one another's results, without a trace"},
    {"contract", "a broken contract is one error, the same on every rank, and calls go on"},
    {"groups", "sub-communicators keep their own order and their own calls"},
    {"transport", "a missing rank is an error for everybody who needs it, at once from then on"},
    {"relations",
     "related calls agree: a sum and its parts, an exchange and its way back, and so on"},
    {"throw", "a rank that throws is the same transport error for all survivors, in that step"},
    {"stall", "a rank that is stuck is the same transport error for all survivors, after a timeout"},
};

bool is_prime(int n) {
  for (int divisor = 2; divisor * divisor <= n; ++divisor) {
    if (n % divisor == 0) return false;
  }
  return n > 1;
}

// Mostly a few ranks, where a case is quick; worlds of one, odd and large ones more often than
// their share. Worlds that are slow to run come rarely, but come: the largest that the limits
// allow, those just beyond 32, where tables end, and 64.
int draw_world(Dice& dice, int fewest, int most) {
  const auto between = [&](int low, int high) {
    return static_cast<int>(
        dice.between(std::clamp(low, fewest, most), std::clamp(high, fewest, most)));
  };
  if (dice.one_in(512)) {
    switch (dice.below(3)) {
      case 0:
        return between(33, 33);
      case 1:
        return between(64, 64);
      default:
        return between(17, most);
    }
  }
  switch (dice.below(8)) {
    case 0:
    case 1:
    case 2:
      return between(2, 4);
    case 3:
      return between(1, 3);
    case 4: {
      const int start = between(1, 13);
      for (int n = start; n <= most; ++n) {
        if (is_prime(n)) return n;
      }
      return start;
    }
    case 5:
      return dice.one_in(4) ? between(8, 16) : between(1, 8);
    default:
      return between(fewest, std::max(8, fewest + 7));
  }
}

}  // namespace

std::span<const Property> properties() {
  return all_properties;
}

std::uint64_t case_seed(std::uint64_t run_seed, std::string_view property, std::uint64_t index) {
  return derive(run_seed, property, index);
}

Case draw_case(std::string_view property, const GeneratorLimits& limits, std::uint64_t seed) {
  Dice dice(seed);
  int fewest = std::max(1, limits.fewest_ranks);
  // One rank alone has no peer to miss. Where the range has nothing but worlds of one, the case
  // is an ordinary call.
  const bool leaving = property == "transport" || property == "throw" || property == "stall";
  if (leaving) fewest = std::min(std::max(2, fewest), limits.most_ranks);
  if (limits.most_ranks < fewest) {
    throw InvalidArgument("no world has " + std::to_string(limits.fewest_ranks) + " to " +
                          std::to_string(limits.most_ranks) + " ranks");
  }
  // Few ranks, so that a short timeout hits nobody who is only slow.
  const int most = property == "stall" ? std::min(limits.most_ranks, std::max(fewest, 4))
                                       : limits.most_ranks;
  if (property == "stall" && !dice.one_in(4)) fewest = std::min(std::max(3, fewest), most);
  ProgramBuilder program(dice, draw_world(dice, fewest, most));
  if (const std::optional<Operation> operation = operation_named(property)) {
    calls_of(*operation, dice, program);
  } else if (property == "gradient") {
    calls_and_gradients(dice, program, limits.groups);
  } else if (property == "repetition") {
    repeated_call(dice, program);
  } else if (property == "programs") {
    mixed_program(dice, program, limits.groups);
  } else if (property == "contract") {
    broken_contract(dice, program);
  } else if (property == "groups") {
    calls_in_groups(dice, program);
  } else if (property == "transport") {
    missing_rank(dice, program, limits.groups, Departure::returns);
  } else if (property == "throw") {
    missing_rank(dice, program, limits.groups, Departure::throws);
  } else if (property == "stall") {
    stuck_rank(dice, program, limits.groups);
  } else if (property == "relations") {
    related_calls(dice, program, limits.groups);
  } else {
    throw InvalidArgument("no property is named " + std::string(property));
  }
  return program.take();
}

}  // namespace lockstep::kit
