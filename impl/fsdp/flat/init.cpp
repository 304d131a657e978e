#include "flat/init.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <unordered_map>
#include <utility>

#include "base/storage.hpp"
#include "base/unit_registry.hpp"
#include "fsdp/errors.hpp"
#include "fsdp/wrap/module_tree.hpp"
#include "fsdp/wrap/wrap_policy.hpp"

namespace fsdp::flat {
namespace {

struct UnitPlan {
  std::shared_ptr<torch::nn::Module> module;
  FSDPOptions options;
  FlatState::Ranks ranks;
  std::vector<MemberPlan> members;
  std::shared_ptr<FlatState> state;
};

bool is_unit(const torch::nn::Module& module) {
  return FlatState::of(module) != nullptr;
}

IgnoredStates ignored_states(const std::shared_ptr<torch::nn::Module>& root, const FSDPOptions& options) {
  const bool as_states = !options.ignored_state_modules.empty() || !options.ignored_parameters.empty();
  if (options.ignored_modules && as_states) {
    throw InvalidArgument(
        "Cannot pass both ignored_modules and ignored_states at the same time. Please just pass "
        "ignored_states.");
  }
  if (!options.ignored_state_modules.empty() && !options.ignored_parameters.empty()) {
    throw InvalidArgument(
        "ignored_states expects all nn.Parameter or all nn.Module list elements but got types [<class "
        "'torch.nn.modules.module.Module'>, <class 'torch.nn.parameter.Parameter'>]");
  }
  IgnoredStates ignored;
  ignored.modules =
      ignored_modules_of(options.ignored_modules.value_or(options.ignored_state_modules), is_unit);
  for (const auto& parameter : options.ignored_parameters)
    ignored.parameters.insert(parameter.unsafeGetTensorImpl());
  // What nested units ignore, the units around them ignore, too.
  for (const auto& state : FlatState::all_under(*root)) {
    ignored.modules.merge(ignored_modules_of(state->ignored_modules(), [](const auto&) { return false; }));
    for (const auto& parameter : state->options().ignored_parameters)
      ignored.parameters.insert(parameter.unsafeGetTensorImpl());
  }
  for (const auto& [name, module] : pre_order(root)) {
    if (!ignored.modules.contains(module.get())) continue;
    for (const auto& entry : own_parameters(*module)) {
      if (entry.value().defined()) ignored.parameters.insert(entry.value().unsafeGetTensorImpl());
    }
  }
  if (ignored.modules.contains(root.get())) {
    TORCH_WARN(
        "Trying to ignore the top-level module passed into the FSDP constructor itself will result in all "
        "parameters being ignored and is not well-supported: ",
        c10::str(*root));
  }
  return ignored;
}

FlatState::Ranks ranks_for(const FSDPOptions& options) {
  if (options.process_group && options.device_mesh) {
    throw InvalidArgument(
        "Cannot pass both process_group and device_mesh at the same time. Please just pass only one of "
        "them.");
  }
  if (!is_hybrid(options.sharding_strategy)) {
    if (options.process_group) return {options.process_group, nullptr};
    return {(options.device_mesh ? *options.device_mesh : default_mesh()).group(0), nullptr};
  }
  const std::string strategy = std::string("ShardingStrategy.") + python_name(options.sharding_strategy);
  if (options.device_mesh) {
    if (options.device_mesh->ndim() != 2)
      throw InvalidArgument("Expected device_mesh to have ndim=2 but got " +
                            std::to_string(options.device_mesh->ndim()));
    return {options.device_mesh->group(1), options.device_mesh->group(0)};
  }
  if (!options.process_group || !options.replicate_group) {
    throw InvalidArgument("Manual wrapping with " + strategy +
                          " requires explicit specification of process group or device_mesh.");
  }
  return {options.process_group, options.replicate_group};
}

void settle_strategy(FSDPOptions& options, int64_t ranks) {
  if (ranks == 1) {
    if (options.sharding_strategy != ShardingStrategy::no_shard) {
      TORCH_WARN("FSDP is switching to use `NO_SHARD` instead of ShardingStrategy.",
                 python_name(options.sharding_strategy), " since the world size is 1.");
    }
    options.sharding_strategy = ShardingStrategy::no_shard;
  } else if (options.sharding_strategy == ShardingStrategy::no_shard) {
    TORCH_WARN_DEPRECATION(
        "The `NO_SHARD` sharding strategy is deprecated. If having issues, please use "
        "`DistributedDataParallel` instead.");
  }
}

/// Finds a unit's parameters: those below its module, less what is another unit's or ignored.
class MemberSearch {
 public:
  MemberSearch(const IgnoredStates& ignored, const std::vector<UnitPlan>& earlier) : ignored_(ignored) {
    for (const auto& unit : earlier) {
      for (const auto& member : unit.members) claimed_.insert(member.parameter.unsafeGetTensorImpl());
    }
  }

  std::vector<MemberPlan> run(const std::shared_ptr<torch::nn::Module>& module) {
    visit(module, "", true);
    return std::move(found_);
  }

