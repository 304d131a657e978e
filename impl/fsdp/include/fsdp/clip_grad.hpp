#pragma once
// For models sharded with fully_shard. torch::nn::utils::clip_grad_norm_ must not be used on them: it sees
// this rank's shards only, and takes their norm for the whole. FSDP1 has
// FullyShardedDataParallel::clip_grad_norm_.
#include <torch/nn/module.h>

namespace fsdp {

/// Scales the gradients in place so that their total norm over all ranks is at most `max_norm`, and returns
/// the norm before that (a scalar, the same on every rank). `norm_type` is 1, 2, any other positive number,
/// or infinity. The coefficient is max_norm / (norm + 1e-6), at most 1. Call it after the backward has ended.
/// Throws InvalidArgument for a gradient outside FSDP, which would be another on every rank. Collective: one
/// all-reduce per shard group.
at::Tensor clip_grad_norm_(const torch::nn::Module& module, double max_norm, double norm_type = 2.0);

}  // namespace fsdp
