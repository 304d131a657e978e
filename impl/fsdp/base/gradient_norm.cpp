#include "base/gradient_norm.hpp"

#include <ATen/ops/full.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/stack.h>

#include <cmath>

namespace fsdp {
namespace {

/// Norm of the norms; 0 without elements, which have no maximum.
at::Tensor norm_of(const std::vector<at::Tensor>& tensors, double norm_type, at::Device device,
                   at::ScalarType dtype) {
  std::vector<at::Tensor> norms;
  for (const auto& tensor : tensors) {
    if (tensor.numel() > 0)
      norms.push_back(at::linalg_vector_norm(tensor, norm_type, {}, false, dtype).to(device));
  }
  if (norms.empty()) return at::full({}, 0.0, at::TensorOptions(device).dtype(dtype));
  return norms.size() == 1 ? norms.front()
                           : at::linalg_vector_norm(at::stack(norms), norm_type, {}, false, dtype);
}

}  // namespace

at::Tensor total_norm(const std::vector<ShardedGradients>& sharded, const std::vector<at::Tensor>& whole,
                      double norm_type, at::Device device, at::ScalarType dtype) {
  const bool greatest = std::isinf(norm_type);
  // Disjoint parts: sum the powers of their norms, or take the greatest.
  const auto power = [&](const at::Tensor& norm) { return greatest ? norm : norm.pow(norm_type); };
  auto total = power(norm_of(whole, norm_type, device, dtype));
  for (const auto& part : sharded) {
    const auto sum = power(norm_of(part.shards, norm_type, device, dtype)).reshape({1}).contiguous();
    part.group->all_reduce(sum, {greatest ? ReduceOp::max : ReduceOp::sum}, {"", false, Phase::other})
        ->wait();
    total = greatest ? at::maximum(total, sum.squeeze()) : total + sum.squeeze();
  }
  return greatest ? total : total.pow(1.0 / norm_type);
}

void scale_to_norm(const std::vector<at::Tensor>& gradients, double max_norm, const at::Tensor& norm) {
  const auto coefficient = (max_norm / (norm + 1e-6)).clamp_max(1.0);
  for (auto gradient : gradients) gradient.mul_(coefficient.to(gradient.device(), gradient.scalar_type()));
}

}  // namespace fsdp
