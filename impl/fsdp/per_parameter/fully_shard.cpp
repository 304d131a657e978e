#include "fsdp/fully_shard.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <set>
#include <utility>

#include "base/storage.hpp"
#include "base/unit_registry.hpp"
#include "fsdp/wrap/module_class.hpp"
#include "per_parameter/init.hpp"
#include "per_parameter/state.hpp"

namespace fsdp {
namespace {

template <class Apply>
void for_each_group(FSDPState& state, const std::vector<std::shared_ptr<torch::nn::Module>>& modules,
                    bool recurse, Apply apply) {
  for (const auto& module : modules) {
    if (!recurse) continue;
    for (const auto& descendant : module->modules(/*include_self=*/false)) {
      const auto nested = FSDPState::of(*descendant);
      if (nested && nested->group()) apply(*nested, *nested->group());
    }
  }
  if (state.group()) apply(state, *state.group());
}

std::vector<std::weak_ptr<FSDPState>> states_of(
    const std::vector<std::shared_ptr<torch::nn::Module>>& modules) {
  std::vector<std::weak_ptr<FSDPState>> states;
  for (const auto& module : modules) {
    const auto state = FSDPState::of(*module);
    if (!state)
      throw InvalidArgument("Expects FSDPModule but got " + nominal_classes(*module).front() + ": " +
                            c10::str(*module));
    states.push_back(state);
  }
  return states;
}

/// LibTorch keeps one hook per tensor: this is all of them.
class GradientHooks : public torch::autograd::PostAccumulateGradHook {
 public:
  void add(std::function<void(at::Tensor)> hook) { hooks_.push_back(std::move(hook)); }
  void operator()(const at::Tensor& parameter) override {
    for (const auto& hook : hooks_) hook(parameter);
  }

