#include "fsdp/clip_grad.hpp"

#include <ATen/core/grad_mode.h>
#include <c10/core/ScalarType.h>

#include <map>
#include <optional>
#include <vector>

#include "base/gradient_norm.hpp"
#include "fsdp/fully_shard.hpp"

namespace fsdp {

at::Tensor clip_grad_norm_(const torch::nn::Module& module, double max_norm, double norm_type) {
  const at::NoGradGuard no_grad;
  std::map<std::vector<int64_t>, ShardedGradients> by_group;
  std::vector<at::Tensor> all;
  // Of the parameters that may have a gradient, and not of the gradients, which may be missing on some
  // ranks: the same everywhere.
  std::optional<at::ScalarType> dtype;
  for (const auto& parameter : named_parameters(module)) {
    const auto& gradient = parameter.parameter.mutable_grad();
    if (!parameter.group) {
      if (!gradient.defined()) continue;
      throw InvalidArgument(
          "clip_grad_norm_: the parameter '" + parameter.name +
          "' has a gradient and is not sharded. Its gradient is this rank's own, so that the norm "
          "would differ from rank to rank: shard its module, or average and clip it separately.");
    }
    if (parameter.parameter.requires_grad() || gradient.defined()) {
      const auto own = parameter.parameter.scalar_type();
      dtype = dtype ? c10::promoteTypes(*dtype, own) : own;
    }
    auto& part = by_group[parameter.group->ranks()];
    part.group = parameter.group;
    if (!gradient.defined()) continue;
    part.shards.push_back(gradient);
    all.push_back(gradient);
  }
  if (by_group.empty()) throw InvalidArgument("clip_grad_norm_: no module under this one is sharded");
  std::vector<ShardedGradients> sharded;
  for (auto& [ranks, part] : by_group) sharded.push_back(std::move(part));
  const auto total =
      total_norm(sharded, {}, norm_type, sharded.front().group->device(), dtype.value_or(at::kFloat));
  scale_to_norm(all, max_norm, total);
  return total;
}

}  // namespace fsdp
