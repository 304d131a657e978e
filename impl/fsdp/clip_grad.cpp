#include "fsdp/clip_grad.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>

#include <cmath>
#include <map>
#include <set>
#include <vector>

#include "fsdp/fully_shard.hpp"

namespace fsdp {
namespace {

/// The norm of the concatenation, in the gradients' dtype.
at::Tensor norm_of(const std::vector<at::Tensor>& tensors, double norm_type, at::ScalarType dtype) {
  std::vector<at::Tensor> norms;
  for (const auto& tensor : tensors) {
    // An empty shard has no maximum; its norm is nought.
    if (tensor.numel() > 0) norms.push_back(at::linalg_vector_norm(tensor, norm_type).to(dtype));
  }
  if (norms.empty()) return at::scalar_tensor(0.0, at::TensorOptions().dtype(dtype));
  return norms.size() == 1 ? norms.front() : at::linalg_vector_norm(at::stack(norms), norm_type);
}

/// The ranks of a group hold disjoint parts: sum their norms' powers, or take the greatest.
at::Tensor over_ranks(const at::Tensor& local, Communicator& group, double norm_type) {
  const bool greatest = std::isinf(norm_type);
  auto total = (greatest ? local : local.pow(norm_type)).reshape({1});
  group.all_reduce(total, {greatest ? ReduceOp::max : ReduceOp::sum}, {})->wait();
  return greatest ? total.squeeze() : total.pow(1.0 / norm_type).squeeze();
}

}  // namespace

at::Tensor clip_grad_norm_(const torch::nn::Module& module, double max_norm, double norm_type) {
  const at::NoGradGuard no_grad;
  // Parameters of different groups of ranks are different parts of the whole; those outside FSDP are on every
  // rank.
  std::map<std::vector<int64_t>, std::pair<std::shared_ptr<Communicator>, std::vector<at::Tensor>>> sharded;
  std::vector<at::Tensor> whole, all;
  for (const auto& parameter : named_parameters(module)) {
    const auto& gradient = parameter.parameter.mutable_grad();
    if (parameter.group) {
      auto& part = sharded[parameter.group->ranks()];
      part.first = parameter.group;
      if (gradient.defined()) part.second.push_back(gradient);
    } else if (gradient.defined()) {
      whole.push_back(gradient);
    }
    if (gradient.defined()) all.push_back(gradient);
  }
  const auto dtype = all.empty() ? at::kFloat : all.front().scalar_type();
  std::vector<at::Tensor> parts{norm_of(whole, norm_type, dtype)};
  for (const auto& [ranks, part] : sharded) {
    parts.push_back(over_ranks(norm_of(part.second, norm_type, dtype), *part.first, norm_type));
  }
  const auto total = norm_of(parts, norm_type, dtype);
  const auto coefficient = (max_norm / (total + 1e-6)).clamp_max(1.0);
  for (auto& gradient : all) gradient.mul_(coefficient.to(gradient.scalar_type()));
  return total;
}

}  // namespace fsdp
