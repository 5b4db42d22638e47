// Inputs that are views: how they lie in memory, and backends that move storage in place of
// elements.
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <lockstep/kit/case_file.hpp>
#include <lockstep/kit/program_oracle.hpp>
#include <lockstep/kit/verification.hpp>
#include <lockstep/sim/world.hpp>

#include "expect.hpp"

namespace lockstep::kit {
namespace {

const FloatTensor matrix = FloatTensor::of<float>({2, 3}, {1, 2, 3, 4, 5, 6});

// NaN with all bits set, as it lies where no element is.
float gap() {
  return from_bits<float>(0xffffffffu);
}

void expect_block(const Laid& laid, const std::vector<float>& block) {
  EXPECT_TENSOR(FloatTensor::of<float>({static_cast<std::int64_t>(block.size())},
                                       std::span<const float>(block)),
                FloatTensor(laid.block));
}

TEST(MemoryLayout, IsRowMajorInABlockOfItsOwn) {
  const Laid laid = laid_out(matrix, MemoryLayout::dense);
  expect_block(laid, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(laid.view.strides, (std::vector<std::int64_t>{3, 1}));
  EXPECT_EQ(laid.view.origin, 0);
}

TEST(MemoryLayout, OfASliceHasNeighboursAtEitherEnd) {
  const Laid laid = laid_out(matrix, MemoryLayout::slice);
  expect_block(laid, {gap(), 1, 2, 3, 4, 5, 6, gap()});
  EXPECT_EQ(laid.view.strides, (std::vector<std::int64_t>{3, 1}));
  EXPECT_EQ(laid.view.origin, 1);
}

TEST(MemoryLayout, OfAStridedTensorIsTransposedWithGaps) {
  const Laid laid = laid_out(matrix, MemoryLayout::strided);
  expect_block(laid, {gap(), 1, gap(), 4, gap(), 2, gap(), 5, gap(), 3, gap(), 6});
  EXPECT_EQ(laid.view.strides, (std::vector<std::int64_t>{2, 4}));
  EXPECT_EQ(laid.view.origin, 1);
}

TEST(MemoryLayout, HoldsWhatHasNoAxesAndWhatHasNoElements) {
  const Laid scalar = laid_out(FloatTensor::of<float>({}, {7}), MemoryLayout::strided);
  expect_block(scalar, {gap(), 7});
  EXPECT_TRUE(scalar.view.strides.empty());
  const Laid empty = laid_out(FloatTensor::zeros(DType::f32, {0, 3}), MemoryLayout::slice);
  expect_block(empty, {gap(), gap()});
  EXPECT_EQ(empty.view.shape, (Shape{0, 3}));
  constexpr std::int64_t huge = std::int64_t{1} << 62;  // twice that is more than any number holds
  const Laid vast = laid_out(FloatTensor::zeros(DType::f32, {huge, 4, 0}), MemoryLayout::strided);
  expect_block(vast, {});
  EXPECT_EQ(vast.view.strides, (std::vector<std::int64_t>{2, 2, 2}));
}

TEST(MemoryLayout, IsWrittenInACaseFileWhereATensorIsNotDense) {
  const std::string text = R"({ "lockstep_case": 1, "world": 2, "steps": [ { "op": )"
                           R"("all_gather_float", "inputs": [ { "dtype": "f32", "shape": [1], )"
                           R"("values": [1], "layout": "strided" }, { "dtype": "f32", "shape": )"
                           R"([1], "values": [2], "layout": "slice" } ] } ] })";
  const Case c = read_case(text);
  EXPECT_EQ(c.steps[0].inputs[0]->layout, MemoryLayout::strided);
  EXPECT_EQ(c.steps[0].inputs[1]->layout, MemoryLayout::slice);
  EXPECT_EQ(write_case(c, Layout::one_line), text);
}

TEST(MemoryLayout, IsOneOfTwoWords) {
  const auto refusal = [](const std::string& input) -> std::string {
    try {
      (void)read_case(R"({"lockstep_case": 1, "world": 1, "steps": [
        {"op": "all_reduce_sum", "inputs": [{"dtype": "f32", "shape": [1], "values": [1]}]},
        {"op": "all_reduce_sum", "inputs": [)" +
                      input + "]}]}");
    } catch (const CaseFileError& error) {
      return error.what();
    }
    return "no refusal";
  };
  EXPECT_EQ(refusal(R"({"dtype": "f32", "shape": [1], "values": [1], "layout": "columns"})"),
            "case:3: /steps/1/inputs/0/layout: found \"columns\", wanted \"slice\" or "
            "\"strided\"");
  EXPECT_NE(refusal(R"({"from_step": 0, "layout": "slice"})"), "no refusal");
}

// --- A backend whose tensors are views

// Shares a block of one axis.
template <class T>
struct View {
  std::shared_ptr<const T> block;
  StridedView where;

  DType dtype() const { return block->dtype(); }
  const Shape& shape() const { return where.shape; }
  std::int64_t elements() const { return *where.shape.elements(); }
};

template <class T>
View<T> dense_view(const T& x) {
  Laid laid = laid_out(x, MemoryLayout::dense);
  return {std::make_shared<const T>(laid.block), std::move(laid.view)};
}

// What the view shows, or what a backend takes it for that forgets of it what is wrong here.
enum class Forgets { nothing, strides, origin };
template <class T>
T shown(const View<T>& x, Forgets forgets) {
  if (x.elements() == 0) return T(Tensor::zeros(x.dtype(), x.shape()));
  const std::int64_t origin = forgets == Forgets::origin ? 0 : x.where.origin;
  const std::int64_t size = size_of(x.dtype());
  const std::byte* first = x.block->data() + origin * size;
  if (forgets == Forgets::strides) {
    return T(Tensor::from_bytes(x.dtype(), x.shape(),
                                {first, static_cast<std::size_t>(x.elements() * size)}));
  }
  return T(Tensor::from_strided(x.dtype(), x.shape(), x.where.strides, first));
}

template <Forgets forgets>
class ViewCommunicator {
 public:
  using float_tensor = View<FloatTensor>;
  using int_tensor = View<IntTensor>;

  explicit ViewCommunicator(sim::Communicator ranks) : ranks_(std::move(ranks)) {}

  int world_size() const { return ranks_.world_size(); }
  int rank() const { return ranks_.rank(); }
  std::nullptr_t autodiff_context() const { return nullptr; }

  float_tensor all_gather_float(const float_tensor& x) const {
    return dense_view(ranks_.all_gather_float(shown(x, forgets)));
  }
  int_tensor all_gather_int(const int_tensor& x) const {
    return dense_view(ranks_.all_gather_int(shown(x, Forgets::nothing)));
  }
  float_tensor reduce_scatter_sum(const float_tensor& x) const {
    return dense_view(ranks_.reduce_scatter_sum(shown(x, Forgets::nothing)));
  }
  float_tensor all_reduce_sum(const float_tensor& x) const {
    return dense_view(ranks_.all_reduce_sum(shown(x, Forgets::nothing)));
  }
  float_tensor broadcast_float(const float_tensor& x, std::int64_t root) const {
    return dense_view(ranks_.broadcast_float(shown(x, Forgets::nothing), root));
  }
  VariableTensorExchange<float_tensor> all_to_all_v_float(
      const float_tensor& x, std::span<const std::int64_t> counts) const {
    auto exchange = ranks_.all_to_all_v_float(shown(x, Forgets::nothing), counts);
    return {dense_view(exchange.value), std::move(exchange.receive_counts)};
  }
  VariableTensorExchange<int_tensor> all_to_all_v_int(const int_tensor& x,
                                                      std::span<const std::int64_t> counts) const {
    auto exchange = ranks_.all_to_all_v_int(shown(x, Forgets::nothing), counts);
    return {dense_view(exchange.value), std::move(exchange.receive_counts)};
  }
  ViewCommunicator group(std::span<const int> ranks) const {
    return ViewCommunicator(ranks_.group(ranks));
  }

  friend std::ostream& operator<<(std::ostream& out, const ViewCommunicator& c) {
    return out << c.ranks_;
  }

 private:
  sim::Communicator ranks_;
};

}  // namespace

template <Forgets forgets>
struct HostTransfer<ViewCommunicator<forgets>> {
  using C = ViewCommunicator<forgets>;
  static View<FloatTensor> upload(C&, const FloatTensor& x) { return dense_view(x); }
  static View<IntTensor> upload(C&, const IntTensor& x) { return dense_view(x); }
  template <class T>
  static T download(C&, const View<T>& x) {
    return shown(x, Forgets::nothing);
  }
  static View<FloatTensor> view(C&, const FloatTensor& block, const StridedView& where) {
    return {std::make_shared<const FloatTensor>(block), where};
  }
  static View<IntTensor> view(C&, const IntTensor& block, const StridedView& where) {
    return {std::make_shared<const IntTensor>(block), where};
  }
};

namespace {

template <Forgets forgets>
class ViewBackend : public ThreadBackend {
  BackendInfo info() const override {
    BackendInfo info;
    info.name = "views";
    return info;
  }
  void launch(int ranks, const RankBody& body) override {
    sim::World(ranks).run([&](sim::Communicator communicator) {
      const int rank = communicator.rank();
      SubjectOf<ViewCommunicator<forgets>> subject{ViewCommunicator<forgets>(communicator)};
      body(rank, subject);
    });
  }
};

template <Forgets forgets>
VerifyReport verified(std::int64_t cases, std::vector<std::string> properties) {
  ViewBackend<forgets> backend;
  return verify(backend,
                {.most_ranks = 3, .seed = 1, .cases = cases, .properties = std::move(properties)});
}

TEST(Views, AreNoExcuseForABackendThatFollowsThem) {
  const VerifyReport report = verified<Forgets::nothing>(500, {});
  EXPECT_TRUE(report.holds()) << explain(report);
  EXPECT_GE(report.visits[static_cast<std::size_t>(Corner::strided_input)], 100);
  EXPECT_GE(report.visits[static_cast<std::size_t>(Corner::slice_input)], 100);
}

TEST(Views, AreFoundOutWhereTheirStridesAreForgotten) {
  const VerifyReport report = verified<Forgets::strides>(300, {"all_gather_float"});
  ASSERT_FALSE(report.holds());
  const Case& shrunk = report.properties[0].counterexample->shrunk;
  ASSERT_EQ(shrunk.steps.size(), 1u) << explain(report);
  EXPECT_EQ(shrunk.world, 1) << explain(report);
  EXPECT_EQ(shrunk.steps[0].inputs[0]->layout, MemoryLayout::strided) << explain(report);
  EXPECT_EQ(shrunk.steps[0].inputs[0]->tensor.elements(), 2) << explain(report);
  EXPECT_NE(explain(report).find("(strided)"), std::string::npos) << explain(report);
}

TEST(Views, AreFoundOutWhereTheirOriginIsForgotten) {
  const VerifyReport report = verified<Forgets::origin>(300, {"all_gather_float"});
  ASSERT_FALSE(report.holds());
  const Case& shrunk = report.properties[0].counterexample->shrunk;
  EXPECT_EQ(shrunk.steps[0].inputs[0]->tensor.elements(), 1) << explain(report);
  EXPECT_NE(shrunk.steps[0].inputs[0]->layout, MemoryLayout::dense) << explain(report);
}

}  // namespace
}  // namespace lockstep::kit
