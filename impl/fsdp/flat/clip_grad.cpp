#include <ATen/core/grad_mode.h>
#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>

#include <map>
#include <vector>

#include "base/gradient_norm.hpp"
#include "flat/original_slots.hpp"
#include "fsdp/errors.hpp"
#include "fsdp/flat/fully_sharded_data_parallel.hpp"

namespace fsdp::flat {

at::Tensor FullyShardedDataParallel::clip_grad_norm_(double max_norm, double norm_type) {
  const auto module = state_->require_module();
  state_->lazy_init();
  if (!state_->is_root())
    throw RuntimeError("`clip_grad_norm_()` should only be called on the root FSDP instance");
  state_->leave_failed_backward();
  if (state_->training_state() != TrainingState::idle)
    throw InvalidState("`clip_grad_norm_()` cannot be called during forward or backward.");
  const at::NoGradGuard no_grad;

  // Shards of different groups are different parts of the whole; the rest is the same on all ranks.
  std::map<std::vector<int64_t>, ShardedGradients> by_group;
  std::vector<at::Tensor> whole, all;
  // Of the parameters, and not of the gradients, which may be missing on some ranks: the same everywhere.
  auto norm_dtype = at::kFloat;
  const auto take = [&](std::vector<at::Tensor>& part, const at::Tensor& tensor) {
    if (!tensor.defined()) return;
    part.push_back(tensor);
    all.push_back(tensor);
  };
  for (const auto& state : FlatState::all_under(*module)) {
    if (!state->flat()) continue;
    norm_dtype = c10::promoteTypes(norm_dtype, state->flat()->shard().original_dtype());
    auto* part = &whole;
    if (state->flat()->shard().sharded()) {
      auto& entry = by_group[state->ranks().shard->ranks()];
      entry.group = state->ranks().shard;
      part = &entry.shards;
    }
    if (state->options().use_orig_params) {
      for (const auto& member : state->flat()->shard().members())
        take(*part, member.parameter.mutable_grad());
    } else {
      take(*part, state->flat()->shard().flat_parameter().mutable_grad());
    }
  }
  for (const auto& slot : original_slots(*module, Ties::once)) {
    if (slot.state) continue;
    norm_dtype = c10::promoteTypes(norm_dtype, slot.unmanaged.scalar_type());
    take(whole, slot.unmanaged.mutable_grad());
  }

  std::vector<ShardedGradients> sharded;
  for (auto& [ranks, part] : by_group) sharded.push_back(std::move(part));
  const auto total = total_norm(sharded, whole, norm_type, state_->ranks().shard->device(), norm_dtype);
  scale_to_norm(all, max_norm, total);
  if (all.empty()) {
    TORCH_WARN("Called FSDP.clip_grad_norm_() on rank ", rank(),
               " with no gradients -- returning the total norm in the default dtype torch.float32");
    return total.to(at::kFloat);
  }
  auto dtype = all.front().scalar_type();
  for (const auto& gradient : all) dtype = c10::promoteTypes(dtype, gradient.scalar_type());
  return total.to(dtype);
}

}  // namespace fsdp::flat
