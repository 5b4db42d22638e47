// The oracle: what every rank gets back, as a pure function of what every rank passes.
//
// No threads, no communicator, no state. Entry r of each list is rank r's. A call that breaks the
// contract gives the breach instead of results. Large tensors are worked on by oneTBB's threads;
// the results do not depend on how many.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include <lockstep/agreement.hpp>
#include <lockstep/collective.hpp>
#include <lockstep/error.hpp>
#include <lockstep/sum_rule.hpp>
#include <lockstep/tensor.hpp>

namespace lockstep::reference {

// All ranks' results, or the breach of contract that all of them get.
template <class T>
class Outcome {
 public:
  Outcome(std::vector<T> results) : either_(std::move(results)) {}
  Outcome(Breach breach) : either_(std::move(breach)) {}

  bool has_results() const { return either_.index() == 0; }
  // Entry r is what rank r receives.
  const std::vector<T>& results() const& { return std::get<0>(either_); }
  const Breach& breach() const& { return std::get<1>(either_); }
  // By value, so that `for (const auto& x : all_gather(inputs).results())` is safe.
  std::vector<T> results() && { return std::get<0>(std::move(either_)); }
  Breach breach() && { return std::get<1>(std::move(either_)); }

 private:
  std::variant<std::vector<T>, Breach> either_;
};

// Equal shapes and dtypes with at least one axis -> [N*rows, trailing...], rank 0's shard first.
Outcome<FloatTensor> all_gather(std::span<const FloatTensor> inputs);
Outcome<IntTensor> all_gather(std::span<const IntTensor> inputs);

// Equal shapes and dtypes, rows divisible by N -> rank r gets rows r*rows/N to (r+1)*rows/N of the
// elementwise sum.
Outcome<FloatTensor> reduce_scatter_sum(std::span<const FloatTensor> inputs,
                                        SumRule rule = SumRule::exact);

// Equal shapes and dtypes -> the elementwise sum.
Outcome<FloatTensor> all_reduce_sum(std::span<const FloatTensor> inputs,
                                    SumRule rule = SumRule::exact);

// Equal shapes and dtypes, the same root on every rank -> the root's elements.
Outcome<FloatTensor> broadcast(std::span<const FloatTensor> inputs,
                               std::span<const std::int64_t> roots);

// Equal dtypes, numbers of axes and nonzero trailing axes; send_counts[s][d] rows of rank s go to
// rank d, and rank s's counts add up to its rows -> the blocks sent to r, source rank 0 first.
Outcome<VariableTensorExchange<FloatTensor>> all_to_all_v(
    std::span<const FloatTensor> inputs, std::span<const std::vector<std::int64_t>> send_counts);
Outcome<VariableTensorExchange<IntTensor>> all_to_all_v(
    std::span<const IntTensor> inputs, std::span<const std::vector<std::int64_t>> send_counts);

// The general form, for ranks that may not even agree on the operation: what the functions above
// are made of, and what a simulated communicator calls.
//
// Where ranks are threads, each on a core of its own, each writes and takes what is its own in a
// list of calls and a list of results. Entries therefore share no cache line, and a call is one.
inline constexpr std::size_t cache_line = 64;  // bytes

// What one rank passes to one collective. Refers to what the rank holds: handing over a tensor
// costs two counts of its holders, which in a small call would be seen.
struct alignas(cache_line) Call {
  Operation operation = Operation::split;
  const Tensor* tensor = nullptr;                  // must be one when the call is evaluated
  std::int64_t root = 0;                           // broadcast_float
  std::span<const std::int64_t> send_counts = {};  // the exchanges: rows for each rank
};
static_assert(sizeof(Call) == cache_line);
// What it gets back.
struct alignas(cache_line) Result {
  Tensor value;
  std::vector<std::int64_t> receive_counts;  // the exchanges only
};

// Entry r of each list is rank r's. Fills `results` and returns nothing, or returns the breach and
// leaves `results` alone.
std::optional<Breach> evaluate(std::span<const Call> calls, SumRule rule,
                               std::span<Result> results);

}  // namespace lockstep::reference
