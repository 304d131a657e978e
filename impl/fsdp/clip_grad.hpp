#pragma once
#include <torch/nn/module.h>

namespace fsdp {

/// Scales the gradients in place so that their total norm over all ranks is at most `max_norm`, and returns
/// the norm before that (a scalar, the same on every rank). `norm_type` is 1, 2, any other positive number,
/// or infinity. The coefficient is max_norm / (norm + 1e-6), at most 1. Call it after the backward has ended.
/// One all-reduce per shard group.
at::Tensor clip_grad_norm_(const torch::nn::Module& module, double max_norm, double norm_type = 2.0);

}  // namespace fsdp
