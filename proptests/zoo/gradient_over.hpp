// A gradient by the library's own functions, over any communicator on host tensors.
#pragma once

#include <lockstep/differentiation/gradient.hpp>
#include <lockstep/error.hpp>

#include "rank.hpp"

namespace lockstep::zoo {

template <class C>
Tensor gradient_over(const C& c, const GradientCall& call) {
  using namespace differentiation;
  std::optional<FloatTensor> upstream;
  if (call.upstream) upstream = FloatTensor(*call.upstream);
  const auto result = [&] { return FloatTensor(call.result.value); };
  switch (call.forward.operation) {
    case Operation::all_gather_float:
      return all_gather_gradient(c, result(), upstream);
    case Operation::reduce_scatter_sum:
      return reduce_scatter_gradient(c, result(), upstream);
    case Operation::all_reduce_sum:
      return all_reduce_gradient(c, result(), upstream);
    case Operation::broadcast_float:
      return broadcast_gradient(c, result(), call.forward.root, upstream);
    case Operation::all_to_all_v_float:
      return all_to_all_v_gradient(
          c, VariableTensorExchange<FloatTensor>{result(), call.result.receive_counts}, upstream);
    case Operation::all_gather_int:
      all_gather_int_gradient(c);
    case Operation::all_to_all_v_int:
      all_to_all_v_int_gradient(c);
    case Operation::split:
      break;
  }
  throw InvalidArgument("no operation on tensors");
}

}  // namespace lockstep::zoo
