// What can go wrong with forward windows, on every rank alike, and how windows are described.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <lockstep/differentiation/scope.hpp>
#include <lockstep/sim/world.hpp>

#include "expect.hpp"
#include "filled.hpp"

namespace lockstep::differentiation {
namespace {

using lockstep::testing::filled;
using lockstep::testing::tensor;
using sim::Communicator;
using sim::World;
using Value = Tracked<FloatTensor>;

FloatTensor vector(std::vector<float> values) {
  return tensor<float>({static_cast<std::int64_t>(values.size())}, values);
}

FloatTensor times(const FloatTensor& a, const FloatTensor& b) {
  return filled<float>(a.shape(), [&](std::int64_t i) {
    const auto at = static_cast<std::size_t>(i);
    return a.values<float>()[at] * b.values<float>()[at];
  });
}

// Every rank's error in `body`; "nothing" where it threw none.
template <class Body>
std::vector<std::string> errors(World& world, Body body) {
  return world.run([&](Communicator c) -> std::string {
    try {
      body(c);
      return "nothing";
    } catch (const ContractError& error) {
      return std::string(name(error.violation())) + " | " + error.what();
    } catch (const InvalidArgument& error) {
      return error.what();
    }
  });
}

void expect_everywhere(const std::string& text, const std::vector<std::string>& actual) {
  EXPECT_EQ(std::vector<std::string>(actual.size(), text), actual);
}

TEST(Scope, AWindowWithAnExtraCollectiveIsOneError) {
  World world(3);
  expect_everywhere(
      "window | backward on world: broken contract (window): every rank must record the same "
      "collectives; of those on the communicator of ranks 0-2, number 1: ranks 0, 2 recorded "
      "all_reduce_sum; rank 1 recorded nothing",
      errors(world, [](Communicator bare) {
        const Scope scope(bare);
        const Value x = scope.variable(vector({1}));
        const Value y = scope.communicator().all_gather_float(x);
        // Rank 1 enters, but past the scope.
        if (bare.rank() == 1) {
          bare.all_reduce_sum(x.value());
        } else {
          scope.communicator().all_reduce_sum(x);
        }
        scope.backward({{y, vector({1, 2, 3})}});
      }));
}

TEST(Scope, AWindowWithAnotherKindOfCollectiveIsOneError) {
  World world(2);
  expect_everywhere(
      "window | backward on world: broken contract (window): every rank must record the same "
      "collectives; of those on the communicator of ranks 1, 0, number 0: rank 1 recorded "
      "all_gather_float; rank 0 recorded all_reduce_sum",
      errors(world, [](Communicator bare) {
        const Scope scope(bare);
        const auto c = scope.communicator().group({1, 0});
        const auto past = bare.group({1, 0});
        const Value x = scope.variable(vector({1}));
        if (bare.rank() == 0) {
          past.all_gather_float(x.value());
          c.all_reduce_sum(x);
        } else {
          c.all_gather_float(x);
          past.all_reduce_sum(x.value());
        }
        scope.backward({});
      }));
}

TEST(Scope, AWindowErrorLeavesTheCommunicatorUsable) {
  World world(2);
  const auto sums = world.run([](Communicator bare) {
    const Scope scope(bare);
    if (bare.rank() == 0) {
      scope.communicator().all_reduce_sum(vector({1}));
    } else {
      bare.all_reduce_sum(vector({1}));
    }
    EXPECT_THROW(scope.backward({}), ContractError);
    EXPECT_THROW(scope.backward({}), ContractError);  // still open, still broken
    return bare.all_reduce_sum(vector({2}));
  });
  for (const FloatTensor& sum : sums) EXPECT_TENSOR(vector({4}), sum);
}

TEST(Scope, ASeedUnlikeItsValueIsOneErrorAndTheWindowStaysOpen) {
  World world(2);
  const auto gradients = world.run([](Communicator bare) {
    const Scope scope(bare);
    const Value x = scope.variable(vector({1}));
    const Value y = scope.communicator().all_reduce_sum(x);
    EXPECT_ERROR(scope.backward({{y, bare.rank() == 0 ? vector({1}) : tensor<double>({1}, {1})}}),
                 ContractError,
                 "backward on world: broken contract (gradient): an upstream gradient must have "
                 "the dtype and shape of its result; rank 1 passed f64 [1] for f32 [1]");
    EXPECT_ERROR(scope.backward({{y, bare.rank() == 0 ? tensor<float>({}, {1}) : vector({1})}}),
                 ContractError, "rank 0 passed f32 [] for f32 [1]");
    return scope.backward({{y, vector({1.0f + bare.rank()})}}).of(x);
  });
  for (const FloatTensor& gradient : gradients) EXPECT_TENSOR(vector({3}), gradient);
}

TEST(Scope, AWrongSeedOutranksAnotherWindow) {
  World world(2);
  const auto texts = errors(world, [](Communicator bare) {
    const Scope scope(bare);
    const Value x = scope.variable(vector({1}));
    if (bare.rank() == 0) {
      scope.communicator().all_reduce_sum(x);
    } else {
      bare.all_reduce_sum(x.value());
    }
    scope.backward({{x, vector({1, 2})}});
  });
  EXPECT_EQ(texts[0].substr(0, 10), "gradient |");
  EXPECT_EQ(texts[1], texts[0]);
}

TEST(Scope, ASpentScopeRefusesAlikeEverywhere) {
  const std::string spent =
      "this scope is spent: its backward has run. Record the next forward window in a new one";
  World world(3);
  const auto again = [](Communicator bare, int what) {
    const Scope scope(bare);
    const Value x = scope.variable(vector({1}));
    const auto y = scope.communicator().all_reduce_sum(x);
    scope.backward({{y, vector({1})}});
    if (what == 0) scope.backward({{y, vector({1})}});
    if (what == 1) scope.communicator().all_reduce_sum(x);
    if (what == 2) scope.variable(vector({2}));
    if (what == 3) {
      scope.local(vector({2}), {x, y}, [](const FloatTensor& up) { return std::vector{up, up}; });
    }
    if (what == 4) scope.communicator().group({bare.rank()});
  };
  for (int what = 0; what < 5; ++what) {
    expect_everywhere(spent, errors(world, [&](Communicator c) { again(c, what); }));
  }
}

TEST(Scope, ARankThatSkipsBackwardIsATransportError) {
  World world(3);
  EXPECT_ERROR(world.run([](Communicator bare) {
    const Scope scope(bare);
    const Value y = scope.communicator().all_reduce_sum(scope.variable(vector({1})));
    if (bare.rank() != 1) scope.backward({{y, vector({1})}});
  }),
               TransportError, "rank 1");
}

TEST(Scope, APullBackThatGivesTheWrongGradientsIsRefused) {
  World world(1);
  world.run([](Communicator bare) {
    const auto differentiate = [&](Scope<Communicator>::PullBack pull_back) {
      const Scope scope(bare);
      const Value x = scope.variable(vector({1}));
      const Value y = scope.local(vector({2}), {x}, std::move(pull_back));
      scope.backward({{y, vector({1})}});
    };
    EXPECT_ERROR(differentiate([](const FloatTensor&) { return std::vector<FloatTensor>(); }),
                 InvalidArgument, "a pull-back gave 0 gradients for 1 inputs");
    EXPECT_ERROR(differentiate([](const FloatTensor&) {
                   return std::vector{vector({1, 2})};
                 }),
                 InvalidArgument, "a pull-back gave a gradient f32 [2] for a value f32 [1]");
    EXPECT_ERROR(differentiate(nullptr), InvalidArgument, "needs a pull-back");
  });
}

TEST(Scope, ValuesOfAnotherScopeAreRefused) {
  World world(1);
  world.run([](Communicator bare) {
    const Scope scope(bare);
    const Scope other(bare);
    const Value x = other.variable(vector({1}));
    EXPECT_ERROR(scope.communicator().all_reduce_sum(x), InvalidArgument, "another scope");
    EXPECT_ERROR(scope.backward({{x, vector({1})}}), InvalidArgument, "another scope");
    const auto gradients = scope.backward({});
    EXPECT_ERROR(gradients.of(x), InvalidArgument, "the scope's own variables");
    EXPECT_ERROR(gradients.of(vector({1})), InvalidArgument, "the scope's own variables");
  });
}

TEST(Scope, AValueOfAnotherScopeIsRefusedBeforeTheCallIsEntered) {
  World world(2);
  const auto sums = world.run([](Communicator bare) {
    const Scope scope(bare);
    const Scope other(bare);
    const Value x = other.variable(vector({1}));
    EXPECT_ERROR(scope.communicator().all_reduce_sum(x), InvalidArgument, "another scope");
    EXPECT_ERROR(scope.communicator().all_to_all_v_float(x, std::vector<std::int64_t>{1, 0}),
                 InvalidArgument, "another scope");
    // Had it entered, this would be out of step with what was recorded.
    const Value y = scope.variable(vector({1.0f + bare.rank()}));
    const Value sum = scope.communicator().all_reduce_sum(y);
    scope.backward({{sum, vector({1})}});
    return sum.value();
  });
  for (const FloatTensor& sum : sums) EXPECT_TENSOR(vector({3}), sum);
}

TEST(Scope, AGradientOfOneOperationMeetsABackwardAsOneError) {
  World world(2);
  expect_everywhere(
      "operation | gradient on world: broken contract (operation): every rank must ask for the same "
      "gradient; rank 0 asked for that of a whole window; rank 1 asked for that of all_reduce_sum",
      errors(world, [](Communicator bare) {
        const Scope scope(bare);
        const Value y = scope.communicator().all_reduce_sum(scope.variable(vector({1})));
        if (bare.rank() == 0) {
          scope.backward({{y, vector({1})}});
        } else {
          all_reduce_gradient(bare, y.value(), vector({1}));
        }
      }));
}

TEST(Scope, IsUsedByOneThreadAtATime) {
  World world(1);
  world.run([](Communicator bare) {
    const Scope scope(bare);
    const auto c = scope.communicator();
    const Value x = scope.variable(vector({3}));
    // In turn, threads may share it.
    Value y = x;
    std::thread([&] { y = c.group({0}).all_reduce_sum(x); }).join();
    const Value z = scope.local(vector({6}), {y}, [&](const FloatTensor& up) {
      // At once they may not: this thread is in the middle of backward.
      std::thread([&] {
        EXPECT_ERROR(scope.variable(vector({1})), InvalidArgument, "two threads use one scope");
        EXPECT_ERROR(c.all_reduce_sum(vector({1})), InvalidArgument, "two threads use one scope");
      }).join();
      // And what this thread itself asks for now comes too late.
      EXPECT_ERROR(scope.variable(vector({1})), InvalidArgument, "spent");
      EXPECT_ERROR(scope.backward({}), InvalidArgument, "spent");
      return std::vector{up};
    });
    EXPECT_TENSOR(vector({5}), scope.backward({{z, vector({5})}}).of(x));
  });
}

TEST(Scope, APullBackThatThrowsLeavesTheOthersWithATransportError) {
  World world(3);
  EXPECT_ERROR(world.run([](Communicator bare) {
    const Scope scope(bare);
    const auto c = scope.communicator();
    const Value x = c.all_reduce_sum(scope.variable(vector({1})));
    const Value y = scope.local(vector({1}), {x}, [&](const FloatTensor& up) {
      if (bare.rank() == 1) throw Error("out of memory");
      return std::vector{up};
    });
    const Value z = c.all_reduce_sum(y);
    scope.backward({{z, vector({1})}});
  }),
               Error, "out of memory");
  ASSERT_EQ(world.failures().size(), 3u);
  for (std::size_t i : {1u, 2u}) {
    EXPECT_NE(world.failures()[i].text.find("rank 1 can no longer arrive: it threw"),
              std::string::npos)
        << world.failures()[i].text;
  }
}

TEST(Scope, ThatIsGivenUpFreesWhatItsPullBacksHold) {
  World world(1);
  world.run([](Communicator bare) {
    const auto held = std::make_shared<int>(0);
    {
      const Scope scope(bare);
      const Value x = scope.variable(vector({1}));
      // Pull-backs hold tracked values, which are no handles of the scope.
      const Value y = scope.local(vector({1}), {x}, [held, x](const FloatTensor&) {
        return std::vector{x.value()};
      });
      scope.local(vector({1}), {x, y}, [held, x, y](const FloatTensor& up) {
        return std::vector{times(up, x.value()), y.value()};
      });
      EXPECT_EQ(held.use_count(), 3);
    }
    EXPECT_EQ(held.use_count(), 1);
  });
}

TEST(Scope, ThatIsGivenUpLeavesItsCommunicators) {
  // The peers of a rank that drops its scope halfway must hear of it.
  std::vector<Communicator> ranks = sim::make_communicators(2);
  std::thread leaver([own = std::move(ranks[0])]() mutable {
    const Scope scope(std::move(own));
    const Value x = scope.variable(vector({1}));
    const Value y = scope.communicator().all_reduce_sum(x);
    scope.local(vector({1}), {y}, [x, y](const FloatTensor& up) { return std::vector{up}; });
  });
  const Communicator stays = std::move(ranks[1]);
  ranks.clear();
  stays.all_reduce_sum(vector({1}));
  EXPECT_THROW(stays.all_reduce_sum(vector({1})), TransportError);
  leaver.join();
}

TEST(Scope, OfAGroupIsTakenBackByItsMembersAlone) {
  World world(4);
  const auto gradients = world.run([](Communicator bare) -> std::optional<FloatTensor> {
    if (bare.rank() == 1) return std::nullopt;
    const Scope scope(bare.group({3, 0, 2}));
    const auto c = scope.communicator();
    const auto pair = c.rank() < 2 ? std::optional(c.group({1, 0})) : std::nullopt;  // 0 and 3
    const Value x = scope.variable(vector({1.0f + bare.rank()}));
    const Value y = pair ? pair->all_reduce_sum(x) : x;
    const Value z = c.all_gather_float(y);
    std::vector<Seed<FloatTensor>> seeds;
    if (c.rank() == 2) seeds = {{z, vector({1, 10, 100})}};
    return scope.backward(seeds).of(x);
  });
  EXPECT_TENSOR(vector({11}), *gradients[0]);
  EXPECT_TENSOR(vector({11}), *gradients[3]);
  EXPECT_TENSOR(vector({100}), *gradients[2]);
}

TEST(Scope, ScopesBesideEachOtherKeepTheirOwnWindows) {
  World world(2);
  const auto all = world.run([](Communicator bare) {
    const Scope outer(bare);
    const Scope inner(bare);
    const Value x = outer.variable(vector({1.0f + bare.rank()}));
    const Value u = inner.variable(vector({5}));
    const Value y = outer.communicator().all_reduce_sum(x);
    const Value v = inner.communicator().all_gather_float(u);
    const Value z = outer.communicator().all_reduce_sum(y);
    const auto of_inner = inner.backward({{v, vector({1, 10})}}).of(u);
    // The result of a scope that is spent is an ordinary tensor to another one.
    const auto of_outer = outer.backward({{z, vector({1})}, {y, v.value().slice_rows(0, 1)}}).of(x);
    return std::pair{of_inner, of_outer};
  });
  EXPECT_TENSOR(vector({2}), all[0].first);
  EXPECT_TENSOR(vector({20}), all[1].first);
  for (const auto& [inner, outer] : all) EXPECT_TENSOR(vector({4 + 10}), outer);
}

TEST(Scope, GivesBackWhatItHeldAfterBackward) {
  World world(1);
  world.run([](Communicator bare) {
    const auto held = std::make_shared<int>(0);
    const Scope scope(bare);
    const Value x = scope.variable(vector({1}));
    const Value y =
        scope.local(vector({1}), {x}, [held](const FloatTensor& up) { return std::vector{up}; });
    EXPECT_EQ(held.use_count(), 2);
    scope.backward({{y, vector({1})}});
    EXPECT_EQ(held.use_count(), 1);
  });
}

// --- Windows as descriptions

TEST(Window, SurvivesTheWire) {
  Window window;
  window.communicators = {{{}, {}}, {{2, 0}, {2, 2, 0}}};
  window.collectives = {{0, Operation::all_reduce_sum, {}},
                        {1, Operation::all_to_all_v_float, {0}},
                        {0, Operation::broadcast_float, {1, 0}}};
  window.loss = {2, 0};
  window.unlike = {{{DType::bf16, {2, 3}}, {DType::f32, {}}}};
  const Window read = decode_window(encode(window));
  ASSERT_EQ(read.communicators.size(), 2u);
  EXPECT_EQ(read.communicators[1].members, (std::vector<int>{2, 0}));
  EXPECT_EQ(read.communicators[1].origin, (std::vector<std::int64_t>{2, 2, 0}));
  ASSERT_EQ(read.collectives.size(), 3u);
  EXPECT_EQ(read.collectives[1].communicator, 1);
  EXPECT_EQ(read.collectives[1].operation, Operation::all_to_all_v_float);
  EXPECT_EQ(read.collectives[2].feeds_on, (Frontier{1, 0}));
  EXPECT_EQ(read.loss, (Frontier{2, 0}));
  ASSERT_EQ(read.unlike.size(), 1u);
  EXPECT_EQ(read.unlike[0].value, (TensorType{DType::bf16, {2, 3}}));
  EXPECT_EQ(read.unlike[0].upstream, (TensorType{DType::f32, {}}));
}

// Backends that move integers wrongly must not take the program down with them.
TEST(Window, ThatArrivesCutOffOrMangledIsRefused) {
  Window window;
  window.communicators = {{{}, {}}, {{1, 0}, {2, 1, 0}}};
  window.collectives = {{0, Operation::all_reduce_sum, {}}, {1, Operation::all_gather_float, {0}}};
  window.loss = {1, 0};
  const std::vector<std::int64_t> whole = encode(window);
  for (std::size_t length = 0; length < whole.size(); ++length) {
    EXPECT_THROW(decode_window(std::span(whole).first(length)), Error) << length;
  }
  for (std::size_t i = 0; i < whole.size(); ++i) {
    for (const std::int64_t value : {whole[i] + 1, std::int64_t{-2}, INT64_MAX}) {
      std::vector<std::int64_t> mangled = whole;
      mangled[i] = value;
      const std::vector<std::int64_t> of_both[] = {whole, mangled};
      try {
        find_reached(of_both, 0);
      } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("all_gather_int returned"), std::string::npos);
      }
    }
  }
}

