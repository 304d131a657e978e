#pragma once
// The two collectives of a parameter group, over flat buffers.
//
// All-gather: with n elements of padded shards per rank, the output has ranks * n elements and this rank's
// input is its own slice of it. Within a slice parameters follow each other in group order, without gaps.
// Reduce-scatter: the input is [ranks, n], slot r holding every gradient's r-th piece; the output is the sum
// of slot `rank`.
// On an accelerator each collective goes to a stream of its own, behind its copy-in; what it produced may be used on
// another stream after an event. Large parameters are left out of these buffers where the backend allows it: their pieces go straight from
// shard to unsharded memory, and from the gradient to the rank that sums it, within the same collective.
#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <vector>

#include "base/streams.hpp"
#include "per_parameter/buffer_copies.hpp"
#include "per_parameter/param.hpp"

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
  int64_t ranks = 1;        ///< that gather: when it is copied out its unit may lie with others
  WorkPtr work;             ///< null with a single rank
  StreamEvent gathered;     ///< behind the collective
};

/// Copies in on the current stream, gathers on `stream`. Parameters that are gathered in place have their
/// unsharded memory from here on.
AllGatherResult foreach_all_gather(AllGatherInput input, Communicator& group, const SideStream& stream,
                                   const CallSite& site);

/// Waits, and gives the others theirs, on the current stream, which uses `result.output`.
void foreach_all_gather_copy_out(AllGatherResult& result);

struct ReduceInput {
  std::vector<FSDPParam*> params;
  std::vector<at::Tensor> gradients;  ///< one per parameter, all of one dtype
  std::optional<at::ScalarType> reduce_dtype;
  std::optional<double> divide_factor;
  bool force_sum = false;
};

/// How gradients become a mean over the ranks.
struct ReducePlan {
  std::optional<double> pre_divide;
  Reduction reduce_scatter;
  Reduction all_reduce;  ///< over the replicas
  std::optional<double> post_divide;
};
/// `dtype`: of the reduction. `data_parallel_size`: shards times replicas. fp32 and bf16 are averaged by the
/// collective; a dtype of narrower range is divided before and after the sum, so that neither overflows.
/// `divide_factor`, `force_sum`: FSDPModule::set_gradient_divide_factor, set_force_sum_reduction_for_comms.
ReducePlan reduce_plan(at::ScalarType dtype, int64_t ranks, int64_t data_parallel_size,
                       std::optional<double> divide_factor, bool force_sum);

struct ReduceResult {
  std::vector<FSDPParam*> params;
  std::vector<int64_t> offsets;  ///< of the parameters' shards in `output`
  at::Tensor input;  ///< on an accelerator: memory of the current stream that the reduce-scatter reads
  at::Tensor output;
  WorkPtr work;  ///< null with a single rank
  ReducePlan plan;
};

/// Copies in on the current stream, pre-divides and issues the reduce-scatter on `stream`; gradients that are
/// reduced in place are kept until it is over. Throws InvalidState for gradients of several dtypes.
ReduceResult foreach_reduce(ReduceInput input, Communicator& group, int64_t data_parallel_size,
                            const SideStream& stream, const CallSite& site);

struct ReduceCompletion {
  Communicator* replicas = nullptr;  ///< HSDP: the group to all-reduce over
  bool all_reduce = true;            ///< false: keep the result in `partial` for a later backward
  at::Tensor* partial = nullptr;     ///< what earlier backwards kept
  std::function<void(at::Tensor)> all_reduce_hook;
  at::ScalarType orig_dtype = at::kFloat;
  std::optional<CPUOffloadPolicy> offload = std::nullopt;  ///< gradients go to host memory
};

/// Of a reduction on an accelerator: what it is done with, and memory that another stream than its own uses.
struct Reduced {
  StreamEvent scattered;  ///< behind the reduce-scatter, which reads `input`
  at::Tensor input;
  StreamEvent handed_over;  ///< behind the last use of `output`: each parameter has its gradient
  at::Tensor output;        ///< none where no other stream uses it
  /// With offload: gradients that are under way to host memory, to be handed over when the host has waited.
  std::vector<std::pair<const FSDPParam*, at::Tensor>> arriving;
};

/// Waits, all-reduces, post-divides, casts to the original dtype and hands each parameter its gradient, but
/// for those that are `arriving`. The current stream is that of the reduce-scatter; what uses its output in another group goes to `all_reduce`.
Reduced finish_reduce(ReduceResult result, const ReduceCompletion& completion, const SideStream& all_reduce,
                      const CallSite& site);

}  // namespace fsdp
