// Operations that follow from the collectives, with their gradients. They work on bare
// communicators and on differentiable ones alike, and are entered like the collective inside.
#pragma once

#include <cstddef>
#include <utility>

#include <lockstep/collective.hpp>
#include <lockstep/differentiation/scope.hpp>

namespace lockstep::differentiation {
namespace detail {

// An operation of this rank alone that is linear: `forward` and its transpose `backward`, both on
// the backend's own tensors.
template <class C, class X, class Forward, class Backward>
X linear(const C& c, const X& x, const Forward& forward, Backward backward) {
  if constexpr (requires { x.is_constant(); }) {
    return c.autodiff_context().local(forward(x.value()), {x}, [backward](const auto& upstream) {
      return std::vector{backward(upstream)};
    });
  } else {
    return forward(x);
  }
}

template <class C, class X>
X move_axis(const C& c, const X& x, std::size_t from, std::size_t to) {
  const auto move = []<class T>(const T& t, std::size_t source, std::size_t target) {
    return TensorOperations<T>::move_axis(t, source, target);
  };
  return linear(
      c, x, [&](const auto& t) { return move(t, from, to); },
      [=](const auto& t) { return move(t, to, from); });
}

template <class C, class X>
X over_world(const C& c, const X& x) {
  const auto divide = [ranks = c.world_size()]<class T>(const T& t) {
    return TensorOperations<T>::divide(t, ranks);
  };
  return linear(c, x, divide, divide);
}

}  // namespace detail

// all_gather_float along `axis` instead of the leading one: with N ranks, [.., n, ..] -> [.., N*n,
// ..]. The gradient is a reduce-scatter along the same axis.
template <TensorCollective C>
typename C::float_tensor all_gather_along(C c, const typename C::float_tensor& x,
                                          std::size_t axis) {
  return detail::move_axis(c, c.all_gather_float(detail::move_axis(c, x, axis, 0)), 0, axis);
}

// reduce_scatter_sum along `axis`, whose length the number of ranks divides. The gradient is a
// gather along the same axis.
template <TensorCollective C>
typename C::float_tensor reduce_scatter_along(C c, const typename C::float_tensor& x,
                                              std::size_t axis) {
  return detail::move_axis(c, c.reduce_scatter_sum(detail::move_axis(c, x, axis, 0)), 0, axis);
}

// The sum over the number of ranks, rounded once more. The gradient is the sum of the upstreams
// over the number of ranks.
template <ReplicatedTensorCollective C>
typename C::float_tensor all_reduce_mean(C c, const typename C::float_tensor& x) {
  return detail::over_world(c, c.all_reduce_sum(x));
}
template <TensorCollective C>
typename C::float_tensor reduce_scatter_mean(C c, const typename C::float_tensor& x) {
  return detail::over_world(c, c.reduce_scatter_sum(x));
}

}  // namespace lockstep::differentiation