TEST(Window, WithCallsOnACommunicatorOfOthersIsRefused) {
  Window of_rank_0;
  of_rank_0.communicators = {{{}, {}}, {{1}, {1, 1}}};
  of_rank_0.collectives = {{1, Operation::all_reduce_sum, {}}};
  of_rank_0.loss = {0};
  Window of_rank_1;
  of_rank_1.communicators = {{{}, {}}};
  const std::vector<std::int64_t> both[] = {encode(of_rank_0), encode(of_rank_1)};
  EXPECT_ERROR(find_reached(both, 0), Error, "it is no member of");
}

TEST(Frontiers, LeaveOutWhatFollowsFromTheRest) {
  Frontiers frontiers;
  frontiers.add({});      // 0
  frontiers.add({});      // 1
  frontiers.add({0});     // 2
  frontiers.add({2, 1});  // 3
  EXPECT_EQ(frontiers.join({1}, {0}), (Frontier{1, 0}));
  EXPECT_EQ(frontiers.join({2}, {1, 0}), (Frontier{2, 1}));
  EXPECT_EQ(frontiers.join({3}, {2, 1}), (Frontier{3}));
  EXPECT_EQ(frontiers.join({3}, {0}), (Frontier{3}));
}

}  // namespace
}  // namespace lockstep::differentiation
