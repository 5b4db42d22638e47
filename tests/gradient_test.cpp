// The plain gradient functions on simulated ranks. The reports named below are public faults of
// other libraries (docs/reports.md).
#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/differentiation/derived.hpp>
#include <lockstep/differentiation/gradient.hpp>
#include <lockstep/sim/world.hpp>

#include "expect.hpp"
#include "filled.hpp"

namespace lockstep::differentiation {
namespace {

using lockstep::testing::counting;
using lockstep::testing::filled;
using lockstep::testing::tensor;
using sim::Communicator;
using sim::World;
using Counts = std::vector<std::int64_t>;

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

// 1, 10, 100, ...: sums of any of them tell which.
float decimal_place(int rank) {
  float value = 1;
  while (rank-- > 0) value *= 10;
  return value;
}

// Every rank's error in `body`, as text; "nothing" where it threw none.
template <class Body>
std::vector<std::string> errors(World& world, Body body) {
  return world.run([&](Communicator c) -> std::string {
    try {
      body(c);
      return "nothing";
    } catch (const ContractError& error) {
      return std::string(name(error.violation())) + " | " + error.what();
    }
  });
}

// --- What the upstream gradients become

TEST(B56, AGatherGivesBackTheSumOverAllRanks) {
  World world(2);
  const auto gradients = world.run([](Communicator c) {
    const auto y = c.all_gather_float(tensor<float>({1}, {5.0f + c.rank()}));
    return all_gather_gradient(
        c, y, c.rank() == 0 ? tensor<float>({2}, {1, 10}) : tensor<float>({2}, {100, 1000}));
  });
  EXPECT_TENSOR(tensor<float>({1}, {101}), gradients[0]);
  EXPECT_TENSOR(tensor<float>({1}, {1010}), gradients[1]);
}

TEST(B57, NothingIsDividedByTheWorldSize) {
  World world(3);
  const auto all = world.run([](Communicator c) {
    const auto x = tensor<float>({1}, {2.0f + c.rank()});
    const auto upstream = tensor<float>({1}, {decimal_place(c.rank())});
    const auto wide = filled<float>({3}, [&](auto) { return decimal_place(c.rank()); });
    return std::vector{all_reduce_gradient(c, c.all_reduce_sum(x), upstream),
                       all_gather_gradient(c, c.all_gather_float(x), wide),
                       broadcast_gradient(c, c.broadcast_float(x, 1), 1, upstream)};
  });
  for (std::size_t rank = 0; rank < 3; ++rank) {
    EXPECT_TENSOR(tensor<float>({1}, {111}), all[rank][0]);
    EXPECT_TENSOR(tensor<float>({1}, {111}), all[rank][1]);
    EXPECT_TENSOR(tensor<float>({1}, {rank == 1 ? 111.0f : 0.0f}), all[rank][2]);
  }
}

TEST(B58, SlicesGoByTheRankInTheCommunicator) {
  World world(4);
  const auto gradients = world.run([](Communicator all) -> std::optional<FloatTensor> {
    if (all.rank() < 2) return std::nullopt;
    const Communicator c = all.group({2, 3});
    const auto y = c.all_gather_float(tensor<float>({1}, {5.0f + c.rank()}));
    return all_gather_gradient(
        c, y, c.rank() == 0 ? tensor<float>({2}, {1, 10}) : tensor<float>({2}, {100, 1000}));
  });
  EXPECT_TENSOR(tensor<float>({1}, {101}), *gradients[2]);
  EXPECT_TENSOR(tensor<float>({1}, {1010}), *gradients[3]);
}

TEST(B59, AnAllReduceGivesBackTheSumToEveryRank) {
  World world(3);
  for (const FloatTensor& gradient : world.run([](Communicator c) {
         const auto y = c.all_reduce_sum(tensor<double>({1}, {2.0 + c.rank()}));
         return all_reduce_gradient(c, y, tensor<double>({1}, {decimal_place(c.rank())}));
       })) {
    EXPECT_TENSOR(tensor<double>({1}, {111}), gradient);
  }
}

TEST(B60, OnlyTheRootOfABroadcastHasAGradient) {
  World world(3);
  const auto gradients = world.run([](Communicator c) {
    const auto y = c.broadcast_float(tensor<float>({1}, {7.0f * c.rank()}), 2);
    return broadcast_gradient(c, y, 2, tensor<float>({1}, {decimal_place(c.rank())}));
  });
  EXPECT_TENSOR(tensor<float>({1}, {0}), gradients[0]);
  EXPECT_TENSOR(tensor<float>({1}, {0}), gradients[1]);
  EXPECT_TENSOR(tensor<float>({1}, {111}), gradients[2]);
}

TEST(B61, AnExchangeGoesBackByTheReceivedCounts) {
  World world(2);
  const auto gradients = world.run([](Communicator c) {
    const auto y = c.all_to_all_v_float(counting<float>({3, 1}, 10 * c.rank()),
                                        c.rank() == 0 ? Counts{1, 2} : Counts{0, 3});
    EXPECT_EQ(y.receive_counts, c.rank() == 0 ? (Counts{1, 0}) : (Counts{2, 3}));
    return all_to_all_v_gradient(
        c, y, c.rank() == 0 ? tensor<float>({1, 1}, {7}) : tensor<float>({5, 1}, {1, 2, 3, 4, 5}));
  });
  EXPECT_TENSOR(tensor<float>({3, 1}, {7, 1, 2}), gradients[0]);
  EXPECT_TENSOR(tensor<float>({3, 1}, {3, 4, 5}), gradients[1]);
}

TEST(B62, AReduceScatterGivesBackAGather) {
  World world(2);
  for (const FloatTensor& gradient : world.run([](Communicator c) {
         const auto y = c.reduce_scatter_sum(tensor<float>({2}, {1.0f * c.rank(), 4}));
         return reduce_scatter_gradient(c, y, tensor<float>({1}, {3.0f + 2 * c.rank()}));
       })) {
    EXPECT_TENSOR(tensor<float>({2}, {3, 5}), gradient);
  }
}

TEST(B63, AMissingUpstreamCountsAsZeroAndStillEnters) {
  World world(2);
  const auto gradients = world.run([](Communicator c) {
    const auto y = c.all_gather_float(tensor<float>({1}, {5.0f + c.rank()}));
    const std::optional<FloatTensor> none;
    return all_gather_gradient(c, y, c.rank() == 0 ? tensor<float>({2}, {1, 10}) : none);
  });
  EXPECT_TENSOR(tensor<float>({1}, {1}), gradients[0]);
  EXPECT_TENSOR(tensor<float>({1}, {10}), gradients[1]);
}

TEST(Gradient, OfResultsThatAreInfiniteOrNaNIsATrueZeroWhereThereIsNoUpstream) {
  World world(3);
  for (const auto& of_rank : world.run([](Communicator c) {
         const auto y = c.all_reduce_sum(tensor<float>({3}, {infinity, nan, -0.0f}));
         return std::vector{
             all_reduce_gradient(c, y, std::nullopt),
             all_reduce_gradient(
                 c, y,
                 c.rank() == 1 ? std::optional(tensor<float>({3}, {2, -3, -0.0f})) : std::nullopt)};
       })) {
    EXPECT_TENSOR(tensor<float>({3}, {0, 0, 0}), of_rank[0]);
    EXPECT_TENSOR(tensor<float>({3}, {2, -3, 0}), of_rank[1]);
  }
}

TEST(Gradient, OfRanksWithoutRowsIsEmptyAndTheyEnter) {
  World world(3);
  const auto all = world.run([](Communicator c) {
    const FloatTensor empty = tensor<bf16>({0, 2}, {});
    // Only rank 1 has rows, and sends them to rank 2.
    const auto y = c.rank() == 1 ? c.all_to_all_v_float(counting<float>({2, 2}), Counts{0, 0, 2})
                                 : c.all_to_all_v_float(tensor<float>({0, 2}, {}), Counts{0, 0, 0});
    const auto upstream = filled<float>(y.value.shape(), [](auto i) { return i + 3; });
    return std::vector{all_gather_gradient(c, c.all_gather_float(empty), empty),
                       reduce_scatter_gradient(c, c.reduce_scatter_sum(empty), empty),
                       all_reduce_gradient(c, c.all_reduce_sum(empty), empty),
                       broadcast_gradient(c, c.broadcast_float(empty, 2), 2, empty),
                       all_to_all_v_gradient(c, y, upstream)};
  });
  for (std::size_t rank = 0; rank < 3; ++rank) {
    for (std::size_t i = 0; i < 4; ++i) EXPECT_TENSOR(tensor<bf16>({0, 2}, {}), all[rank][i]);
  }
  EXPECT_TENSOR(tensor<float>({0, 2}, {}), all[0][4]);
  EXPECT_TENSOR(tensor<float>({2, 2}, {3, 4, 5, 6}), all[1][4]);
  EXPECT_TENSOR(tensor<float>({0, 2}, {}), all[2][4]);
}

TEST(Gradient, InAWorldOfOneKeepsEveryBit) {
  World world(1);
  const auto all = world.run([](Communicator c) {
    const auto x = tensor<float>({2}, {1, 2});
    const auto upstream = tensor<float>({2}, {from_bits<float>(0x7f800123u), -0.0f});
    return std::vector{all_gather_gradient(c, c.all_gather_float(x), upstream),
                       reduce_scatter_gradient(c, c.reduce_scatter_sum(x), upstream),
                       all_reduce_gradient(c, c.all_reduce_sum(x), upstream),
                       broadcast_gradient(c, c.broadcast_float(x, 0), 0, upstream),
                       all_to_all_v_gradient(c, c.all_to_all_v_float(x, Counts{2}), upstream)};
  });
  for (const FloatTensor& gradient : all[0]) {
    EXPECT_TENSOR(tensor<float>({2}, {from_bits<float>(0x7f800123u), -0.0f}), gradient);
  }
}

// --- Errors

TEST(B64, AGradientKeepsItsDtypeAndNoOtherIsTaken) {
  World world(2);
  const auto bf = [](float x) { return to_bf16(x); };
  for (const FloatTensor& gradient : world.run([&](Communicator c) {
         const auto y = c.all_gather_float(tensor<bf16>({1}, {bf(1.0f + c.rank())}));
         const bf16 up = bf(c.rank() == 0 ? 3 : 5);
         return all_gather_gradient(c, y, tensor<bf16>({2}, {up, up}));
       })) {
    EXPECT_TENSOR(tensor<bf16>({1}, {bf(8)}), gradient);
  }
  const auto texts = errors(world, [&](Communicator c) {
    const auto y = c.all_gather_float(tensor<bf16>({1}, {bf(1.0f + c.rank())}));
    all_gather_gradient(
        c, y, c.rank() == 0 ? tensor<bf16>({2}, {bf(3), bf(3)}) : tensor<float>({2}, {5, 5}));
  });
  for (const std::string& text : texts) {
    EXPECT_EQ(text,
              "gradient | gradient of all_gather_float on world: broken contract (gradient): an "
              "upstream gradient must have the dtype and shape of its result; rank 1 passed f32 "
              "[2] for bf16 [2]");
  }
}

TEST(Gradient, OfAnotherShapeIsOneErrorOfEveryOperationAndCallsGoOn) {
  World world(3);
  const auto wrong = [](const FloatTensor& y, Communicator c) {
    return c.rank() == 2 ? FloatTensor::zeros(y.dtype(), {y.elements() + 1}) : y;
  };
  const auto differentiate = [&](int operation, Communicator c) {
    const auto x = counting<double>({3, 2}, c.rank());
    if (operation == 0) {
      const auto y = c.all_gather_float(x);
      all_gather_gradient(c, y, wrong(y, c));
    } else if (operation == 1) {
      const auto y = c.reduce_scatter_sum(x);
      reduce_scatter_gradient(c, y, wrong(y, c));
    } else if (operation == 2) {
      const auto y = c.all_reduce_sum(x);
      all_reduce_gradient(c, y, wrong(y, c));
    } else if (operation == 3) {
      const auto y = c.broadcast_float(x, 1);
      broadcast_gradient(c, y, 1, wrong(y, c));
    } else {
      const auto y = c.all_to_all_v_float(x, Counts{0, 1, 2});
      all_to_all_v_gradient(c, y, wrong(y.value, c));
    }
  };
  for (int operation = 0; operation < 5; ++operation) {
    const auto texts = errors(world, [&](Communicator c) {
      EXPECT_THROW(differentiate(operation, c), ContractError);
      EXPECT_TENSOR(tensor<float>({}, {3}), c.all_reduce_sum(tensor<float>({}, {1})));
      differentiate(operation, c);
    });
    EXPECT_EQ(texts[0].substr(0, 11), "gradient | ") << texts[0];
    EXPECT_EQ(texts[1], texts[0]);
    EXPECT_EQ(texts[2], texts[0]);
    EXPECT_NE(texts[0].find("; rank 2 passed f64 ["), std::string::npos) << texts[0];
  }
}

TEST(Gradient, OfDifferentOperationsOnDifferentRanksIsOneError) {
  World world(3);
  const auto texts = errors(world, [](Communicator c) {
    const auto x = tensor<float>({3}, {1.0f * c.rank(), 2, 3});
    const auto gathered = c.all_gather_float(x);
    const auto summed = c.all_reduce_sum(x);
    if (c.rank() == 1) {
      all_reduce_gradient(c, summed, x);
    } else {
      all_gather_gradient(c, gathered, gathered);
    }
  });
  for (const std::string& text : texts) {
    EXPECT_EQ(text,
              "operation | gradient on world: broken contract (operation): every rank must ask for "
              "the same gradient; ranks 0, 2 asked for that of all_gather_float; rank 1 asked for "
              "that of all_reduce_sum");
  }
}

TEST(Gradient, OfABroadcastFromAnotherRootIsOneError) {
  World world(2);
  const auto with_roots = [&](std::int64_t first, std::int64_t second) {
    return errors(world, [=](Communicator c) {
      const auto y = c.broadcast_float(tensor<float>({1}, {1.0f + c.rank()}), 1);
      broadcast_gradient(c, y, c.rank() == 0 ? first : second, y);
    });
  };
  for (const std::string& text : with_roots(0, 1)) {
    EXPECT_EQ(text,
              "roots_differ | gradient of broadcast_float on world: broken contract (roots_differ): "
              "every rank must name the same root; rank 0 passed root 0; rank 1 passed root 1");
  }
  EXPECT_EQ(with_roots(1, 2)[0].substr(0, 20), "root_out_of_range | ");
  EXPECT_EQ(with_roots(1, 1)[0], "nothing");
}

TEST(B65, IntegersHaveNoDerivative) {
  World world(2);
  for (const std::string& text :
       errors(world, [](Communicator c) { all_gather_int_gradient(c); })) {
    EXPECT_EQ(text,
              "not_differentiable | gradient of all_gather_int on world: broken contract "
              "(not_differentiable): an operation on integers has no derivative");
  }
  for (const std::string& text :
       errors(world, [](Communicator c) { all_to_all_v_int_gradient(c); })) {
    EXPECT_EQ(text.substr(0, 66),
              "not_differentiable | gradient of all_to_all_v_int on world: broken");
  }
}

// --- Integers told to all

TEST(HostIntegers, OfDifferentLengthsArriveWhole) {
  World world(4);
  const std::vector<int> lengths = {0, 63, 64, 1000};
  const auto own = [&](int rank) {
    std::vector<std::int64_t> integers;
    for (int i = 0; i < lengths[static_cast<std::size_t>(rank)]; ++i) {
      integers.push_back((std::int64_t{1} << 53) + 10'000 * rank + i);
    }
    return integers;
  };
  for (const auto& told : world.run(
           [&](Communicator c) { return HostIntegers<Communicator>::gather(c, own(c.rank())); })) {
    ASSERT_EQ(told.size(), 4u);
    for (int rank = 0; rank < 4; ++rank) {
      EXPECT_EQ(told[static_cast<std::size_t>(rank)], own(rank)) << "rank " << rank;
    }
  }
}

// A communicator that gets the integers of its peers wrong.
struct WrongIntegers : Communicator {
  WrongIntegers(Communicator base, IntTensor (*change_)(IntTensor))
      : Communicator(base), change(change_) {}
  IntTensor all_gather_int(const IntTensor& x) const {
    return change(Communicator::all_gather_int(x));
  }
  IntTensor (*change)(IntTensor);
};

TEST(HostIntegers, ThatABackendGetsWrongAreAnErrorAndNothingWorse) {
  World world(2);
  IntTensor (*const changes[])(IntTensor) = {
      [](IntTensor x) { return IntTensor::zeros(DType::i32, x.shape()); },
      [](IntTensor x) { return IntTensor::zeros(x.dtype(), {x.elements() - 1}); },
      [](IntTensor x) { return IntTensor::zeros(x.dtype(), x.shape()); },
      [](IntTensor x) {
        for (std::int64_t& value : x.mutable_values<std::int64_t>()) value = -1;
        return x;
      },
      [](IntTensor x) {
        for (std::int64_t& value : x.mutable_values<std::int64_t>()) value = 63;
        return x;
      },
      [](IntTensor x) {
        for (std::int64_t& value : x.mutable_values<std::int64_t>()) value = INT64_MAX;
        return x;
      },
  };
  for (const auto change : changes) {
    const auto texts = world.run([&](Communicator bare) -> std::string {
      const WrongIntegers c(bare, change);
      const auto y = c.all_reduce_sum(tensor<float>({1}, {1}));
      try {
        all_reduce_gradient(c, y, y);
      } catch (const Error& error) {
        return error.what();
      }
      return "nothing";
    });
    for (const std::string& text : texts) {
      EXPECT_NE(text.find("all_gather_int returned"), std::string::npos) << text;
    }
  }
}

// --- Tensor operations

TEST(TensorOperations, AddRoundsOnceToTheDtype) {
  using Operations = TensorOperations<FloatTensor>;
  EXPECT_TENSOR(tensor<float>({3}, {16777216, -0.0f, 0}),
                Operations::add(tensor<float>({3}, {16777216, -0.0f, -0.0f}),
                                tensor<float>({3}, {1, -0.0f, 0.0f})));
  EXPECT_TENSOR(
      tensor<f16>({1}, {to_f16(2048.0f)}),
      Operations::add(tensor<f16>({1}, {to_f16(2048.0f)}), tensor<f16>({1}, {to_f16(1.0f)})));
}

TEST(TensorOperations, DivideRoundsOnceToTheDtype) {
  using Operations = TensorOperations<FloatTensor>;
  EXPECT_TENSOR(tensor<float>({2}, {1.0f / 3, -2}),
                Operations::divide(tensor<float>({2}, {1, -6}), 3));
  EXPECT_TENSOR(tensor<bf16>({2}, {bf16{0x3eab}, bf16{0xff80}}),  // 0.333984375
                Operations::divide(tensor<bf16>({2}, {to_bf16(1.0f), to_bf16(-infinity)}), 3));
}

TEST(TensorOperations, AMovedAxisLeavesTheOthersInTheirOrder) {
  using Operations = TensorOperations<FloatTensor>;
  const auto x = counting<float>({2, 1, 3});
  EXPECT_TENSOR(tensor<float>({3, 2, 1}, {0, 3, 1, 4, 2, 5}), Operations::move_axis(x, 2, 0));
  EXPECT_TENSOR(x, Operations::move_axis(Operations::move_axis(x, 2, 0), 0, 2));
  EXPECT_TENSOR(FloatTensor::zeros(DType::f32, {4, 0, 5}),
                Operations::move_axis(FloatTensor::zeros(DType::f32, {0, 5, 4}), 2, 0));
  EXPECT_ERROR(Operations::move_axis(x, 3, 0), InvalidArgument, "no axis 3");
}

// --- Derived operations on bare communicators

TEST(Derived, GathersAndScattersAlongAnotherAxis) {
  World world(2);
  const auto all = world.run([](Communicator c) {
    const auto x = counting<float>({2, 2}, 10 * c.rank());
    return std::vector{all_gather_along(c, x, 1), reduce_scatter_along(c, x, 1),
                       all_gather_along(c, x, 0)};
  });
  for (const auto& of_rank : all) {
    EXPECT_TENSOR(tensor<float>({2, 4}, {0, 1, 10, 11, 2, 3, 12, 13}), of_rank[0]);
    EXPECT_TENSOR(tensor<float>({4, 2}, {0, 1, 2, 3, 10, 11, 12, 13}), of_rank[2]);
  }
  EXPECT_TENSOR(tensor<float>({2, 1}, {10, 14}), all[0][1]);
  EXPECT_TENSOR(tensor<float>({2, 1}, {12, 16}), all[1][1]);
}

TEST(Derived, MeansDivideTheSum) {
  World world(3);
  const auto all = world.run([](Communicator c) {
    const auto x = tensor<float>({3}, {1.0f * c.rank(), 1, 2});
    return std::vector{all_reduce_mean(c, x), reduce_scatter_mean(c, x)};
  });
  for (std::size_t rank = 0; rank < 3; ++rank) {
    EXPECT_TENSOR(tensor<float>({3}, {1, 1, 2}), all[rank][0]);
    EXPECT_TENSOR(tensor<float>({1}, {rank == 2 ? 2.0f : 1.0f}), all[rank][1]);
  }
}

}  // namespace
}  // namespace lockstep::differentiation
