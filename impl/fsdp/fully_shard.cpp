#include "fsdp/fully_shard.hpp"

#include <utility>

#include "fsdp/init.hpp"
#include "fsdp/state.hpp"

namespace fsdp {

FSDPModule fully_shard(const std::vector<std::shared_ptr<torch::nn::Module>>& modules,
                       const FullyShardOptions& options) {
  const auto mesh = options.mesh ? *options.mesh : default_mesh();
  validate_mesh(mesh);
  const auto roots = root_modules(modules);
  if (roots.empty()) throw ValueError("fully_shard expects at least one module");
  for (const auto& root : roots) {
    if (FSDPState::of(*root)) {
      throw AssertionError(
          "Each distinct composable distributed API can only be applied to a module once. fully_shard has "
          "already been "
          "applied to the following module:\n" +
          c10::str(*root));
    }
  }
  const auto shard_dim = mesh.ndim() - 1;
  const auto after_forward = post_forward_of(options.reshard_after_forward, mesh.size(shard_dim));
  const auto seams = complete(options.seams);
  const auto managed = managed_modules(roots, options.ignored_params);
  const auto parameters = managed_parameters(managed, options.ignored_params);

  const bool automatic = std::holds_alternative<std::monostate>(options.reshard_after_forward);
  const auto state = std::make_shared<FSDPState>(roots, options.mp_policy, seams, automatic);
  state->install_hooks();
  move_states_to_device(managed, parameters, mesh.device());
  std::unique_ptr<FSDPParamGroup> group;
  if (!parameters.empty()) {
    const auto decorated = [&](std::shared_ptr<Communicator> communicator) {
      return seams.communicator ? seams.communicator(std::move(communicator)) : communicator;
    };
    GroupRanks ranks;
    ranks.shard = decorated(mesh.group(shard_dim));
    if (mesh.ndim() == 2) ranks.replicate = decorated(mesh.group(0));
    if (after_forward.state == ShardedState::sharded_post_forward) {
      ranks.post_forward = decorated(mesh.consecutive_group(after_forward.ranks));
    }
    group = std::make_unique<FSDPParamGroup>(parameters, std::move(ranks), after_forward.state,
                                             options.mp_policy, options.shard_placement_fn, seams);
  }
  state->activate(std::move(group), mesh.device());
  return FSDPModule(state);
}

FSDPModule fully_shard(const std::shared_ptr<torch::nn::Module>& module, const FullyShardOptions& options) {
  return fully_shard(std::vector<std::shared_ptr<torch::nn::Module>>{module}, options);
}

}  // namespace fsdp
