#pragma once
// The two collectives of a parameter group, over flat buffers.
//
// All-gather: with n elements of padded shards per rank, the output has ranks * n elements and this rank's
// input is its own slice of it. Within a slice parameters follow each other in group order, without gaps.
// Reduce-scatter: the input is [ranks, n], slot r holding every gradient's r-th piece; the output is the sum
// of slot `rank`.
// Large parameters are left out of these buffers where rule and backend allow: their pieces go straight from
// shard to unsharded memory, and from the gradient to the rank that sums it, within the same collective.
#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <vector>

#include "fsdp/param.hpp"
#include "fsdp/seams.hpp"

namespace fsdp {

/// What an all-gather moves.
struct AllGatherInput {
  std::vector<FSDPParam*> params;
  std::vector<Slot> slots;  ///< offsets are not yet set
  std::vector<at::Tensor> pieces;
  at::ScalarType dtype;  ///< kByte where parameters differ; lengths then count bytes
};

struct AllGatherResult {
  at::Tensor output;  ///< of what is packed, undefined if nothing is
  std::vector<FSDPParam*> packed;
  std::vector<Slot> slots;  ///< of what is packed
  WorkPtr work;             ///< null with a single rank
};

/// Parameters that are gathered in place have their unsharded memory from here on.
AllGatherResult foreach_all_gather(const UnitContext& unit, AllGatherInput input, Communicator& group,
                                   const GatherRule& rule, const CallSite& site);

/// Waits, and gives the others theirs.
void foreach_all_gather_copy_out(const UnitContext& unit, AllGatherResult& result, const GatherRule& rule);

struct ReduceInput {
  std::vector<FSDPParam*> params;
  std::vector<at::Tensor> gradients;  ///< one per parameter, all of one dtype
  std::optional<at::ScalarType> reduce_dtype;
  std::optional<double> divide_factor;
  bool force_sum = false;
};

struct ReduceResult {
  std::vector<FSDPParam*> params;
  std::vector<int64_t> offsets;  ///< of the parameters' shards in `output`
  at::Tensor output;
  WorkPtr work;  ///< null with a single rank
  ReducePlan plan;
};

/// Copies in, pre-divides and issues the reduce-scatter; gradients that are reduced in place are kept until
/// it is over. Throws AssertionError for gradients of several dtypes.
ReduceResult foreach_reduce(const UnitContext& unit, ReduceInput input, Communicator& group,
                            const ReduceRule& rule, const CallSite& site);

struct ReduceCompletion {
  Communicator* replicas = nullptr;  ///< HSDP: the group to all-reduce over
  bool all_reduce = true;            ///< false: keep the result in `partial` for a later backward
  at::Tensor* partial = nullptr;     ///< what earlier backwards kept
  std::function<void(at::Tensor)> all_reduce_hook;
  at::ScalarType orig_dtype = at::kFloat;
};

/// Waits, all-reduces, post-divides, casts to the original dtype and hands each parameter its gradient.
void finish_reduce(ReduceResult result, const ReduceCompletion& completion, const AccumulateRule& rule,
                   const CallSite& site);

}  // namespace fsdp
