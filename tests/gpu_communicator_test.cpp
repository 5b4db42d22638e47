// GPU communicators on simulated devices, with threads as the control plane: values, sums, streams.
#include <lockstep/gpu/communicator.hpp>

#include <cuda_runtime_api.h>

#include <sstream>

#include <lockstep/differentiation/derived.hpp>
#include <lockstep/differentiation/scope.hpp>
#include <lockstep/gpu/differentiation.hpp>
#include <lockstep/oracle.hpp>

#include "gpu_ranks.hpp"
#include "movement.hpp"

namespace lockstep::gpu {
namespace {

using namespace testing;
using HostFloat = lockstep::FloatTensor;
using HostInt = lockstep::IntTensor;

// Every other way of moving data for the life of the object.
class OtherLimits {
 public:
  explicit OtherLimits(Limits other) : before_(limits()) { limits() = other; }
  ~OtherLimits() { limits() = before_; }

 private:
  Limits before_;
};

// ---- reports

TEST(GpuReports, B05EmptyTensorsAreReducedWithEveryCheckOnAndOff) {
  for (const bool agreement : {true, false}) {
    for (const SumRule rule : {SumRule::unspecified, SumRule::exact}) {
      Options options = with_rule(rule);
      options.agreement = agreement;
      on_devices(2, options, [](const Communicator& c) {
        for (const Shape& shape : {Shape{0}, Shape{0, 5}}) {
          const HostFloat x = HostFloat::zeros(DType::f32, shape);
          EXPECT_TENSOR(x, c.all_reduce_sum(up(c, x)).download());
          EXPECT_TENSOR(x, c.reduce_scatter_sum(up(c, x)).download());
          EXPECT_TENSOR(x, c.all_gather_float(up(c, x)).download());
        }
      });
    }
  }
}

TEST(GpuReports, B28EveryOperationTakesEveryDtypeOfItsFamily) {
  on_devices(2, with_rule(SumRule::exact), [](const Communicator& c) {
    const Counts one_row_each = {1, 1};
    for (DType dtype : floating_dtypes) {
      dispatch(dtype, [&]<class T>(TypeTag<T>) {
        if constexpr (is_floating(*dtype_of<T>)) {
          const int r = c.rank();
          const auto x = up(c, counting<T>({2}, 10 * r));
          EXPECT_TENSOR(
              tensor<T>({4}, {element<T>(0), element<T>(1), element<T>(10), element<T>(11)}),
              c.all_gather_float(x).download());
          EXPECT_TENSOR(tensor<T>({2}, {element<T>(10), element<T>(12)}),
                        c.all_reduce_sum(x).download());
          EXPECT_TENSOR(tensor<T>({1}, {element<T>(10 + 2 * r)}),
                        c.reduce_scatter_sum(x).download());
          EXPECT_TENSOR(tensor<T>({2}, {element<T>(10), element<T>(11)}),
                        c.broadcast_float(x, 1).download());
          EXPECT_TENSOR(tensor<T>({2}, {element<T>(r), element<T>(10 + r)}),
                        c.all_to_all_v_float(x, one_row_each).value.download());
        }
      });
    }
    for (DType dtype : integer_dtypes) {
      dispatch(dtype, [&]<class T>(TypeTag<T>) {
        if constexpr (is_integer(*dtype_of<T>)) {
          const auto x = up(c, counting<T>({2}, 10 * c.rank()));
          EXPECT_TENSOR(tensor<T>({4}, {0, 1, 10, 11}), c.all_gather_int(x).download());
          const T r = static_cast<T>(c.rank());
          EXPECT_TENSOR(tensor<T>({2}, {r, static_cast<T>(10 + r)}),
                        c.all_to_all_v_int(x, one_row_each).value.download());
        }
      });
    }
  });
}

TEST(GpuReports, B103AnInputMayBeDroppedAndItsMemoryFilledAnew) {
  for (const SumRule rule : {SumRule::unspecified, SumRule::rank_order}) {
    on_devices(2, with_rule(rule), [](const Communicator& c) {
      constexpr std::int64_t n = 100'000;
      for (int i = 0; i < 100; ++i) {
        std::optional<FloatTensor> x = up(c, counting<float>({n}, i + c.rank()));
        const FloatTensor sum = c.all_reduce_sum(*x);
        x.reset();
        const auto filler = FloatTensor::zeros(DType::f32, {n}, c.stream());
        const HostFloat host = sum.download();
        const auto values = host.values<float>();
        ASSERT_EQ(values[0], static_cast<float>(2 * i + 1));
        ASSERT_EQ(values[n - 1], static_cast<float>(2 * (i + n - 1) + 1));
      }
    });
  }
}

// ---- sums

// Element i of rank r's addend: exponents far apart, and halves of last bits.
double addend(std::int64_t i, int rank) {
  const double scale[] = {1.0, 0x1p-12, 0x1p20, -0x1p-24, 3.0};
  return (1.0 + static_cast<double>(i % 97)) * scale[(i + rank) % 5];
}

// The sum over all ranks by the host's own oracle, under the rule.
template <Element T>
HostFloat oracle_sum(const Shape& shape, int ranks, SumRule rule) {
  std::vector<HostFloat> inputs;
  for (int r = 0; r < ranks; ++r) {
    inputs.push_back(filled<T>(shape, [r](std::int64_t i) { return addend(i, r); }));
  }
  return reference::all_reduce_sum(inputs, rule).results()[0];
}

template <Element T>
void expect_sums(int ranks, const Shape& shape, SumRule rule) {
  const HostFloat expected = oracle_sum<T>(shape, ranks, rule);
  const auto results = on_devices(ranks, with_rule(rule), [&](const Communicator& c) {
    const auto x = filled<T>(shape, [&](std::int64_t i) { return addend(i, c.rank()); });
    return c.all_reduce_sum(up(c, x)).download();
  });
  for (const HostFloat& result : results) EXPECT_TENSOR(expected, result);
}

TEST(GpuSums, HaveTheOraclesBitsHoweverTheyAreDealtToTheRanks) {
  for (const std::int64_t one_step_bytes : {std::int64_t{0}, std::int64_t{1} << 30}) {
    const OtherLimits other({.one_step_bytes = one_step_bytes});
    for (const SumRule rule : {SumRule::exact, SumRule::rank_order}) {
      expect_sums<float>(3, {1000}, rule);
      expect_sums<double>(4, {7, 11}, rule);
      expect_sums<f16>(5, {3}, rule);  // fewer elements than ranks
      expect_sums<bf16>(3, {}, rule);
      expect_sums<float>(2, {200'001}, rule);  // several parts for the loops
    }
  }
}

TEST(GpuSums, OfAWorldOfOneMoveTheTensorBitForBit) {
  const std::uint32_t bits[] = {0x7f800123, 0x80000000};  // a signalling NaN, -0.0
  const auto x = HostFloat::from_bytes(DType::f32, {2}, std::as_bytes(std::span(bits)));
  for (const SumRule rule : {SumRule::exact, SumRule::rank_order, SumRule::unspecified}) {
    const auto results = on_devices(1, with_rule(rule), [&](const Communicator& c) {
      EXPECT_TENSOR(x, c.reduce_scatter_sum(up(c, x)).download());
      return c.all_reduce_sum(up(c, x)).download();
    });
    EXPECT_TENSOR(x, results[0]);
  }
}

// ---- exchanges

TEST(GpuExchange, OfMoreRanksThanAGroupOfNcclTakesKeepsSourceOrder) {
  const OtherLimits other({.peers_per_group = 2});
  const auto results = on_devices(7, {}, [](const Communicator& c) {
    // Rank s sends (s + d) % 3 rows to rank d, of 100 s + 10 d.
    Counts counts;
    std::vector<std::int64_t> rows;
    for (int d = 0; d < 7; ++d) {
      counts.push_back((c.rank() + d) % 3);
      rows.insert(rows.end(), static_cast<std::size_t>(counts.back()), 100 * c.rank() + 10 * d);
    }
    const Shape shape = {static_cast<std::int64_t>(rows.size()), 1};
    auto exchange = c.all_to_all_v_int(up(c, tensor<std::int64_t>(shape, rows)), counts);
    return std::pair(exchange.value.download(), exchange.receive_counts);
  });
  for (int d = 0; d < 7; ++d) {
    Counts counts;
    std::vector<std::int64_t> rows;
    for (int s = 0; s < 7; ++s) {
      counts.push_back((s + d) % 3);
      rows.insert(rows.end(), static_cast<std::size_t>(counts.back()), 100 * s + 10 * d);
    }
    const auto& [value, receive_counts] = results[static_cast<std::size_t>(d)];
    EXPECT_TENSOR(tensor<std::int64_t>({static_cast<std::int64_t>(rows.size()), 1}, rows), value);
    EXPECT_EQ(receive_counts, counts);
  }
}

// ---- streams

TEST(GpuStreams, AnArgumentMayLieOnAnotherStreamOfTheDevice) {
  const auto results = on_devices(2, {}, [](const Communicator& c) {
    const Stream other(c.rank());
    HostFloat last = HostFloat::zeros(DType::f32, {1});
    for (int i = 0; i < 20; ++i) {
      std::optional<FloatTensor> x =
          FloatTensor::upload(counting<float>({500}, i * (1 + c.rank())), other);
      const FloatTensor sum = c.all_reduce_sum(*x);
      x = FloatTensor::zeros(DType::f32, {500}, other);  // over the memory of the argument
      last = sum.download();
    }
    return last;
  });
  for (const HostFloat& result : results) {
    EXPECT_TENSOR(filled<float>({500}, [](std::int64_t i) { return 2 * i + 57; }), result);
  }
}

TEST(GpuStreams, ResultsBelongToTheCommunicatorsStream) {
  on_devices(2, {}, [](const Communicator& c) {
    const FloatTensor sum = c.all_reduce_sum(up(c, tensor<float>({1}, {1})));
    EXPECT_EQ(sum.stream(), c.stream());
    // The caller's own work behind it, without any wait on the host.
    float host = 0;
    ASSERT_EQ(cudaSetDevice(c.rank()), cudaSuccess);
    ASSERT_EQ(cudaMemcpyAsync(&host, sum.data(), 4, cudaMemcpyDeviceToHost, c.stream().get()),
              cudaSuccess);
    c.stream().synchronize();
    EXPECT_EQ(host, 2.0f);
  });
}

TEST(GpuStreams, ATensorOfAnotherDeviceIsRefusedOnThatRankAlone) {
  on_devices(2, {}, [](const Communicator& c) {
    if (c.rank() == 0) {
      const auto x = FloatTensor::zeros(DType::f32, {1}, Stream(1));
      EXPECT_ERROR(c.all_reduce_sum(x), InvalidArgument,
                   "a tensor on device 1 was passed to world");
    }
    EXPECT_TENSOR(tensor<float>({1}, {2}),
                  c.all_reduce_sum(up(c, tensor<float>({1}, {1}))).download());
  });
}

// ---- communicators

TEST(GpuCommunicator, GroupsAndSplitsCountInTheirOwnOrder) {
  const auto results = on_devices(4, {}, [](const Communicator& c) {
    const auto mine = up(c, tensor<std::int32_t>({1}, {10 * c.rank()}));
    std::string names;
    if (c.rank() != 1) {
      const Communicator g = c.group({3, 0, 2});
      EXPECT_TENSOR(tensor<std::int32_t>({3}, {30, 0, 20}), g.all_gather_int(mine).download());
      // The same list is the same communicator: its calls are counted on.
      EXPECT_ERROR(c.group({3, 0, 2}).reduce_scatter_sum(up(c, tensor<float>({1}, {1}))),
                   ContractError, "call 1 on world.group{3, 0, 2}");
      names += g.name();
    }
    const Communicator s = c.split(c.rank() % 2, -c.rank());
    const std::int32_t low = 10 * (c.rank() % 2);
    EXPECT_TENSOR(tensor<std::int32_t>({2}, {20 + low, low}), s.all_gather_int(mine).download());
    return names + s.name();
  });
  // Names are the control plane's, and so are the numbers of calls in them.
  EXPECT_EQ(results[0], "world.group{3, 0, 2}world.split@1{2, 0}");
  EXPECT_EQ(results[3], "world.group{3, 0, 2}world.split@1{3, 1}");
}

TEST(GpuCommunicator, PrintsWhoItIs) {
  const auto results = on_devices(2, {}, [](const Communicator& c) {
    std::ostringstream text;
    text << c;
    return text.str();
  });
  EXPECT_EQ(results[1], "world, rank 1 of 2, on device 1");
}

TEST(GpuCommunicator, GathersIntegersOfAnyNumber) {
  const auto results = on_devices(3, {}, [](const Communicator& c) {
    std::vector<std::int64_t> mine(static_cast<std::size_t>(50 * c.rank()), 1000 + c.rank());
    return c.gather_integers(mine);
  });
  for (const auto& all : results) {
    ASSERT_EQ(all.size(), 3u);
    EXPECT_EQ(all[0], Counts());
    EXPECT_EQ(all[1], Counts(50, 1001));
    EXPECT_EQ(all[2], Counts(100, 1002));
  }
}

// ---- differentiation

TEST(GpuGradients, GoThroughAScopeOnTheDevice) {
  const auto results = on_devices(2, with_rule(SumRule::exact), [](const Communicator& c) {
    using namespace differentiation;
    Scope scope(c);
    auto ranks = scope.communicator();
    const auto x = scope.variable(up(c, tensor<float>({1}, {1})));
    const auto y = ranks.all_gather_float(x);
    const auto z = ranks.all_reduce_sum(y);
    // Only rank 1's loss uses z; rank 0's uses y.
    const auto seed =
        up(c, c.rank() == 0 ? tensor<float>({2}, {1, 10}) : tensor<float>({2}, {100, 1000}));
    auto gradients = scope.backward({{c.rank() == 0 ? y : z, seed}});
    return gradients.of(x).download();
  });
  // z's upstream, summed over the ranks, reaches y on both; what y gets is summed by shard.
  EXPECT_TENSOR(tensor<float>({1}, {201}), results[0]);
  EXPECT_TENSOR(tensor<float>({1}, {2010}), results[1]);
}

TEST(GpuGradients, OfDerivedOperationsMoveAxesAndDivideOnTheDevice) {
  const auto results = on_devices(2, with_rule(SumRule::exact), [](const Communicator& c) {
    using namespace differentiation;
    const auto x = up(c, counting<float>({2, 3, 2}, 100 * c.rank()));
    const auto gathered = all_gather_along(c, x, 1).download();
    const auto mean = all_reduce_mean(c, up(c, tensor<bf16>({1}, {to_bf16(c.rank() * 3.0)})));
    return std::pair(gathered, mean.download());
  });
  for (const auto& [gathered, mean] : results) {
    EXPECT_TENSOR(tensor<float>({2, 6, 2}, {0, 1, 2, 3, 4,  5,  100, 101, 102, 103, 104, 105,
                                            6, 7, 8, 9, 10, 11, 106, 107, 108, 109, 110, 111}),
                  gathered);
    EXPECT_TENSOR(tensor<bf16>({1}, {to_bf16(1.5)}), mean);
  }
}

}  // namespace
}  // namespace lockstep::gpu
