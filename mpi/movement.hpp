// How elements move once the ranks have agreed on a call. Every function is entered by every rank,
// inside Link::call; arguments fit together.
#pragma once

#include <cstdint>
#include <span>

#include <lockstep/sum_rule.hpp>
#include <lockstep/tensor.hpp>

#include "link.hpp"

namespace lockstep::mpi {

Tensor all_gather(Link& link, const Tensor& x);
Tensor broadcast(Link& link, const Tensor& x, int root);
Tensor reduce_scatter(Link& link, const Tensor& x, SumRule rule);
Tensor all_reduce(Link& link, const Tensor& x, SumRule rule);
Tensor all_to_all_v(Link& link, const Tensor& x, std::span<const std::int64_t> send_counts,
                    std::span<const std::int64_t> receive_counts);

}  // namespace lockstep::mpi