 private:
  std::vector<std::function<void(at::Tensor)>> hooks_;
};

UnitParameter describe(std::string name, const at::Tensor& parameter) {
  UnitParameter result{.name = std::move(name),
                       .parameter = parameter,
                       .layout = {},
                       .shown = {},
                       .gradient = {},
                       .group = {}};
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
  if (result.state == ShardedState::sharded) result.shown = result.layout;
  if (result.state == ShardedState::sharded_post_forward) {
    const auto& smaller = *group.ranks().post_forward;
    const auto size = result.layout->global_shape[0];
    const auto rows = chunk_rows(size, smaller.size(), smaller.rank());
    result.shown = ShardLayout{result.layout->global_shape, 0, rows.begin, rows.end - rows.begin,
                               chunk_size(size, smaller.size())};
  }
  if (result.state == ShardedState::unsharded) {
    result.gradient = param.unsharded_grad();
    result.gradient_sharded = false;
  } else {
    result.gradient = parameter.mutable_grad();
  }
  return result;
}

}  // namespace

FSDPModule fully_shard(const std::vector<std::shared_ptr<torch::nn::Module>>& modules,
                       const FullyShardOptions& options) {
  const auto mesh = options.mesh ? *options.mesh : default_mesh();
  validate_mesh(mesh);
  const auto roots = root_modules(modules);
  if (roots.empty()) throw InvalidArgument("fully_shard expects at least one module");
  // In a group of modules it is gathered when another member runs; alone it never would be.
  if (roots.size() == 1 && matches_any(container_classes(), *roots[0]))
    throw InvalidArgument("fully_shard does not support containers that do not implement forward: " +
                          c10::str(*roots[0]));
  for (const auto& root : roots) {
    if (FSDPState::of(*root)) {
      throw InvalidState(
          "Each distinct composable distributed API can only be applied to a module once. fully_shard has "
          "already been "
          "applied to the following module:\n" +
          c10::str(*root));
    }
    UnitRegistry::instance().refuse_other_engine(Engine::per_parameter, *root);
  }
  const auto shard_dim = mesh.ndim() - 1;
  const auto after_forward = post_forward_of(options.reshard_after_forward, mesh.size(shard_dim));
  const auto managed = managed_modules(roots, options.ignored_params);
  const auto parameters = managed_parameters(managed, options.ignored_params);
  // A tied parameter has one owner: sharded again, its shard would be taken for the whole.
  for (const auto& managed_parameter : parameters) {
    const auto [owner, index] = FSDPState::of_parameter(managed_parameter.parameter);
    if (!owner) continue;
    throw InvalidArgument("Parameter " + managed_parameter.name +
                          " is already managed by another fully_shard call, as " +
                          owner->group()->params()[index]->name() +
                          ". Shard modules that share a parameter together, or with a module above them.");
  }

  const bool automatic = std::holds_alternative<std::monostate>(options.reshard_after_forward);
  const auto state = std::make_shared<FSDPState>(roots, options.mp_policy, automatic);
  state->install_hooks();
  move_states_to_device(managed, parameters, mesh.device());
  std::unique_ptr<FSDPParamGroup> group;
  if (!parameters.empty()) {
    GroupRanks ranks;
    ranks.shard = mesh.group(shard_dim);
    if (mesh.ndim() == 2) ranks.replicate = mesh.group(0);
    if (after_forward.state == ShardedState::sharded_post_forward) {
      ranks.post_forward = mesh.consecutive_group(after_forward.ranks);
    }
    group =
        std::make_unique<FSDPParamGroup>(parameters, std::move(ranks), after_forward.state, options.mp_policy,
                                         options.offload_policy, options.shard_placement_fn);
  }
  state->activate(std::move(group), mesh.device());
  return FSDPModule(state);
}

FSDPModule fully_shard(const std::shared_ptr<torch::nn::Module>& module, const FullyShardOptions& options) {
  return fully_shard(std::vector<std::shared_ptr<torch::nn::Module>>{module}, options);
}

void UnshardHandle::wait() {
  if (auto state = std::exchange(state_, nullptr); state && state->group())
    state->group()->wait_for_unshard();
}

FSDPModule FSDPModule::of(const torch::nn::Module& module) {
  auto state = FSDPState::of(module);
  if (!state) throw InvalidState("No FSDP state found on " + c10::str(module));
  return {std::move(state), const_cast<torch::nn::Module&>(module).weak_from_this()};
}

std::vector<std::shared_ptr<torch::nn::Module>> FSDPModule::modules() const {
  if (auto module = module_.lock()) return {std::move(module)};
  return state_->modules();
}

bool FSDPModule::is(const torch::nn::Module& module) {
  return FSDPState::of(module) != nullptr;
}

void FSDPModule::reshard() {
  if (state_->group()) state_->group()->reshard();
}

std::optional<UnshardHandle> FSDPModule::unshard(bool async_op) {
  if (auto* group = state_->group()) {
    group->unshard();
    if (!async_op) group->wait_for_unshard();
  }
  return async_op ? std::optional(UnshardHandle(state_)) : std::nullopt;
}

void FSDPModule::set_is_last_backward(bool is_last_backward) {
  state_->context().is_last_backward = is_last_backward;
}

void FSDPModule::set_requires_gradient_sync(bool requires_gradient_sync, bool recurse) {
  for_each_group(*state_, modules(), recurse, [=](FSDPState&, FSDPParamGroup& group) {
    group.reduce_grads = requires_gradient_sync;
    group.all_reduce_grads = requires_gradient_sync;
  });
}

void FSDPModule::set_requires_all_reduce(bool requires_all_reduce, bool recurse) {
  for_each_group(*state_, modules(), recurse,
                 [=](FSDPState&, FSDPParamGroup& group) { group.all_reduce_grads = requires_all_reduce; });
}

void FSDPModule::set_reshard_after_forward(bool reshard_after_forward, bool recurse) {
  for_each_group(*state_, modules(), recurse, [=](FSDPState& state, FSDPParamGroup& group) {
    state.auto_reshard_after_forward = false;
    group.after_forward = reshard_after_forward ? ShardedState::sharded : ShardedState::unsharded;
  });
}

void FSDPModule::set_reshard_after_backward(bool reshard_after_backward, bool recurse) {
  for_each_group(*state_, modules(), recurse, [=](FSDPState&, FSDPParamGroup& group) {
    group.reshard_after_backward = reshard_after_backward;
  });
}

void FSDPModule::set_modules_to_forward_prefetch(
    const std::vector<std::shared_ptr<torch::nn::Module>>& modules) {
  state_->states_to_forward_prefetch = states_of(modules);
}

void FSDPModule::set_modules_to_backward_prefetch(
    const std::vector<std::shared_ptr<torch::nn::Module>>& modules) {
  state_->states_to_backward_prefetch = states_of(modules);
}

void FSDPModule::set_post_optim_event(std::shared_ptr<c10::Event> event) {
  state_->set_post_optim_event(std::move(event));
}

void FSDPModule::set_all_reduce_hook(std::function<void(at::Tensor)> hook) {
  if (state_->group()) state_->group()->all_reduce_hook = std::move(hook);
}

void FSDPModule::set_gradient_divide_factor(double factor) {
  if (state_->group()) state_->group()->gradient_divide_factor = factor;
}

void FSDPModule::set_force_sum_reduction_for_comms(bool enable) {
  if (state_->group()) state_->group()->force_sum_reduction_for_comms = enable;
}

void FSDPModule::set_unshard_in_backward(bool unshard_in_backward) {
  if (state_->group()) state_->group()->unshard_in_backward = unshard_in_backward;
}

void FSDPModule::set_unshard_async_op(bool async_op) {
  for_each_group(*state_, modules(), true,
                 [=](FSDPState&, FSDPParamGroup& group) { group.unshard_async_op = async_op; });
}

TrainingState FSDPModule::training_state() const {
  return state_->training_state();
}

ShardedState FSDPModule::sharded_state() const {
  return state_->group() ? state_->group()->sharded_state() : ShardedState::sharded;
}

bool FSDPModule::is_root() const {
  return state_->is_root();
}

const MixedPrecisionPolicy& FSDPModule::mp_policy() const {
  return state_->policy();
}

ReshardAfterForward FSDPModule::reshard_after_forward() const {
  const auto* group = state_->group();
  if (!group) return std::monostate{};
  if (group->after_forward == ShardedState::sharded_post_forward) return group->ranks().post_forward->size();
  return group->after_forward == ShardedState::sharded;
}

// What users can see of a sharded model.

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

void register_post_accumulate_grad_hook(const at::Tensor& parameter, std::function<void(at::Tensor)> hook) {
  if (!parameter.requires_grad())
    throw InvalidArgument("cannot register a hook on a tensor that doesn't require gradient");
  auto& present = torch::autograd::impl::post_acc_grad_hooks(parameter);
  auto* hooks = dynamic_cast<GradientHooks*>(present.get());
  if (!hooks) {
    auto made = std::make_unique<GradientHooks>();
    hooks = made.get();
    if (present) {
      made->add([before = std::shared_ptr<torch::autograd::PostAccumulateGradHook>(std::move(present))](
                    at::Tensor received) { (*before)(received); });
    }
    torch::autograd::impl::set_post_acc_grad_hooks(parameter, std::move(made));
  }
  hooks->add(std::move(hook));
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
    const auto state = FSDPState::of(*entry.value());
    if (state && state->modules().front() == entry.value())
      units.emplace_back(entry.key(), FSDPModule(state));
  }
  return units;
}

