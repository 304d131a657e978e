// The sharded state of a parameter group: gathering, freeing, and resharding to a smaller group.
#include <ATen/core/grad_mode.h>

#include <utility>

#include "fsdp/param_group.hpp"
#include "fsdp/storage.hpp"

namespace fsdp {

Communicator& FSDPParamGroup::gather_group() const {
  return sharded_state_ == ShardedState::sharded_post_forward ? *ranks_.post_forward : *ranks_.shard;
}

AllGatherInput FSDPParamGroup::gather_input() const {
  const bool post_forward = sharded_state_ == ShardedState::sharded_post_forward;
  const auto ranks = gather_group().size();
  AllGatherInput input;
  input.dtype = params_.front()->gather_dtype();
  for (const auto& param : params_) {
    if (param->gather_dtype() != input.dtype) input.dtype = at::kByte;
  }
  const bool as_bytes = input.dtype == at::kByte;
  for (size_t i = 0; i < params_.size(); ++i) {
    auto& param = *params_[i];
    const auto itemsize = as_bytes ? static_cast<int64_t>(c10::elementSize(param.gather_dtype())) : 1;
    // A smaller group holds equal parts of the gathered buffer as it lies, whatever dimension the parameter
    // is cut on.
    const auto numel = itemsize * (post_forward ? param.full_numel() / ranks : param.padded_shard_numel());
    input.params.push_back(&param);
    input.slots.push_back({0, numel, post_forward ? 0 : param.layout().dim, param.layout().global_shape});
    if (post_forward) {
      input.pieces.push_back(post_forward_pieces_[i]);
    } else {
      input.pieces.push_back(as_bytes ? param.piece().to(param.gather_dtype()) : param.piece());
    }
  }
  return input;
}

void FSDPParamGroup::unshard() {
  if (gathering_ || sharded_state_ == ShardedState::unsharded) return;
  if (!unshard_in_backward && unit_.training_state == TrainingState::pre_backward) return;
  lazy_init();
  const at::NoGradGuard no_grad;
  gathering_ = foreach_all_gather(unit_, gather_input(), gather_group(), *seams_.gather, call_site());
}

void FSDPParamGroup::wait_for_unshard() {
  if (!gathering_) return;
  const at::NoGradGuard no_grad;
  auto result = std::move(*gathering_);
  gathering_.reset();
  foreach_all_gather_copy_out(unit_, result, *seams_.gather);
  for (const auto& param : params_) param->to_unsharded();
  post_forward_pieces_.clear();
  sharded_state_ = ShardedState::unsharded;
}

void FSDPParamGroup::reshard() {
  if (unit_.training_state == TrainingState::forward) {
    const auto target = seams_.reshard->after_forward(unit_, after_forward);
    if (target == ShardedState::unsharded) return;
    if (target == ShardedState::sharded_post_forward) {
      to_sharded_post_forward();
      return;
    }
  }
  to_sharded();
}

void FSDPParamGroup::to_sharded() {
  if (sharded_state_ == ShardedState::sharded) return;
  for (const auto& param : params_) param->to_sharded();
  if (sharded_state_ == ShardedState::unsharded) free_unsharded();
  post_forward_pieces_.clear();
  sharded_state_ = ShardedState::sharded;
}

void FSDPParamGroup::free_unsharded() {
  for (const auto& param : params_) {
    if (param->full().defined()) seams_.reshard->free(unit_, param->full());
  }
}

void FSDPParamGroup::to_sharded_post_forward() {
  if (sharded_state_ != ShardedState::unsharded) return;
  const at::NoGradGuard no_grad;
  const auto& group = *ranks_.post_forward;
  for (const auto& param : params_) {
    const auto numel = param->full_numel() / group.size();
    // A copy, so that the gathered memory can go.
    post_forward_pieces_.push_back(param->full().narrow(0, group.rank() * numel, numel).clone());
    param->to_sharded_post_forward(post_forward_pieces_.back(), group.rank(), group.size(), *seams_.shard);
  }
  free_unsharded();
  sharded_state_ = ShardedState::sharded_post_forward;
}

}  // namespace fsdp
