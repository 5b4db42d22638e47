// GPU communicators with MPI as the control plane: one process and one simulated device per rank.
// See mpi_processes.hpp.
#include <lockstep/gpu/communicator.hpp>

#include "filled.hpp"
#include "mpi_processes.hpp"

namespace lockstep {
namespace {

using namespace testing;
using namespace std::chrono_literals;

gpu::Communicator devices(SumRule rule = SumRule::exact) {
  gpu::Options options;
  options.sum_rule = rule;
  options.timeout = 60s;
  mpi::Communicator host = world({.sum_rule = SumRule::exact, .timeout = 60s});
  const gpu::Stream stream(host.rank());  // the processes share a host, and so its devices
  return gpu::Communicator(std::move(host), stream, options);
}

template <class T>
auto up(const gpu::Communicator& c, const T& x) {
  return gpu::TensorOf<T>::upload(x, c.stream());
}

TEST(GpuProcesses, MoveAndAddAcrossProcesses) {
  for (const SumRule rule : {SumRule::exact, SumRule::rank_order, SumRule::unspecified}) {
    const gpu::Communicator c = devices(rule);
    const int r = c.rank();
    const auto x = up(c, counting<float>({4}, 10 * r));
    EXPECT_TENSOR(tensor<float>({4}, {60, 64, 68, 72}), c.all_reduce_sum(x).download());
    EXPECT_TENSOR(tensor<float>({1}, {60.0f + 4 * static_cast<float>(r)}),
                  c.reduce_scatter_sum(x).download());
    EXPECT_TENSOR(tensor<float>({4}, {20, 21, 22, 23}), c.broadcast_float(x, 2).download());
    const auto words = up(c, tensor<std::int64_t>({1}, {(std::int64_t{1} << 53) + 1 + r}));
    const std::int64_t base = (std::int64_t{1} << 53) + 1;
    EXPECT_TENSOR(tensor<std::int64_t>({4}, {base, base + 1, base + 2, base + 3}),
                  c.all_gather_int(words).download());
    // Large enough for the exchange of shards, and not divisible by the ranks.
    const auto large = up(c, counting<double>({100'001}, r));
    EXPECT_TENSOR(filled<double>({100'001}, [](std::int64_t i) { return 4 * i + 6; }),
                  c.all_reduce_sum(large).download());
  }
}

TEST(GpuProcesses, ExchangeRowsAlsoWhereARankHasNone) {
  const gpu::Communicator c = devices();
  // Rank 3 has nothing to send; rank s sends s + 1 rows to rank 0 and one to rank 3.
  const int r = c.rank();
  const std::int64_t to_0 = r == 3 ? 0 : r + 1;
  const std::int64_t to_3 = r == 3 ? 0 : 1;
  const auto x = up(c, counting<std::int32_t>({to_0 + to_3, 1}, 10 * r));
  const auto exchange = c.all_to_all_v_int(x, Counts{to_0, 0, 0, to_3});
  const auto value = exchange.value.download();
  if (r == 0) {
    EXPECT_TENSOR(tensor<std::int32_t>({6, 1}, {0, 10, 11, 20, 21, 22}), value);
    EXPECT_EQ(exchange.receive_counts, (Counts{1, 2, 3, 0}));
  } else if (r == 3) {
    EXPECT_TENSOR(tensor<std::int32_t>({3, 1}, {1, 12, 23}), value);
    EXPECT_EQ(exchange.receive_counts, (Counts{1, 1, 1, 0}));
  } else {
    EXPECT_TENSOR(IntTensor::zeros(DType::i32, {0, 1}), value);
    EXPECT_EQ(exchange.receive_counts, (Counts{0, 0, 0, 0}));
  }
}

TEST(GpuProcesses, BrokenContractsAreOneErrorEverywhereAndCallsGoOn) {
  const gpu::Communicator c = devices();
  std::string what = "no error";
  try {
    c.all_gather_float(up(c, FloatTensor::zeros(DType::f32, {c.rank() == 2 ? 2 : 3})));
  } catch (const ContractError& error) {
    what = error.what();
  }
  expect_equal_on_all_ranks(what);
  EXPECT_NE(what.find("all_gather_float, call 0 on world: broken contract (shape)"),
            std::string::npos)
      << what;
  EXPECT_TENSOR(tensor<float>({1}, {4}),
                c.all_reduce_sum(up(c, tensor<float>({1}, {1}))).download());
}

TEST(GpuProcesses, GroupsWorkWithoutTheOthers) {
  const gpu::Communicator c = devices();
  if (c.rank() == 1) return;
  const gpu::Communicator g = c.group({3, 0, 2});
  EXPECT_TENSOR(tensor<std::int32_t>({3}, {3, 0, 2}),
                g.all_gather_int(up(c, tensor<std::int32_t>({1}, {c.rank()}))).download());
}

TEST(GpuProcesses, ARankThatHasLeftIsNamedAndItsLastResultStaysRight) {
  std::optional<gpu::Communicator> c = devices();
  const int r = c->rank();
  const auto sum = c->all_reduce_sum(up(*c, counting<float>({1000}, r)));
  if (r == 2) {
    c.reset();
    EXPECT_TENSOR(filled<float>({1000}, [](std::int64_t i) { return 4 * i + 6; }), sum.download());
    return;
  }
  EXPECT_ERROR(c->all_gather_float(sum), TransportError, "rank 2");
  EXPECT_TENSOR(filled<float>({1000}, [](std::int64_t i) { return 4 * i + 6; }), sum.download());
}

TEST(GpuProcesses, AnAbortIsHeardByThePeersThatWaitThoughTheHandleIsKept) {
  const gpu::Communicator c = devices();
  const auto x = up(c, tensor<float>({1}, {1}));
  c.all_reduce_sum(x).download();
  c.gather_integers({});  // nobody aborts what another still waits for
  if (c.rank() == 1) {
    c.abort("the user asked for it");
    EXPECT_ERROR(c.all_reduce_sum(x), TransportError,
                 "world was aborted by rank 1: the user asked for it");
  } else {
    EXPECT_ERROR(c.all_reduce_sum(x), TransportError, "rank 1");
  }
  expect_equal_on_all_ranks("everybody is here, with a handle");
}

}  // namespace
}  // namespace lockstep
