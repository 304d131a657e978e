#pragma once
// The two collectives of a parameter group, over flat buffers.
//
// All-gather: with n elements of padded shards per rank, the output has ranks * n elements and this rank's
// input is its own slice of it. Within a slice parameters follow each other in group order, without gaps.
// Reduce-scatter: the input is [ranks, n], slot r holding every gradient's r-th piece; the output is the sum
// of slot `rank`.
#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <vector>

#include "fsdp/param.hpp"
#include "fsdp/seams.hpp"

namespace fsdp {

/// What an all-gather moves.
struct AllGatherInput {
  std::vector<Slot> slots;
  std::vector<at::Tensor> pieces;
  at::ScalarType dtype;  ///< kByte where parameters differ; offsets and lengths then count bytes
  int64_t rank_numel = 0;
};

struct AllGatherResult {
  at::Tensor output;
  std::vector<Slot> slots;
  WorkPtr work;  ///< null with a single rank
};

AllGatherResult foreach_all_gather(const UnitContext& unit, AllGatherInput input, Communicator& group,
                                   const GatherRule& rule, const CallSite& site);

/// Waits, and fills the buffers.
void foreach_all_gather_copy_out(const UnitContext& unit, AllGatherResult& result,
                                 const std::vector<at::Tensor>& full, const GatherRule& rule);

struct ReduceInput {
  std::vector<FSDPParam*> params;
  std::vector<at::Tensor> gradients;  ///< one per parameter, all of one dtype
  std::optional<at::ScalarType> reduce_dtype;
  std::optional<double> divide_factor;
  bool force_sum = false;
};

struct ReduceResult {
  std::vector<FSDPParam*> params;
  at::Tensor output;
  WorkPtr work;  ///< null with a single rank
  ReducePlan plan;
};

/// Copies in, pre-divides and issues the reduce-scatter. Throws AssertionError for gradients of several
/// dtypes.
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
