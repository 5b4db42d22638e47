#include <cstdint>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include <lockstep/error.hpp>
#include <lockstep/signature_wire.hpp>

namespace lockstep {
namespace {

using Counts = std::vector<std::int64_t>;

// The ranks' calls, with the counts they refer to.
struct World {
  std::vector<Signature> calls;
  std::vector<Counts> counts;

  World(Operation operation, DType dtype, std::vector<Shape> shapes,
        std::vector<Counts> its_counts = {})
      : counts(std::move(its_counts)) {
    counts.resize(shapes.size());
    for (std::size_t rank = 0; rank < shapes.size(); ++rank) {
      calls.push_back({operation, dtype, shapes[rank], 0, counts[rank]});
    }
  }

  bool fits_by_digest() const {
    std::vector<SignatureDigest> digests;
    for (const Signature& call : calls) {
      digests.push_back(
          digest_from_words(digest_words(digest_of(call, static_cast<int>(calls.size())))));
    }
    return certainly_fit(digests);
  }

  std::optional<Violation> violation() const {
    const std::optional<Breach> breach = find_breach(calls);
    return breach ? std::optional(breach->violation) : std::nullopt;
  }
};

void expect_same(const Signature& a, const Signature& b) {
  EXPECT_EQ(a.operation, b.operation);
  EXPECT_EQ(a.dtype, b.dtype);
  EXPECT_EQ(a.shape, b.shape);
  EXPECT_EQ(a.root, b.root);
  EXPECT_EQ(Counts(a.send_counts.begin(), a.send_counts.end()),
            Counts(b.send_counts.begin(), b.send_counts.end()));
}

TEST(SignatureWire, EveryFieldSurvivesTheJourney) {
  const Counts counts{3, -1, INT64_MAX, 0};
  const Signature sent{Operation::all_to_all_v_int, DType::u32,
                       Shape{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, INT64_MIN, counts};
  const std::vector<std::int64_t> words = encode(sent);
  EXPECT_EQ(static_cast<std::int64_t>(words.size()), digest_of(sent, 4).encoded_words);
  DecodedSignature received = decode_signature(words);
  const DecodedSignature moved = std::move(received);
  expect_same(moved.signature, sent);
}

TEST(SignatureWire, WordsThatAreNoSignatureAreRefused) {
  const Counts counts{1, 2};
  const std::vector<std::int64_t> good =
      encode({Operation::all_to_all_v_int, DType::i32, Shape{3, 1}, 0, counts});
  for (std::size_t length = 0; length < good.size(); ++length) {
    const std::vector<std::int64_t> cut(good.begin(), good.begin() + static_cast<long>(length));
    EXPECT_THROW(decode_signature(cut), InvalidArgument) << "cut to " << length;
  }
  std::vector<std::int64_t> longer = good;
  longer.push_back(0);
  EXPECT_THROW(decode_signature(longer), InvalidArgument);
  for (const std::int64_t stray : {std::int64_t{-1}, std::int64_t{8}, INT64_MAX}) {
    std::vector<std::int64_t> bad = good;
    bad[0] = stray;
    EXPECT_THROW(decode_signature(bad), InvalidArgument) << "operation " << stray;
    bad = good;
    bad[1] = stray;
    EXPECT_THROW(decode_signature(bad), InvalidArgument) << "dtype " << stray;
    bad = good;
    bad[2] = stray;
    EXPECT_THROW(decode_signature(bad), InvalidArgument) << "axes " << stray;
  }
}

TEST(SignatureWire, OrdinaryCallsFitByDigestAlone) {
  for (const Operation operation : {Operation::all_gather_float, Operation::reduce_scatter_sum,
                                    Operation::all_reduce_sum, Operation::broadcast_float}) {
    EXPECT_TRUE(World(operation, DType::f32, {{4, 3}, {4, 3}}).fits_by_digest()) << operation;
    EXPECT_TRUE(World(operation, DType::f16, {{0, 3}, {0, 3}}).fits_by_digest()) << operation;
    EXPECT_TRUE(World(operation, DType::bf16, {{2, 0}, {2, 0}}).fits_by_digest()) << operation;
  }
  EXPECT_TRUE(World(Operation::all_reduce_sum, DType::f64, {{}, {}}).fits_by_digest());
  EXPECT_TRUE(World(Operation::broadcast_float, DType::f64, {{}, {}}).fits_by_digest());
  EXPECT_TRUE(World(Operation::all_gather_int, DType::u8,
                    {{1, 1, 1, 1, 1, 1, 1, 2}, {1, 1, 1, 1, 1, 1, 1, 2}})
                  .fits_by_digest());
  EXPECT_TRUE(World(Operation::all_to_all_v_int, DType::i64, {{3, 2}, {0, 2}}, {{1, 2}, {0, 0}})
                  .fits_by_digest());
}

TEST(SignatureWire, SplitsFitWhateverColorAndKey) {
  World world(Operation::split, DType::f32, {{7}, {-3}});
  world.calls[1].root = -1;
  EXPECT_TRUE(world.fits_by_digest());
  world.calls[1].operation = Operation::all_reduce_sum;
  EXPECT_FALSE(world.fits_by_digest());
}

// Calls that do not fit must never pass by digest: one for each rule.
TEST(SignatureWire, EveryBrokenRuleIsLeftToTheWholeSignatures) {
  using enum Operation;
  constexpr std::int64_t huge = std::int64_t{1} << 62;
  const auto expect = [](const World& world, Violation violation) {
    EXPECT_EQ(world.violation(), violation);
    EXPECT_FALSE(world.fits_by_digest()) << violation;
  };

  World operations(all_reduce_sum, DType::f32, {{2}, {2}});
  operations.calls[1].operation = all_gather_float;
  expect(operations, Violation::operation);
  World dtypes(all_reduce_sum, DType::f32, {{2}, {2}});
  dtypes.calls[1].dtype = DType::f64;
  expect(dtypes, Violation::dtype);
  expect(World(all_reduce_sum, DType::f32, {{2}, {2, 1}}), Violation::axes);
  expect(World(all_reduce_sum, DType::f32, {{}, {0}}), Violation::axes);
  expect(World(all_gather_float, DType::f32, {{0, 3}, {3, 3}}), Violation::shape);
  expect(World(all_to_all_v_float, DType::f32, {{1, 3}, {1, 4}}, {{1, 0}, {1, 0}}),
         Violation::shape);
  expect(World(all_gather_float, DType::f32, {{}, {}}), Violation::leading_axis);
  expect(World(all_to_all_v_float, DType::f32, {{}, {}}, {{0, 0}, {0, 0}}),
         Violation::leading_axis);
  expect(World(reduce_scatter_sum, DType::f32, {{3}, {3}}), Violation::indivisible_rows);
  World root(broadcast_float, DType::f32, {{1}, {1}});
  root.calls[0].root = root.calls[1].root = 2;
  expect(root, Violation::root_out_of_range);
  root.calls[0].root = root.calls[1].root = -1;
  expect(root, Violation::root_out_of_range);
  root.calls[0].root = 0;
  root.calls[1].root = 1;
  expect(root, Violation::roots_differ);
  expect(World(all_to_all_v_int, DType::i32, {{1, 1}, {1, 1}}, {{1, 0}, {1}}),
         Violation::counts_length);
  expect(World(all_to_all_v_int, DType::i32, {{3, 1}, {1, 1}}, {{1, 1}, {1, 0}}),
         Violation::counts_sum);
  expect(World(all_to_all_v_int, DType::i32, {{1, 1}, {1, 1}}, {{2, -1}, {1, 0}}),
         Violation::counts_sum);
  expect(World(all_to_all_v_int, DType::i32, {{1, 0}, {1, 0}}, {{1, 0}, {1, 0}}),
         Violation::zero_trailing_axis);
  expect(World(all_gather_int, DType::u8, {{huge}, {huge}}), Violation::size_overflow);
  expect(World(all_gather_int, DType::u8, {{huge, 0}, {huge, 0}}), Violation::size_overflow);
  expect(World(all_to_all_v_int, DType::u8, {{huge, 1}, {huge, 1}}, {{0, huge}, {0, huge}}),
         Violation::size_overflow);
}

TEST(SignatureWire, WhatADigestCannotTellIsLeftToTheWholeSignatures) {
  constexpr std::int64_t huge = std::int64_t{1} << 62;
  const World nine_axes(Operation::all_reduce_sum, DType::f32,
                        {{1, 1, 1, 1, 1, 1, 1, 1, 2}, {1, 1, 1, 1, 1, 1, 1, 1, 2}});
  EXPECT_FALSE(nine_axes.fits_by_digest());
  EXPECT_EQ(nine_axes.violation(), std::nullopt);
  const World nine_differ(Operation::all_reduce_sum, DType::f32,
                          {{1, 1, 1, 1, 1, 1, 1, 1, 2}, {1, 1, 1, 1, 1, 1, 1, 1, 3}});
  EXPECT_FALSE(nine_differ.fits_by_digest());
  EXPECT_EQ(nine_differ.violation(), Violation::shape);
  // One rank that received all rows would overflow, but none does.
  const World spread(Operation::all_to_all_v_int, DType::u8, {{huge, 1}, {huge, 1}},
                     {{huge, 0}, {0, huge}});
  EXPECT_FALSE(spread.fits_by_digest());
  EXPECT_EQ(spread.violation(), std::nullopt);
}

}  // namespace
}  // namespace lockstep
