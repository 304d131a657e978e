#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/optimizer_values.hpp"
#include "base/state_dict_validation.hpp"
#include "fsdp/optim_state.hpp"
#include "per_parameter/state.hpp"

namespace fsdp {
namespace {

struct UpdatedParameter {
  std::string name;
  ShardedTensor shard;  ///< local is what the optimizer updates
};

/// Every parameter once, in order. Units go back to shards first.
std::vector<UpdatedParameter> updated_parameters(const torch::nn::Module& module) {
  std::vector<UpdatedParameter> result;
  std::set<const c10::TensorImpl*> seen;
  for (const auto& entry : module.named_parameters()) {
    const auto& parameter = entry.value();
    if (!seen.insert(parameter.unsafeGetTensorImpl()).second) continue;
    const auto [state, index] = FSDPState::of_parameter(parameter);
    if (!state) {
      result.push_back({entry.key(), unsharded(parameter)});
      continue;
    }
    auto& group = *state->group();
    group.to_sharded();
    result.push_back({entry.key(), {parameter, group.params()[index]->layout(), group.ranks().shard}});
  }
  return result;
}

bool is_shaped(const UpdatedParameter& parameter, const at::Tensor& whole) {
  return whole.sizes() == at::IntArrayRef(parameter.shard.layout.global_shape) && whole.dim() > 0;
}

}  // namespace

ShardedOptimizerState sharded_optimizer_state(const torch::nn::Module& module, const OptimizerState& state) {
  const at::NoGradGuard no_grad;
  const auto parameters = updated_parameters(module);
  const auto given = by_tensor(state);
  const auto values_of = [&](const UpdatedParameter& parameter) {
    const auto& shard = parameter.shard;
    const auto entry = given.find(shard.local.unsafeGetTensorImpl());
    const bool without_rows = shard.group && shard.layout.length == 0 && shard.layout.start > 0;
    return entry == given.end() || without_rows ? nullptr : entry->second;
  };
  struct GroupKinds {
    std::shared_ptr<Communicator> group;
    OptimizerValueKinds kinds;
  };
  std::map<std::vector<int64_t>, GroupKinds> by_group;  // in the same order on every rank
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto& shard = parameters[i].shard;
    if (!shard.group) continue;
    auto& part = by_group[shard.group->ranks()];
    part.group = shard.group;
    const auto* values = values_of(parameters[i]);
    if (!values) continue;
    for (const auto& [name, value] : *values)
      part.kinds[{i, name}] = kind_of(name, value, shard.layout.local_shape());
  }
  for (auto& [ranks, part] : by_group) agree(part.kinds, *part.group, CallSite{"", false, Phase::state_dict});

  ShardedOptimizerState result;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto& shard = parameters[i].shard;
    const auto* values = values_of(parameters[i]);
    std::map<std::string, ShardedTensor> own;
    if (!shard.group && values) {
      for (const auto& [name, value] : *values) own.emplace(name, unsharded(value));
    } else if (shard.group) {
      const auto& kinds = by_group.at(shard.group->ranks()).kinds;
      for (auto kind = kinds.lower_bound({i, ""}); kind != kinds.end() && kind->first.first == i; ++kind) {
        const auto& name = kind->first.second;
        if (kind->second.scalar) {
          own.emplace(name, unsharded(scalar_tensor(kind->second, shard.local.device())));
          continue;
        }
        const auto local =
            values && values->contains(name)
                ? values->at(name).detach()
                : at::zeros(shard.layout.local_shape(), shard.local.options().dtype(kind->second.dtype));
        own.emplace(name, ShardedTensor{local, shard.layout, shard.group});
      }
    }
    if (!own.empty()) result.emplace_back(parameters[i].name, std::move(own));
  }
  return result;
}

FullOptimizerState full_optimizer_state(const torch::nn::Module& module, const OptimizerState& state) {
  const at::NoGradGuard no_grad;
  FullOptimizerState result;
  for (const auto& [name, values] : sharded_optimizer_state(module, state)) {
    result.emplace_back(name, OptimizerValues{});
    for (const auto& [key, value] : values) result.back().second[key] = value.full_tensor();
  }
  return result;
}

OptimizerState load_sharded_optimizer_state(const torch::nn::Module& module,
                                            const ShardedOptimizerState& state) {
  const at::NoGradGuard no_grad;
  const auto parameters = updated_parameters(module);
  std::map<std::string, const UpdatedParameter*> by_name;
  for (const auto& parameter : parameters) by_name[parameter.name] = &parameter;
  StateDictValidation validation(module);
  OptimizerState result;
  std::set<std::string> seen;
  for (const auto& [name, values] : state) {
    if (!seen.insert(name).second)
      validation.fault("Parameter given twice in optimizer state: '" + name + "'.");
    const auto found = by_name.find(name);
    if (found == by_name.end()) {
      validation.fault("Unexpected parameter in optimizer state: '" + name + "'.");
      continue;
    }
    const auto& shard = found->second->shard;
    result.emplace_back(shard.local, OptimizerValues{});
    for (const auto& [key, value] : values) {
      const auto what = name + "/" + key;
      const bool scalar = !value.group && value.local.numel() == 1 &&
                          value.local.dim() != static_cast<int64_t>(shard.layout.global_shape.size());
      if (!scalar) validation.same_shard(what, value, shard.layout);
      result.back().second[key] = value.local.detach().clone();
    }
  }
  validation.finish();
  return result;
}

OptimizerState load_full_optimizer_state(const torch::nn::Module& module, const FullOptimizerState& state) {
  const at::NoGradGuard no_grad;
  const auto parameters = updated_parameters(module);
  std::map<std::string, const UpdatedParameter*> by_name;
  for (const auto& parameter : parameters) by_name[parameter.name] = &parameter;
  validate_optimizer_state(module, state,
                           [&](const std::string& name) -> std::optional<std::vector<int64_t>> {
                             const auto found = by_name.find(name);
                             if (found == by_name.end()) return std::nullopt;
                             return found->second->shard.layout.global_shape;
                           });
  OptimizerState result;
  for (const auto& [name, values] : state) {
    const auto& parameter = *by_name.at(name);
    const auto& layout = parameter.shard.layout;
    result.emplace_back(parameter.shard.local, OptimizerValues{});
    for (const auto& [key, value] : values) {
      const bool cut = parameter.shard.group && is_shaped(parameter, value);
      result.back().second[key] =
          (cut ? value.narrow(layout.dim, layout.start, layout.length) : value).detach().clone();
    }
  }
  return result;
}

}  // namespace fsdp
