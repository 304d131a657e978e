#include "impl/testee/flat_parameter_operations.hpp"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "fsdp/flat/fully_sharded_data_parallel.hpp"
#include "fsdp/flat/inspection.hpp"
#include "fsdp/flat/state_dict.hpp"
#include "impl/testee/flat_optimizer.hpp"
#include "impl/testee/flat_plan.hpp"
#include "impl/testee/optimizers.hpp"
#include "impl/testee/state_dicts.hpp"

namespace fsdp_cts::testee {
namespace {

namespace flat = fsdp::flat;
using Unit = flat::FullyShardedDataParallel;

sdk::Placement placement_of(const flat::FlatPiece& piece) {
  return piece.whole ? sdk::whole(piece.shape) : sdk::flat(piece.shape, piece.start, piece.length);
}

bool is_summoned(const sdk::Model& model) {
  for (const auto& [name, unit] : flat::named_units(*model.module)) {
    if (unit.training_state() == flat::TrainingState::summon_full_params) return true;
  }
  return false;
}

// Whole parameters inside `act`, changes of theirs kept.
template <class Act>
void with_full_parameters(sdk::Model& model, bool writeback, const Act& act) {
  const c10::AutoGradMode no_grad(false);
  if (is_summoned(model)) return act();
  flat::Scope summoned = Unit::summon_full_params(*model.module, {.writeback = writeback});
  act();
  summoned.leave();
}

// By what the state says of itself: which stretch of the flat parameter it is, and so what it has of each original
// parameter. What it has behind the flat parameter's end counts for the last one, so that it is seen.
void add_parts(std::vector<sdk::Exposed>& items, const std::string& unit, const flat::FlatParameterInfo& info,
               const flat::LocalFlatParameter& saved) {
  const auto shard_numel = (saved.unsharded_numel + saved.ranks - 1) / saved.ranks;
  const auto begin = saved.rank * shard_numel, end = begin + saved.local.numel();
  for (const auto& member : info.members) {
    const bool takes_rest = &member == &info.members.back() && end > saved.unsharded_numel;
    const auto from = std::clamp(member.offset, begin, end);
    const auto to = takes_rest ? end : std::clamp(member.offset + member.numel, begin, end);
    const bool is_whole = saved.ranks == 1 && to - from == member.numel;
    const at::Tensor part = saved.local.narrow(0, from - begin, to - from);
    items.push_back({fsdp::qualified(unit, member.name), is_whole ? part.view(member.shape) : part,
                     is_whole ? sdk::whole(member.shape)
                              : sdk::flat(member.shape, from == to ? 0 : from - member.offset, to - from)});
  }
}

sdk::StateDict local_state_of(sdk::Module& root) {
  flat::LocalStateDict state = flat::local_state_dict(root);
  sdk::StateDict result;
  for (const auto& [name, saved] : state.flat_parameters) {  // "<unit>._flat_param"
    const auto dot = name.rfind('.');
    const std::string unit = dot == std::string::npos ? "" : name.substr(0, dot);
    add_parts(result.items, unit, flat::flat_parameter_info(root.child(unit)), saved);
  }
  for (const auto& [name, value] : state.others)
    result.items.push_back({name, value, sdk::whole(value.sizes().vec())});
  result.native = std::move(state);
  return result;
}

}  // namespace

void FlatParameterOperations::end_case() {
  *before_free_ = {};
  library().tap.delay_reductions({});
}

// A hook that is there before the library's runs before it: between a unit's forward and the end of its
// parameters.
void FlatParameterOperations::delay_free_of(sdk::Module& module) {
  module.add_post_forward_hook([this, &module, delay = before_free_](std::vector<at::Tensor> outputs) {
    if (delay->count() == 0 || !Unit::is(module)) return outputs;
    const Unit unit = Unit::of(module);
    const bool frees = unit.sharding_strategy() == flat::ShardingStrategy::full_shard ||
                       unit.sharding_strategy() == flat::ShardingStrategy::hybrid_shard;
    if (frees && !unit.is_root()) library().delays.wait(*delay);
    return outputs;
  });
}

void FlatParameterOperations::shard(sdk::Model& model) {
  for (const auto& module : model.module->modules()) delay_free_of(dynamic_cast<sdk::Module&>(*module));
  const FlatPlan plan(model, library().world, context().data);
  plan.apply();
}

// The constructor has given parameters memory already; only values are missing.
void FlatParameterOperations::materialize(sdk::Model& model) {
  with_full_parameters(model, /*writeback=*/true, [&] {
    for (const flat::OriginalParameter& parameter : flat::named_original_parameters(*model.module))
      at::Tensor(parameter.value)
          .copy_(context().data.get("parameters/" + model.instance + "/" + parameter.name));
  });
  for (auto& [name, buffer] : sdk::named_buffers(*model.module))
    at::Tensor(buffer).copy_(context().data.get("buffers/" + model.instance + "/" + name));
}

std::unique_ptr<sdk::Optimizer> FlatParameterOperations::make_optimizer(sdk::Model& model,
                                                                        const sdk::Json& verb) {
  return make_flat_optimizer(verb, model.module);
}

std::function<void()> FlatParameterOperations::enter(sdk::Model& model, const sdk::Json& verb) {
  const auto left = [](flat::Scope scope) {
    return [kept = std::make_shared<flat::Scope>(std::move(scope))] { kept->leave(); };
  };
  if (verb.at("scope") == "no_sync") return left(Unit::of(*model.module).no_sync());
  flat::SummonOptions options;
  options.recurse = verb.value("recurse", options.recurse);
  options.writeback = verb.value("writeback", options.writeback);
  options.rank0_only = verb.value("rank0_only", options.rank0_only);
  options.offload_to_cpu = verb.value("offload_to_cpu", options.offload_to_cpu);
  options.with_grads = verb.value("with_grads", options.with_grads);
  return left(Unit::summon_full_params(*model.module, options));
}

// `register_comm_hook`, the one control that this API has.
void FlatParameterOperations::control(sdk::Model& model, const sdk::Json& verb) {
  Unit root = Unit::of(*model.module);
  std::optional<at::ScalarType> dtype;
  if (verb.contains("dtype")) dtype = sdk::dtype_from_name(verb.at("dtype").get<std::string>());
  const auto reduce = [group = root.process_group(), scale = verb.at("scale").get<double>(),
                       add = verb.value("add", 0.0), dtype](at::Tensor gradient, at::Tensor shard) {
    const fsdp::CallSite site{"", false, fsdp::Phase::backward};
    const at::Tensor sent = gradient.to(dtype.value_or(gradient.scalar_type()));
    sent.mul_(scale).add_(add);
    if (shard.defined()) {
      const at::Tensor reduced = shard.to(sent.scalar_type());
      group->reduce_scatter(reduced, sent, {}, site)->wait();
      shard.copy_(reduced);
    } else {
      group->all_reduce(sent, {}, site)->wait();
      gradient.copy_(sent);
    }
  };
  root.register_comm_hook(reduce);
}

at::Tensor FlatParameterOperations::clip_grad_norm(sdk::Model& model, double max_norm, double norm_type) {
  return Unit::of(*model.module).clip_grad_norm_(max_norm, norm_type);
}

void FlatParameterOperations::delay(std::chrono::milliseconds duration, const std::string& at) {
  if (at == "before_reduce") {
    library().tap.delay_reductions(duration);
  } else {
    *before_free_ = duration;
  }
}

std::vector<sdk::Parameter> FlatParameterOperations::parameters(sdk::Model& model) {
  std::vector<sdk::Parameter> result;
  for (const flat::OriginalParameter& from : flat::named_original_parameters(*model.module)) {
    result.push_back({from.name, from.value, placement_of(from.value_piece), from.gradient,
                      placement_of(from.gradient_piece), from.requires_grad});
  }
  return result;
}

std::vector<sdk::Exposed> FlatParameterOperations::full_parameters(sdk::Model& model) {
  std::vector<sdk::Exposed> result;
  with_full_parameters(model, /*writeback=*/false, [&] {
    for (const flat::OriginalParameter& parameter : flat::named_original_parameters(*model.module)) {
      const at::Tensor value = parameter.value.detach().clone();
      result.push_back({parameter.name, value, sdk::whole(value.sizes().vec()), parameter.requires_grad,
                        value.scalar_type()});
    }
  });
  return result;
}

sdk::StateDict FlatParameterOperations::state_dict(sdk::Model& model, const std::string& kind) {
  if (kind == "full") return state_of(flat::full_state_dict(*model.module));
  if (kind == "local") return local_state_of(*model.module);
  return state_of(shards(model));
}

sdk::StateDict FlatParameterOperations::full_state_dict(sdk::Model& model,
                                                        const sdk::FullStateDictOptions& options) {
  return state_of(flat::full_state_dict(*model.module, {options.rank0_only, options.offload_to_cpu}));
}

fsdp::ShardedStateDict FlatParameterOperations::shards(sdk::Model& model) {
  return flat::sharded_state_dict(*model.module);
}

void FlatParameterOperations::load_state_dict(sdk::Model& model, const sdk::StateDict& state) {
  if (const auto* local = std::any_cast<flat::LocalStateDict>(&state.native))
    return flat::load_local_state_dict(*model.module, *local);
  if (const auto* sharded = std::any_cast<fsdp::ShardedStateDict>(&state.native))
    return flat::load_sharded_state_dict(*model.module, *sharded);
  flat::load_full_state_dict(*model.module, full_of(state));
}

sdk::StateDict FlatParameterOperations::optimizer_state_dict(sdk::Model& model, sdk::Optimizer& optimizer,
                                                             const std::string& kind) {
  const fsdp::OptimizerState kept = dynamic_cast<LibraryOptimizer&>(optimizer).library_state();
  if (kind == "full") return optimizer_state_of(flat::full_optimizer_state(*model.module, kept));
  return optimizer_state_of(flat::sharded_optimizer_state(*model.module, kept));
}

void FlatParameterOperations::load_optimizer_state_dict(sdk::Model& model, sdk::Optimizer& optimizer,
                                                        const sdk::StateDict& state) {
  const auto* full = std::any_cast<fsdp::FullOptimizerState>(&state.native);
  dynamic_cast<LibraryOptimizer&>(optimizer).load_library_state(
      full ? flat::shard_full_optimizer_state(*model.module, *full)
           : flat::flatten_sharded_optimizer_state(
                 *model.module, std::any_cast<const fsdp::ShardedOptimizerState&>(state.native)));
}

void FlatParameterOperations::zero_parameters(sdk::Model& model) {
  with_full_parameters(model, /*writeback=*/true, [&] {
    for (const flat::OriginalParameter& parameter : flat::named_original_parameters(*model.module))
      at::Tensor(parameter.value).zero_();
  });
}

void FlatParameterOperations::set_requires_grad(sdk::Model& model, const std::string& name, bool value) {
  for (const sdk::Unit& unit : units(model)) {
    if (std::ranges::find(unit.parameters, name) == unit.parameters.end()) continue;
    auto own = model.module->child(unit.module).named_parameters(/*recurse=*/false);
    if (auto* flat_parameter = own.find("_flat_param")) {
      flat_parameter->set_requires_grad(value);
      return;
    }
  }
  LibraryOperations::set_requires_grad(model, name, value);
}

at::Tensor FlatParameterOperations::exposed(sdk::Model& model, const std::string& name) {
  for (const flat::OriginalParameter& parameter : flat::named_original_parameters(*model.module)) {
    if (parameter.name == name && !parameter.use_orig_params && parameter.managed) return parameter.value;
  }
  return LibraryOperations::exposed(model, name);
}

std::vector<sdk::Unit> FlatParameterOperations::units(sdk::Model& model) {
  std::vector<sdk::Unit> result;
  for (const auto& [name, unit] : flat::named_units(*model.module)) {
    const sdk::Module& module = model.module->child(name);
    sdk::Unit entry{name, module.class_name(), settings_of(unit), {}};
    for (const auto& member : flat::flat_parameter_info(module).members)
      entry.parameters.push_back(fsdp::qualified(name, member.name));
    result.push_back(std::move(entry));
  }
  return result;
}

std::map<std::string, std::int64_t> FlatParameterOperations::counters(sdk::Model& model) {
  flat::HookCounters total;
  for (const auto& [name, unit] : flat::named_units(*model.module)) {
    const flat::HookCounters counters = unit.counters();
    total.pre_backward_registrations += counters.pre_backward_registrations;
    total.post_backward_registrations += counters.post_backward_registrations;
    total.unsharded_views_as_tensors += counters.unsharded_views_as_tensors;
    total.unsharded_views_as_params += counters.unsharded_views_as_params;
  }
  return {{"pre_backward_registrations", total.pre_backward_registrations},
          {"post_backward_registrations", total.post_backward_registrations},
          {"unsharded_views_as_tensors", total.unsharded_views_as_tensors},
          {"unsharded_views_as_params", total.unsharded_views_as_params}};
}

std::string FlatParameterOperations::training_state(sdk::Model& model) {
  for (const auto& [name, unit] : flat::named_units(*model.module)) {
    switch (unit.training_state()) {
      case flat::TrainingState::idle:
        break;
      case flat::TrainingState::forward_backward:
        return "forward_backward";
      case flat::TrainingState::summon_full_params:
        return "summon_full_params";
    }
  }
  return "idle";
}

}  // namespace fsdp_cts::testee