 private:
  void visit(const std::shared_ptr<torch::nn::Module>& module, const std::string& name, bool top) {
    if (!top && is_unit(*module)) return;
    if (!visited_.insert(module.get()).second) return;
    size_t position = 0;
    for (const auto& entry : own_parameters(*module)) {
      const ParameterSlot slot{module, module.get(), entry.key(), position++};
      const auto& parameter = entry.value();
      if (!parameter.defined()) continue;
      const auto* impl = parameter.unsafeGetTensorImpl();
      if (ignored_.parameters.contains(impl) || claimed_.contains(impl) ||
          FlatState::of_parameter(parameter).first) {
        continue;
      }
      const auto [place, first] = places_.try_emplace(impl, found_.size());
      if (first) {
        found_.push_back({parameter, qualified(name, entry.key()), {slot}});
      } else {
        found_[place->second].slots.push_back(slot);
      }
    }
    for (const auto& child : module->named_children())
      visit(child.value(), qualified(name, child.key()), false);
  }

  const IgnoredStates& ignored_;
  ModuleSet visited_;
  ParameterSet claimed_;
  std::vector<MemberPlan> found_;
  std::unordered_map<const c10::TensorImpl*, size_t> places_;
};

/// Memory and values for what is on the meta device; values of the others stay.
void materialize(const UnitPlan& unit, const IgnoredStates& ignored, at::Device device) {
  const at::NoGradGuard no_grad;
  const auto give_memory = [&](const at::Tensor& tensor) {
    replace_data(tensor, at::empty(tensor.sizes(), tensor.options().device(device).requires_grad(false)));
  };
  for (const auto& [name, module] : pre_order(unit.module)) {
    if (module != unit.module && is_unit(*module)) continue;
    if (ignored.modules.contains(module.get())) continue;
    bool found = false;
    for (const auto& entry : own_parameters(*module)) {
      if (!entry.value().defined() || !entry.value().is_meta()) continue;
      give_memory(entry.value());
      found = true;
    }
    for (const auto& entry : module->named_buffers(/*recurse=*/false)) {
      if (!entry.value().defined() || !entry.value().is_meta()) continue;
      give_memory(entry.value());
      found = true;
    }
    if (found && unit.options.param_init_fn) unit.options.param_init_fn(*module);
  }
}

void move_to(const UnitPlan& unit, at::Device device) {
  const auto move = [device](const at::Tensor& tensor) {
    if (tensor.device() == device) return;
    const at::NoGradGuard no_grad;
    tensor.set_data(tensor.to(device));
  };
  for (const auto& member : unit.members) move(member.parameter);
  for (const auto& entry : unit.module->named_buffers()) {
    if (entry.value().defined()) move(entry.value());
  }
}

void synchronize(const UnitPlan& unit) {
  const at::NoGradGuard no_grad;
  const auto broadcast = [&](const at::Tensor& tensor) {
    for (const auto& group : {unit.ranks.replicate, unit.ranks.shard}) {
      if (!group || group->size() == 1) continue;
      if (tensor.is_cpu() && !group->device().is_cpu())
        throw InvalidArgument(
            "The module has CPU parameters or buffers when `sync_module_states=True`, which requires them "
            "to be on GPU. Please specify the `device_id` argument or move your module to GPU before passing "
            "into FSDP.");
      auto flat = tensor.detach().reshape(-1).contiguous();
      group->broadcast(flat, 0, {"", false, Phase::init})->wait();
      tensor.detach().copy_(flat.view(tensor.sizes()));
    }
  };
  for (const auto& member : unit.members) broadcast(member.parameter);
  for (const auto& entry : unit.module->named_buffers()) {
    if (entry.value().defined()) broadcast(entry.value());
  }
}

}  // namespace

std::shared_ptr<FlatState> make_units(const std::shared_ptr<torch::nn::Module>& module,
                                      const FSDPOptions& options, bool composable) {
  UnitRegistry::instance().refuse_other_engine(Engine::flat, *module);
  const auto ignored = ignored_states(module, options);

  std::vector<UnitPlan> plans;
  const auto plan = [&](const std::shared_ptr<torch::nn::Module>& at, FSDPOptions unit_options) {
    UnitPlan unit;
    unit.module = at;
    unit.ranks = ranks_for(unit_options);
    unit.members = MemberSearch(ignored, plans).run(at);
    if (!unit.members.empty()) FlatShard::validate(unit.members, unit_options.use_orig_params);
    settle_strategy(unit_options, unit.ranks.shard->size());
    unit.options = std::move(unit_options);
    unit.state = std::make_shared<FlatState>(at, unit.options, unit.ranks, composable);
    unit.state->install_hooks();
    plans.push_back(std::move(unit));
  };
  if (options.auto_wrap_policy) {
    for (auto& target : auto_wrap_targets(module, ignored, options)) plan(target.module, target.options);
  }
  plan(module, options);

  // What can fail, a user's param_init_fn or a peer, comes before the first parameter is sharded.
  for (const auto& unit : plans) {
    const auto compute = unit.options.device_id.value_or(unit.ranks.shard->device());
    materialize(unit, ignored, compute);
    if (unit.options.device_id) move_to(unit, *unit.options.device_id);
    if (unit.options.sync_module_states) synchronize(unit);
  }
  for (const auto& unit : plans) unit.state->activate(unit.members);
  return plans.back().state;
}

}  // namespace fsdp::flat
