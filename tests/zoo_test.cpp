#include <algorithm>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include <hunt.hpp>

namespace lockstep::zoo {
namespace {

TEST(Zoo, HoldsSixtyWrongBackendsAndMoreEachOfItsOwnName) {
  EXPECT_GE(mutants().size(), 60u);
  std::set<std::string_view> names, descriptions;
  for (const Mutant& mutant : mutants()) {
    EXPECT_TRUE(names.insert(mutant.name).second) << mutant.name;
    EXPECT_TRUE(descriptions.insert(mutant.description).second) << mutant.name;
    EXPECT_TRUE(mutant.description.ends_with('.')) << mutant.name;
    EXPECT_FALSE(mutant.name.starts_with("right_")) << mutant.name;
  }
}

TEST(Zoo, GroupsItsBackendsByKind) {
  std::set<std::string_view> kinds;
  std::string_view latest;
  for (const Mutant& mutant : mutants()) {
    if (mutant.kind != latest) {
      EXPECT_TRUE(kinds.insert(mutant.kind).second) << mutant.name << " stands apart from its kind";
    }
    latest = mutant.kind;
  }
  EXPECT_EQ(kinds, (std::set<std::string_view>{"order", "counts", "zero rows", "bits", "sums",
                                               "root", "aliasing", "agreement", "losses", "groups", "state",
                                               "world of one", "last rank", "hangs",
                                               "gradients"}));
}

const Mutant& mutant_named(std::string_view name) {
  const auto found = std::ranges::find(mutants(), name, &Mutant::name);
  EXPECT_NE(found, mutants().end()) << name;
  return *found;
}

Hunt hunted(std::string_view name, std::int64_t cases = 2000) {
  kit::KeptWorlds worlds;
  return hunt(mutant_named(name), {.seed = 1, .cases = cases, .most_ranks = 8}, worlds);
}

struct Caught {
  std::string_view mutant;
  std::string aspect;  // that the judge names
  int ranks;           // of the shrunken case
};

// One of every kind but `state`, which has a test of its own.
const Caught some[] = {
    {"gather_reversed", "bits", 2},
    {"counts_sent", "receive_counts", 2},
    {"empty_default_dtype", "dtype", 1},
    {"zero_sign_lost", "bits", 1},
    {"mean", "sum", 2},
    {"root_ignored", "bits", 2},
    {"all_reduce_in_place", "input", 2},
    {"errors_differ", "message", 2},
    {"group_sorted", "bits", 2},
    {"alone_sum_loses_sign", "sum", 1},
    {"last_not_reached", "bits", 2},
    {"loss_hangs", "outcome", 2},
    {"gather_gradient_sliced", "gradient", 2},
};

TEST(Zoo, LosesABackendOfEachKindToASmallCase) {
  for (const Caught& one : some) {
    const Hunt hunt = hunted(one.mutant);
    ASSERT_TRUE(hunt.kill) << one.mutant;
    EXPECT_EQ(hunt.kill->counterexample.divergence.aspect, one.aspect)
        << one.mutant << "\n"
        << kit::explain(hunt.kill->counterexample);
    EXPECT_EQ(hunt.kill->ranks(), one.ranks) << one.mutant;
    EXPECT_TRUE(hunt.kill->is_small()) << one.mutant << "\n"
                                       << kit::explain(hunt.kill->counterexample);
  }
}

TEST(Zoo, FindsTheCallAtWhichACounterGoesWrong) {
  const Hunt hunt = hunted("every_100th_call");
  ASSERT_TRUE(hunt.kill);
  EXPECT_TRUE(hunt.kill->is_small());
  const kit::Case& shrunk = hunt.kill->counterexample.shrunk;
  ASSERT_EQ(shrunk.steps.size(), 1u);
  EXPECT_EQ(shrunk.steps[0].repeat, 100);
}

TEST(Zoo, NamesAHangAsOne) {
  EXPECT_TRUE(hunted("loss_hangs").kill->hung);
  EXPECT_TRUE(hunted("mismatch_hangs").kill->hung);
  EXPECT_TRUE(hunted("absent_upstream_hangs").kill->hung);
  EXPECT_TRUE(hunted("no_rows_backward_hangs").kill->hung);
  EXPECT_FALSE(hunted("loss_ignored").kill->hung);
}

TEST(Zoo, CatchesTheSameBackendInTheSameWayAgain) {
  const Hunt first = hunted("rounded_at_every_hop");
  const Hunt second = hunted("rounded_at_every_hop");
  ASSERT_TRUE(first.kill && second.kill);
  EXPECT_EQ(first.cases, second.cases);
  EXPECT_EQ(kit::explain(first.kill->counterexample), kit::explain(second.kill->counterexample));
}

TEST(Zoo, NeverCatchesABackendThatIsRight) {
  for (const Mutant& right : right_backends()) {
    kit::KeptWorlds worlds;
    const Hunt hunt = zoo::hunt(right, {.seed = 1, .cases = 1000, .most_ranks = 8}, worlds);
    EXPECT_FALSE(hunt.kill) << right.name << "\n" << kit::explain(hunt.kill->counterexample);
    EXPECT_EQ(hunt.cases, 1000);
  }
}

}  // namespace
}  // namespace lockstep::zoo
