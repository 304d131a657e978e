#include "per_parameter/init.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "base/storage.hpp"
#include "fsdp/errors.hpp"
#include "per_parameter/state.hpp"

namespace fsdp {
namespace {

using TensorSet = std::set<const c10::TensorImpl*>;

TensorSet identities(const std::vector<at::Tensor>& tensors) {
  TensorSet result;
  for (const auto& tensor : tensors) result.insert(tensor.unsafeGetTensorImpl());
  return result;
}

/// Whether nothing in the module and below it needs FSDP's care.
bool is_ignored(const torch::nn::Module& module, const TensorSet& ignored,
                std::map<const torch::nn::Module*, bool>& decided) {
  if (const auto known = decided.find(&module); known != decided.end()) return known->second;
  bool result = module.buffers(/*recurse=*/false).empty();
  for (const auto& parameter : module.parameters(/*recurse=*/false)) {
    result = result && ignored.contains(parameter.unsafeGetTensorImpl());
  }
  for (const auto& child : module.children()) result = result && is_ignored(*child, ignored, decided);
  return decided[&module] = result;
}

}  // namespace

void validate_mesh(const DeviceMesh& mesh) {
  if (mesh.ndim() != 1 && mesh.ndim() != 2) {
    throw InvalidArgument("fully_shard expects a 1D or 2D DeviceMesh but got " + mesh.str());
  }
  if (mesh.ndim() == 2 && mesh.dim_names().empty()) {
    throw InvalidState("Please init the 2D mesh for HSDP with mesh_dim_names specified");
  }
}

PostForward post_forward_of(const ReshardAfterForward& reshard_after_forward, int64_t shard_ranks) {
  if (std::holds_alternative<std::monostate>(reshard_after_forward))
    return {ShardedState::sharded, shard_ranks};
  if (const auto* reshard = std::get_if<bool>(&reshard_after_forward)) {
    return {*reshard ? ShardedState::sharded : ShardedState::unsharded, shard_ranks};
  }
  const auto ranks = std::get<int64_t>(reshard_after_forward);
  if (ranks < 1 || ranks > shard_ranks || shard_ranks % ranks != 0) {
    throw InvalidArgument("If passing reshard_after_forward as an int, it should be a factor of " +
                          std::to_string(shard_ranks) + ", not " + std::to_string(ranks));
  }
  if (ranks == 1) {
    TORCH_WARN_ONCE(
        "reshard_after_forward=1 (int) means resharding parameters to world size 1, instead of "
        "reshard_after_forward=True (bool)");
    return {ShardedState::unsharded, shard_ranks};
  }
  if (ranks == shard_ranks) return {ShardedState::sharded, shard_ranks};
  return {ShardedState::sharded_post_forward, ranks};
}

ModuleList root_modules(const ModuleList& modules) {
  ModuleList roots;
  for (const auto& module : modules) {
    const bool below = std::any_of(modules.begin(), modules.end(), [&](const auto& other) {
      if (other == module) return false;
      const auto descendants = other->modules(/*include_self=*/false);
      return std::find(descendants.begin(), descendants.end(), module) != descendants.end();
    });
    if (!below && std::find(roots.begin(), roots.end(), module) == roots.end()) roots.push_back(module);
  }
  return roots;
}

ModuleList managed_modules(const ModuleList& roots, const std::vector<at::Tensor>& ignored_params) {
  ModuleList managed;
  std::set<const torch::nn::Module*> visited;
  const std::function<void(const std::shared_ptr<torch::nn::Module>&)> visit = [&](const auto& module) {
    const bool is_root = std::find(roots.begin(), roots.end(), module) != roots.end();
    if (!is_root && FSDPState::of(*module)) return;
    visited.insert(module.get());
    for (const auto& child : module->children()) {
      if (!visited.contains(child.get())) visit(child);
    }
    managed.push_back(module);
  };
  for (const auto& root : roots) visit(root);
  if (ignored_params.empty()) return managed;

  const auto ignored = identities(ignored_params);
  std::map<const torch::nn::Module*, bool> decided;
  std::erase_if(managed, [&](const auto& module) { return is_ignored(*module, ignored, decided); });
  return managed;
}

std::vector<ManagedParameter> managed_parameters(const ModuleList& modules,
                                                 const std::vector<at::Tensor>& ignored_params) {
  const auto ignored = identities(ignored_params);
  TensorSet visited;
  std::vector<ManagedParameter> parameters;
  for (const auto& module : modules) {
    for (const auto& entry : module->named_parameters(/*recurse=*/false)) {
      const auto& parameter = entry.value();
      if (ignored.contains(parameter.unsafeGetTensorImpl())) continue;
      if (!visited.insert(parameter.unsafeGetTensorImpl()).second) continue;
      if (parameter.dim() == 0) {
        throw InvalidArgument("fully_shard doesn't support scalar parameters. Change " + entry.key() +
                              " to a 1D tensor with numel equal to 1.");
      }
      parameters.push_back({parameter, entry.key()});
    }
  }
  return parameters;
}

void move_states_to_device(const ModuleList& modules, const std::vector<ManagedParameter>& parameters,
                           at::Device device) {
  const auto move = [device](at::Tensor tensor) {
    if (tensor.device() != device && !tensor.is_meta()) replace_data(tensor, tensor.detach().to(device));
  };
  for (const auto& managed : parameters) move(managed.parameter);
  for (const auto& module : modules) {
    for (const auto& buffer : module->buffers(/*recurse=*/false)) move(buffer);
  }
}

}  // namespace fsdp
