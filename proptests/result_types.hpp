// The dtypes and shapes that every member of every step gets back, known without any element: what
// a rank cannot see of its peers' results, but the case tells.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include <lockstep/kit/case.hpp>

namespace lockstep::kit {

struct TensorType {
  DType dtype;
  Shape shape;

  friend bool operator==(const TensorType&, const TensorType&) = default;
};

// Works out steps on demand, each once. The case must outlive it.
class ResultTypes {
 public:
  explicit ResultTypes(const Case& c) : case_(c), known_(c.steps.size()) {}

  // Per member of the step; nothing for a step without results, because of an error in it or
  // because it takes values from one.
  const std::optional<std::vector<TensorType>>& of(std::size_t step);

 private:
  std::optional<std::vector<TensorType>> work_out(const Step& step);

  const Case& case_;
  std::vector<std::optional<std::optional<std::vector<TensorType>>>> known_;
};

// Of a window: the steps whose results any rank's loss reaches, directly or through later ones.
std::vector<bool> reached_steps(const Case& c);

// Does every upstream gradient of the case have the type of its result?
bool all_upstreams_fit(const Case& c);

// Is every upstream gradient of the step like the result that it belongs to?
bool upstream_fits(const Step& step, const std::vector<TensorType>& results);

}  // namespace lockstep::kit