HookCounters hook_counters(const torch::nn::Module& module) {
  return FSDPModule::of(module).state()->counters;
}

void to_meta(torch::nn::Module& module) {
  const at::NoGradGuard no_grad;
  const auto& units = UnitRegistry::instance();
  const auto parameters = module.named_parameters();
  const auto refuse = [](const std::string& name) {
    throw InvalidState("to_meta must be called before sharding: " +
                       (name.empty() ? "the module" : "'" + name + "'") + " is sharded.");
  };
  for (const auto engine : {Engine::per_parameter, Engine::flat}) {
    for (const auto& entry : module.named_modules("", /*include_self=*/true)) {
      if (units.state_of(engine, *entry.value())) refuse(entry.key());
    }
    for (const auto& entry : parameters) {
      if (units.owner_of(engine, entry.value()).first) refuse(entry.key());
    }
  }
  const auto move = [](const at::Tensor& tensor) {
    if (!tensor.defined() || tensor.is_meta()) return;
    replace_data(tensor, at::empty_like(tensor, tensor.options().device(at::kMeta)));
    if (tensor.is_leaf()) tensor.mutable_grad().reset();
  };
  for (const auto& entry : parameters) move(entry.value());
  for (const auto& buffer : module.buffers()) move(buffer);
}

void to_empty(torch::nn::Module& module, at::Device device) {
  const at::NoGradGuard no_grad;
  std::set<FSDPParamGroup*> done;
  const auto materialize = [&](const at::Tensor& tensor) {
    const auto [state, index] = FSDPState::of_parameter(tensor);
    if (state) {
      if (done.insert(state->group()).second) state->group()->materialize(device);
      return;
    }
    replace_data(tensor, at::empty_like(tensor, tensor.options().device(device)));
  };
  for (const auto& parameter : module.parameters()) {
    if (parameter.is_meta()) materialize(parameter);
  }
  for (const auto& buffer : module.buffers()) {
    if (buffer.is_meta()) materialize(buffer);
  }
}

}  // namespace fsdp
