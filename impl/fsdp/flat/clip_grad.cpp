#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/stack.h>
#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>

#include <cmath>
#include <map>
#include <vector>

#include "fsdp/errors.hpp"
#include "fsdp/flat/fully_sharded_data_parallel.hpp"
#include "fsdp/flat/original_slots.hpp"

namespace fsdp::flat {
namespace {

/// Norm of the norms, each in float32; 0 without tensors.
at::Tensor norm_of(const std::vector<at::Tensor>& gradients, double norm_type, at::Device device) {
  std::vector<at::Tensor> norms;
  for (const auto& gradient : gradients) {
    if (gradient.numel() > 0)
      norms.push_back(at::linalg_vector_norm(gradient, norm_type, {}, false, at::kFloat));
  }
  if (norms.empty()) return at::full({}, 0.0, at::TensorOptions(device).dtype(at::kFloat));
  return at::linalg_vector_norm(at::stack(norms), norm_type, {}, false, at::kFloat);
}

}  // namespace

at::Tensor FullyShardedDataParallel::clip_grad_norm_(double max_norm, double norm_type) {
  state_->lazy_init();
  if (!state_->is_root())
    throw RuntimeError("`clip_grad_norm_()` should only be called on the root FSDP instance");
  if (state_->training_state() != TrainingState::idle)
    throw AssertionError("`clip_grad_norm_()` cannot be called during forward or backward.");
  const at::NoGradGuard no_grad;
  const auto device = state_->ranks().shard->device();
  const bool greatest = std::isinf(norm_type);

  // Shards of different groups are different parts of the whole; the rest is the same on all ranks.
  std::map<std::vector<int64_t>, std::pair<std::shared_ptr<Communicator>, std::vector<at::Tensor>>> sharded;
  std::vector<at::Tensor> whole, all;
  const auto take = [&](std::vector<at::Tensor>& part, const at::Tensor& tensor) {
    if (!tensor.defined()) return;
    part.push_back(tensor);
    all.push_back(tensor);
  };
  for (const auto& state : FlatState::all_under(*state_->module())) {
    if (!state->flat()) continue;
    auto* part = &whole;
    if (state->flat()->sharded_strategy()) {
      auto& entry = sharded[state->ranks().shard->ranks()];
      entry.first = state->ranks().shard;
      part = &entry.second;
    }
    if (state->options().use_orig_params) {
      for (const auto& member : state->flat()->members()) take(*part, member.parameter.mutable_grad());
    } else {
      take(*part, state->flat()->flat_parameter().mutable_grad());
    }
  }
  for (const auto& slot : original_slots(*state_->module(), Ties::once)) {
    if (!slot.state) take(whole, slot.unmanaged.mutable_grad());
  }

  auto total = norm_of(whole, norm_type, device);
  if (!greatest) total = total.pow(norm_type);
  for (const auto& [ranks, part] : sharded) {
    const auto local = norm_of(part.second, norm_type, device);
    auto sum = (greatest ? local : local.pow(norm_type)).reshape({1}).contiguous();
    part.first->all_reduce(sum, {greatest ? ReduceOp::max : ReduceOp::sum}, {"", false, Phase::other})
        ->wait();
    total = greatest ? at::maximum(total, sum.squeeze()) : total + sum.squeeze();
  }
  if (!greatest) total = total.pow(1.0 / norm_type);

  const auto coefficient = (max_norm / (total + 1e-6)).clamp_max(1.0);
  for (auto& gradient : all) gradient.mul_(coefficient.to(gradient.scalar_type()));
  if (all.empty()) {
    TORCH_WARN("Called FSDP.clip_grad_norm_() on rank ", rank(),
               " with no gradients -- returning the total norm in the default dtype torch.float32");
    return total;
  }
  auto dtype = all.front().scalar_type();
  for (const auto& gradient : all) dtype = c10::promoteTypes(dtype, gradient.scalar_type());
  return total.to(dtype);
}

}  // namespace fsdp::flat
