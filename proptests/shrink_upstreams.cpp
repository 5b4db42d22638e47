// Upstream gradients that follow their results.

#include <algorithm>
#include <functional>
#include <numeric>
#include <span>

#include "shrink_moves.hpp"
#include "shrink_tensors.hpp"
#include "step_values.hpp"

namespace lockstep::kit {
namespace {

const std::byte* element_of(const Tensor& x, std::int64_t i) {
  return x.data() + i * size_of(x.dtype());
}

// The places of elements, least plain ones first. Of all members together, since it may be their
// sum that matters; none where their numbers of elements differ.
std::vector<std::int64_t> least_plain_places(std::span<const std::optional<Tensor>> tensors) {
  std::vector<std::int64_t> weights;
  for (const std::optional<Tensor>& one : tensors) {
    if (!one) continue;
    if (weights.empty()) weights.resize(static_cast<std::size_t>(one->elements()));
    if (static_cast<std::size_t>(one->elements()) != weights.size()) return {};
    for (std::int64_t i = 0; i < one->elements(); ++i) {
      weights[static_cast<std::size_t>(i)] += complexity(one->dtype(), element_of(*one, i));
    }
  }
  std::vector<std::int64_t> places(weights.size());
  std::iota(places.begin(), places.end(), std::int64_t{0});
  std::ranges::stable_sort(places, std::ranges::greater(), [&](std::int64_t place) {
    return weights[static_cast<std::size_t>(place)];
  });
  return places;
}

// Some elements, in their order, in a tensor of another type; plain ones where that is no smaller or
// of a dtype that they cannot have. The least plain places may have been chosen `together`.
Tensor refitted(const Tensor& tensor, const TensorType& type, Upstreams::Keep keep,
                const std::vector<std::int64_t>& together) {
  const std::int64_t wanted = type.shape.elements().value_or(0);
  const bool convertible = type.dtype == tensor.dtype() || type.dtype == DType::f32;
  if (wanted > tensor.elements() || !convertible) return plain_tensor(type);
  std::vector<std::int64_t> places = together;
  if (keep != Upstreams::Keep::least_plain) {
    places.resize(static_cast<std::size_t>(wanted));
    std::iota(places.begin(), places.end(),
              keep == Upstreams::Keep::front ? 0 : tensor.elements() - wanted);
  } else if (together.empty()) {
    const std::optional<Tensor> alone[] = {tensor};
    places = least_plain_places(alone);
  }
  places.resize(static_cast<std::size_t>(wanted));
  std::ranges::sort(places);
  Tensor kept = Tensor::uninitialized(tensor.dtype(), Shape{wanted});
  std::byte* out = wanted == 0 ? nullptr : kept.mutable_bytes().data();
  for (std::int64_t place : places) {
    out = std::copy_n(element_of(tensor, place), size_of(tensor.dtype()), out);
  }
  return converted(kept, type.dtype).reshape(type.shape);
}

}  // namespace

Upstreams::Upstreams(const Case& origin) : all_fit_(all_upstreams_fit(origin)) {
  ResultTypes types(origin);
  for (std::size_t s = 0; s < origin.steps.size(); ++s) {
    const Step& step = origin.steps[s];
    if (!asks_for_gradient(step) || takes_integers(step.operations[0])) continue;
    const auto& results = types.of(s);
    if (!results) continue;
    results_.insert(results_.end(), results->begin(), results->end());
  }
}

bool Upstreams::refit(Case& c, Keep keep) const {
  bool changed = false;
  ResultTypes types(c);
  for (std::size_t s = 0; s < c.steps.size(); ++s) {
    Step& step = c.steps[s];
    if (!asks_for_gradient(step) || takes_integers(step.operations[0])) continue;
    const auto& results = types.of(s);
    if (!results || upstream_fits(step, *results)) continue;
    const std::vector<std::int64_t> together =
        keep == Keep::least_plain ? least_plain_places(step.upstream) : std::vector<std::int64_t>();
    for (std::size_t member = 0; member < step.members(); ++member) {
      std::optional<Tensor>& one = step.upstream[member];
      if (!one) continue;
      const TensorType type{one->dtype(), one->shape()};
      TensorType wanted = (*results)[member];
      if (type == wanted) continue;
      if (!all_fit_ && std::ranges::count(results_, type) == 0) {
        // It is unlike its result on purpose; in its dtype, where only that was so, and else in its
        // shape, which may still have as many elements.
        if (std::ranges::count(results_, type.shape, &TensorType::shape) == 0) {
          const auto as_many = [&](const TensorType& result) {
            return result.dtype == type.dtype && result.shape.elements() == type.shape.elements();
          };
          if (std::ranges::none_of(results_, as_many)) continue;
          wanted.shape = Shape{wanted.shape.elements().value_or(0), 1};
        }
        wanted.dtype = type.dtype;
      }
      if (type == wanted) continue;
      one = refitted(*one, wanted, keep, together);
      changed = true;
    }
  }
  return changed;
}

}  // namespace lockstep::kit
