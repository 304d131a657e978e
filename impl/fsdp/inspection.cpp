// What users can see of a sharded model.
#include <set>
#include <utility>

#include "fsdp/fully_shard.hpp"
#include "fsdp/state.hpp"

namespace fsdp {
namespace {

UnitParameter describe(std::string name, const at::Tensor& parameter) {
  UnitParameter result{
      .name = std::move(name), .parameter = parameter, .layout = {}, .gradient = {}, .group = {}};
  const auto [state, index] = FSDPState::of_parameter(parameter);
  if (!state) {
    result.state = ShardedState::unsharded;
    result.gradient = parameter.mutable_grad();
    result.gradient_sharded = false;
    return result;
  }
  auto& group = *state->group();
  auto& param = *group.params()[index];
  result.layout = param.layout();
  result.state = group.sharded_state();
  result.group = group.ranks().shard;
  if (result.state == ShardedState::unsharded) {
    result.gradient = param.unsharded_grad();
    result.gradient_sharded = false;
  } else {
    result.gradient = parameter.mutable_grad();
  }
  return result;
}

}  // namespace

std::vector<UnitParameter> FSDPModule::parameters() const {
  std::vector<UnitParameter> parameters;
  if (!state_->group()) return parameters;
  for (const auto& param : state_->group()->params()) {
    auto name = param->name();
    for (const auto& module : state_->modules()) {
      for (const auto& entry : module->named_parameters()) {
        if (entry.value().is_same(param->parameter())) name = entry.key();
      }
    }
    parameters.push_back(describe(std::move(name), param->parameter()));
  }
  return parameters;
}

std::vector<UnitParameter> named_parameters(const torch::nn::Module& root) {
  std::vector<UnitParameter> parameters;
  std::set<const c10::TensorImpl*> seen;
  for (const auto& entry : root.named_parameters()) {
    if (seen.insert(entry.value().unsafeGetTensorImpl()).second)
      parameters.push_back(describe(entry.key(), entry.value()));
  }
  return parameters;
}

std::vector<std::pair<std::string, FSDPModule>> named_units(const torch::nn::Module& root) {
  std::vector<std::pair<std::string, FSDPModule>> units;
  for (const auto& entry : root.named_modules("", /*include_self=*/true)) {
    if (FSDPModule::is(*entry.value())) units.emplace_back(entry.key(), FSDPModule::of(*entry.value()));
  }
  return units;
}

HookCounters hook_counters(const torch::nn::Module& module) {
  return FSDPModule::of(module).state()->counters;
}

}  // namespace fsdp
