// How each operation's elements move. Every function is called by every rank of the link, inside
// one call, after the ranks have agreed.
#pragma once

#include <cstdint>
#include <span>

#include <lockstep/gpu/tensor.hpp>
#include <lockstep/sum_rule.hpp>

#include "link.hpp"

namespace lockstep::gpu {

// Where a sum changes from one way of moving data to another. Equal on all ranks; a variable only
// so that tests reach every way with small tensors.
struct Limits {
  // An all-reduce under a rule that adds here is one step, in which everybody gets all addends,
  // while those of all ranks together are no larger than this; above, it is an exchange of shards
  // and a gathering of their sums, which moves as many bytes as a ring.
  std::int64_t one_step_bytes = 64 * 1024;
  // An exchange starts this many sends and as many receives in one group of NCCL's.
  int peers_per_group = 512;
};
Limits& limits();

// The memory that an operation needs on each rank. Nothing for an exchange, whose result depends on
// the others, and for calls that break the contract.
Needs needs_of(const Signature& call, int ranks, SumRule rule);

Tensor all_gather(Link& link, const Tensor& x, const Blocks& blocks);
Tensor broadcast(Link& link, const Tensor& x, int root, const Blocks& blocks);
Tensor reduce_scatter(Link& link, const Tensor& x, SumRule rule, const Blocks& blocks);
Tensor all_reduce(Link& link, const Tensor& x, SumRule rule, const Blocks& blocks);
Tensor all_to_all_v(Link& link, const Tensor& x, std::span<const std::int64_t> send_counts,
                    std::span<const std::int64_t> receive_counts, std::int64_t total_rows);

}  // namespace lockstep::gpu
