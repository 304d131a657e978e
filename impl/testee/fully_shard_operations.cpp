#include "impl/testee/fully_shard_operations.hpp"

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "fsdp/clip_grad.hpp"
#include "fsdp/state_dict.hpp"
#include "impl/testee/optimizers.hpp"
#include "impl/testee/plan.hpp"
#include "impl/testee/state_dicts.hpp"

namespace fsdp_cts::testee {

// A gather that nobody waited for is forward's to end, and no later case's.
void FullyShardOperations::end_case() {
  unshards_.clear();
}

void FullyShardOperations::shard(sdk::Model& model) {
  fsdp::DeviceMesh mesh = mesh_of(model.plan, library().world);
  if (model.plan.value("replicas", "native") == "by_hook") mesh = fsdp::DeviceMesh(mesh.group(1));
  for (const sdk::Json& unit : model.plan.at("units")) {
    fsdp::FullyShardOptions options = options_of(unit, *model.module);
    options.mesh = mesh;
    fsdp::fully_shard(modules_at(model, unit.at("modules")), options);
  }
}

void FullyShardOperations::materialize(sdk::Model& model) {
  c10::AutoGradMode no_grad(false);
  fsdp::to_empty(*model.module, device());
  for (const fsdp::UnitParameter& parameter : fsdp::named_parameters(*model.module)) {
    at::Tensor value = context().data.get("parameters/" + model.instance + "/" + parameter.name);
    if (parameter.layout)
      value = value.narrow(parameter.layout->dim, parameter.layout->start, parameter.layout->length);
    at::Tensor(parameter.parameter).copy_(value);
  }
  for (auto& [name, buffer] : sdk::named_buffers(*model.module)) {
    at::Tensor(buffer).copy_(context().data.get("buffers/" + model.instance + "/" + name));
  }
}

std::unique_ptr<sdk::Optimizer> FullyShardOperations::make_optimizer(sdk::Model& model,
                                                                     const sdk::Json& verb) {
  std::vector<sdk::OptimizerParameter> parameters;
  for (const auto& parameter : fsdp::named_parameters(*model.module))
    parameters.push_back({parameter.name, parameter.parameter});
  return testee::make_optimizer(verb, parameters);
}

void FullyShardOperations::control(sdk::Model& model, const sdk::Json& verb) {
  const std::string what = verb.at("verb");
  fsdp::FSDPModule unit = fsdp::FSDPModule::of(*module_at(model, verb.value("module", "")));
  const std::string handle = model.instance + ":" + verb.value("module", "");
  if (what == "unshard") {
    if (verb.value("async", false)) {
      unshards_.insert_or_assign(handle, unit.unshard(true).value());
    } else {
      unit.unshard();
    }
    return;
  }
  if (what == "wait_unshard") {
    unshards_.at(handle).wait();
    unshards_.erase(handle);
    return;
  }
  if (what == "reshard") return unit.reshard();
  if (what == "set_forward_prefetch")
    return unit.set_modules_to_forward_prefetch(modules_at(model, verb.at("targets")));
  if (what == "set_backward_prefetch")
    return unit.set_modules_to_backward_prefetch(modules_at(model, verb.at("targets")));
  if (what == "set_post_optim_event") return unit.set_post_optim_event(recorded_now());
  if (what == "set_all_reduce_hook") return unit.set_all_reduce_hook(all_reduce_hook(model, verb));
  const sdk::Json& value = verb.at("value");
  const bool recurse = verb.value("recurse", true);
  if (what == "set_requires_gradient_sync") return unit.set_requires_gradient_sync(value, recurse);
  if (what == "set_requires_all_reduce") return unit.set_requires_all_reduce(value, recurse);
  if (what == "set_reshard_after_forward")
    return unit.set_reshard_after_forward(bool_reshard_after_forward_of(value), recurse);
  if (what == "set_reshard_after_backward") return unit.set_reshard_after_backward(value, recurse);
  if (what == "set_is_last_backward") return unit.set_is_last_backward(value);
  if (what == "set_unshard_in_backward") return unit.set_unshard_in_backward(value);
  if (what == "set_unshard_async_op") return unit.set_unshard_async_op(value);
  if (what == "set_gradient_divide_factor") return unit.set_gradient_divide_factor(value);
  if (what == "set_force_sum_reduction_for_comms") return unit.set_force_sum_reduction_for_comms(value);
  throw sdk::Error("NotImplementedError", "the fully_shard front door has no control \"" + what + "\"");
}

std::shared_ptr<c10::Event> FullyShardOperations::recorded_now() {
  if (device().is_cpu()) return nullptr;
  auto event = std::make_shared<c10::Event>(device().type());
  event->record(c10::impl::VirtualGuardImpl(device().type()).getStream(device()));
  return event;
}

std::function<void(at::Tensor)> FullyShardOperations::all_reduce_hook(const sdk::Model& model,
                                                                      const sdk::Json& verb) {
  std::shared_ptr<fsdp::Communicator> replicas;
  if (verb.contains("mean_over")) replicas = mesh_of(model.plan, library().world).group(0);
  return
      [replicas, scale = verb.at("scale").get<double>(), add = verb.value("add", 0.0)](at::Tensor reduced) {
        if (replicas)
          replicas->all_reduce(reduced, {fsdp::ReduceOp::avg}, {"", false, fsdp::Phase::backward})->wait();
        reduced.mul_(scale).add_(add);
      };
}

void FullyShardOperations::hook_gradient(sdk::Model& model, const std::string& name,
                                         std::function<void(at::Tensor)> hook) {
  fsdp::register_post_accumulate_grad_hook(exposed(model, name), std::move(hook));
}

at::Tensor FullyShardOperations::clip_grad_norm(sdk::Model& model, double max_norm, double norm_type) {
  return fsdp::clip_grad_norm_(*model.module, max_norm, norm_type);
}

// A registered parameter is one object for good: what a user puts in its place is its memory.
void FullyShardOperations::replace(sdk::Model& model, const std::string& name, at::Tensor tensor) {
  exposed(model, name).set_data(tensor.detach());
}

std::vector<sdk::Parameter> FullyShardOperations::parameters(sdk::Model& model) {
  std::vector<sdk::Parameter> result;
  for (const fsdp::UnitParameter& from : fsdp::named_parameters(*model.module)) {
    sdk::Parameter to{from.name, from.parameter, sdk::whole(from.parameter.sizes().vec()), from.gradient, {}};
    to.gradient_placement = to.placement;
    if (from.layout) {
      const sdk::Placement shard = placement_of(*from.layout), full = sdk::whole(from.layout->global_shape);
      to.placement = from.shown ? placement_of(*from.shown) : full;
      to.gradient_placement = from.gradient_sharded ? shard : full;
    }
    result.push_back(std::move(to));
  }
  return result;
}

std::vector<sdk::Exposed> FullyShardOperations::full_parameters(sdk::Model& model) {
  std::vector<sdk::Exposed> result;
  for (auto& [name, value] : fsdp::full_state_dict(*model.module)) {
    for (const fsdp::UnitParameter& parameter : fsdp::named_parameters(*model.module)) {
      if (parameter.name == name)
        result.push_back({name, value, sdk::whole(value.sizes().vec()), parameter.parameter.requires_grad()});
    }
  }
  return result;
}

sdk::StateDict FullyShardOperations::state_dict(sdk::Model& model, const std::string& kind) {
  if (kind == "full") return state_of(fsdp::full_state_dict(*model.module));
  if (kind == "local") throw sdk::Error("NotImplementedError", "fully_shard has no local state dicts");
  auto own = shards(model);
  // They are the parameters' shards themselves, and what a scenario has saved keeps its values.
  for (auto& [name, value] : own) value.local = value.local.detach().clone();
  return state_of(std::move(own));
}

sdk::StateDict FullyShardOperations::full_state_dict(sdk::Model& model,
                                                     const sdk::FullStateDictOptions& options) {
  return state_of(fsdp::full_state_dict(*model.module, {options.rank0_only, options.offload_to_cpu}));
}

fsdp::ShardedStateDict FullyShardOperations::shards(sdk::Model& model) {
  return fsdp::sharded_state_dict(*model.module);
}

void FullyShardOperations::load_state_dict(sdk::Model& model, const sdk::StateDict& state) {
  if (const auto* sharded = std::any_cast<fsdp::ShardedStateDict>(&state.native))
    return fsdp::load_sharded_state_dict(*model.module, *sharded);
  fsdp::load_full_state_dict(*model.module, full_of(state));
}

void FullyShardOperations::broadcast_state_dict(sdk::Model& model, const sdk::StateDict& state) {
  fsdp::broadcast_full_state_dict(*model.module, full_of(state));
}

sdk::StateDict FullyShardOperations::optimizer_state_dict(sdk::Model& model, sdk::Optimizer& optimizer,
                                                          const std::string& kind) {
  const fsdp::OptimizerState kept = dynamic_cast<LibraryOptimizer&>(optimizer).library_state();
  if (kind == "full") return optimizer_state_of(fsdp::full_optimizer_state(*model.module, kept));
  auto own = fsdp::sharded_optimizer_state(*model.module, kept);
  for (auto& [name, values] : own) {
    for (auto& [key, value] : values) value.local = value.local.clone();  // the optimizer's own, as above
  }
  return optimizer_state_of(std::move(own));
}

void FullyShardOperations::load_optimizer_state_dict(sdk::Model& model, sdk::Optimizer& optimizer,
                                                     const sdk::StateDict& state) {
  const auto* full = std::any_cast<fsdp::FullOptimizerState>(&state.native);
  dynamic_cast<LibraryOptimizer&>(optimizer).load_library_state(
      full ? fsdp::load_full_optimizer_state(*model.module, *full)
           : fsdp::load_sharded_optimizer_state(
                 *model.module, std::any_cast<const fsdp::ShardedOptimizerState&>(state.native)));
}

std::vector<sdk::Unit> FullyShardOperations::units(sdk::Model& model) {
  std::vector<sdk::Unit> result;
  const std::vector<fsdp::UnitParameter> parameters = fsdp::named_parameters(*model.module);
  for (auto& [name, unit] : fsdp::named_units(*model.module)) {
    sdk::Unit entry{name, model.module->child(name).class_name(), settings_of(unit), {}};
    for (const fsdp::UnitParameter& parameter : unit.parameters()) {
      // The name that the whole model registers first: a tied parameter and one of the unit's second module
      // too.
      for (const fsdp::UnitParameter& known : parameters) {
        if (known.parameter.is_same(parameter.parameter)) entry.parameters.push_back(known.name);
      }
    }
    result.push_back(std::move(entry));
  }
  return result;
}

std::map<std::string, std::int64_t> FullyShardOperations::counters(sdk::Model& model) {
  const fsdp::HookCounters counters = fsdp::hook_counters(*model.module);
  return {{"pre_backward_hooks", counters.pre_backward}, {"post_backward_hooks", counters.post_backward}};
}

std::string FullyShardOperations::training_state(sdk::Model& model) {
  for (auto& [name, unit] : fsdp::named_units(*model.module)) {
    switch (unit.training_state()) {
      case fsdp::TrainingState::idle:
        break;
      case fsdp::TrainingState::forward:
        return "forward";
      case fsdp::TrainingState::pre_backward:
        return "pre_backward";
      case fsdp::TrainingState::post_backward:
        return "post_backward";
    }
  }
  return "idle";
}

}  // namespace fsdp_cts::testee
