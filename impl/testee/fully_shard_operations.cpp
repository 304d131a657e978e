#include "impl/testee/fully_shard_operations.hpp"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <utility>

#include "fsdp/clip_grad.hpp"
#include "fsdp/forward_hooks.hpp"
#include "fsdp/state_dict.hpp"
#include "impl/testee/optimizers.hpp"
#include "impl/testee/plan.hpp"

namespace fsdp_cts::testee {
namespace {

std::shared_ptr<torch::nn::Module> module_at(const sdk::Model& model, const sdk::Json& path) {
  return model.module->child(path.get<std::string>()).shared_from_this();
}

std::vector<std::shared_ptr<torch::nn::Module>> modules_at(const sdk::Model& model, const sdk::Json& paths) {
  std::vector<std::shared_ptr<torch::nn::Module>> modules;
  for (const sdk::Json& path : paths) modules.push_back(module_at(model, path));
  return modules;
}

bool hook_sdk_module(torch::nn::Module& module, const fsdp::ForwardHooks& hooks) {
  auto* hooked = dynamic_cast<sdk::Module*>(&module);
  if (hooked == nullptr) return false;
  hooked->add_pre_forward_hook(hooks.before, /*prepend=*/true);
  hooked->add_post_forward_hook(hooks.after);
  return true;
}

sdk::Placement placement_of(const fsdp::ShardLayout& layout) {
  sdk::Placement placement{layout.global_shape, true, {}, 0};
  for (const fsdp::ShardPiece& piece : layout.pieces())
    placement.extents.push_back({piece.offset, piece.length});
  return placement;
}

const char* name_of(fsdp::CollectiveKind kind) {
  switch (kind) {
    case fsdp::CollectiveKind::all_gather:
      return "all_gather";
    case fsdp::CollectiveKind::reduce_scatter:
      return "reduce_scatter";
    case fsdp::CollectiveKind::all_reduce:
      return "all_reduce";
    case fsdp::CollectiveKind::broadcast:
      return "broadcast";
  }
  return "other";
}

const char* name_of(fsdp::Phase phase) {
  switch (phase) {
    case fsdp::Phase::init:
      return "init";
    case fsdp::Phase::forward:
      return "forward";
    case fsdp::Phase::backward:
      return "backward";
    case fsdp::Phase::state_dict:
      return "state_dict";
    case fsdp::Phase::other:
      return "other";
  }
  return "other";
}

std::optional<std::string> reduction_of(const fsdp::CollectiveEvent& event) {
  if (event.kind != fsdp::CollectiveKind::reduce_scatter && event.kind != fsdp::CollectiveKind::all_reduce)
    return std::nullopt;
  switch (event.reduction.op) {
    case fsdp::ReduceOp::sum:
    case fsdp::ReduceOp::premul_sum:
      return "sum";
    case fsdp::ReduceOp::avg:
      return "avg";
    case fsdp::ReduceOp::max:
      return "max";
  }
  return std::nullopt;
}

}  // namespace

FullyShardOperations::FullyShardOperations(Settings settings) : settings_(std::move(settings)) {
  fsdp::register_forward_hook_adapter(hook_sdk_module);
}

sdk::Identity FullyShardOperations::identity() const {
  const Transport& transport = settings_.transport;
  const std::string device = transport.device.is_cpu() ? "cpu" : "cuda";
  return {settings_.name, "0.1.0", {"fully_shard"}, transport.backend, device, transport.reduction_order, {}};
}

std::optional<std::string> FullyShardOperations::unsupported(const sdk::Case& a_case) const {
  for (const std::string& feature : sdk::features(a_case)) {
    if (feature.starts_with("api:") && feature != "api:fully_shard") {
      return "this library has the fully_shard front door only, not " + feature.substr(4);
    }
    if (feature == "scope:no_sync" || feature == "scope:summon")
      return feature.substr(6) + " belongs to the flat-parameter APIs";
  }
  for (const sdk::Json& step : a_case.program) {
    const std::string at = step.value("at", "");
    if (at.starts_with("before_"))
      return "delays " + at + " need hooks inside the library that its public headers do not offer";
  }
  return std::nullopt;
}

void FullyShardOperations::rendezvous(const sdk::Case&) {
  if (world_) return;
  world_ = fsdp::recording(make_world(settings_.transport), trace_);
  fsdp::set_default_communicator(world_);
}

void FullyShardOperations::end_case() {
  drain_trace();
}

std::optional<sdk::ErrorReport> FullyShardOperations::describe(std::exception_ptr error) const {
  try {
    std::rethrow_exception(error);
  } catch (const fsdp::Error& known) {
    return sdk::ErrorReport{known.python_class(), known.what(), ""};
  } catch (...) {
    return std::nullopt;
  }
}

void FullyShardOperations::shard(sdk::Model& model) {
  const fsdp::Seams seams = settings_.seams ? settings_.seams() : fsdp::Seams{};
  const fsdp::DeviceMesh mesh = model.plan.contains("mesh") && model.plan.at("mesh").is_array()
                                    ? fsdp::DeviceMesh(world_, model.plan.at("mesh"), {"replicate", "shard"})
                                    : fsdp::DeviceMesh(world_);
  for (const sdk::Json& unit : model.plan.at("units")) {
    fsdp::FullyShardOptions options = options_of(unit, *model.module);
    options.mesh = mesh;
    options.seams = seams;
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
  if (what == "unshard") return static_cast<void>(unit.unshard());
  if (what == "reshard") return unit.reshard();
  if (what == "set_forward_prefetch")
    return unit.set_modules_to_forward_prefetch(modules_at(model, verb.at("targets")));
  if (what == "set_backward_prefetch")
    return unit.set_modules_to_backward_prefetch(modules_at(model, verb.at("targets")));
  const sdk::Json& value = verb.at("value");
  if (what == "set_requires_gradient_sync") return unit.set_requires_gradient_sync(value);
  if (what == "set_requires_all_reduce") return unit.set_requires_all_reduce(value);
  if (what == "set_reshard_after_forward")
    return unit.set_reshard_after_forward(reshard_after_forward_of(value));
  if (what == "set_reshard_after_backward") return unit.set_reshard_after_backward(value);
  if (what == "set_is_last_backward") return unit.set_is_last_backward(value);
  if (what == "set_gradient_divide_factor") return unit.set_gradient_divide_factor(value);
  throw sdk::Error("NotImplementedError", "the fully_shard front door has no control \"" + what + "\"");
}

at::Tensor FullyShardOperations::clip_grad_norm(sdk::Model& model, double max_norm, double norm_type) {
  return fsdp::clip_grad_norm_(*model.module, max_norm, norm_type);
}

std::vector<sdk::Parameter> FullyShardOperations::parameters(sdk::Model& model) {
  std::vector<sdk::Parameter> result;
  for (const fsdp::UnitParameter& from : fsdp::named_parameters(*model.module)) {
    sdk::Parameter to{from.name, from.parameter, sdk::whole(from.parameter.sizes().vec()), from.gradient, {}};
    to.gradient_placement = to.placement;
    if (from.layout) {
      const sdk::Placement shard = placement_of(*from.layout), full = sdk::whole(from.layout->global_shape);
      to.placement = from.state == fsdp::ShardedState::unsharded ? full : shard;
      to.gradient_placement = from.gradient_sharded ? shard : full;
    }
    result.push_back(std::move(to));
  }
  return result;
}

std::vector<sdk::Exposed> FullyShardOperations::full_parameters(sdk::Model& model) {
  note_collectives();
  std::vector<sdk::Exposed> result;
  for (auto& [name, value] : fsdp::full_state_dict(*model.module)) {
    for (const fsdp::UnitParameter& parameter : fsdp::named_parameters(*model.module)) {
      if (parameter.name == name)
        result.push_back({name, value, sdk::whole(value.sizes().vec()), parameter.parameter.requires_grad()});
    }
  }
  trace_->take();  // the observer's own gathers are nobody's collectives
  return result;
}

sdk::StateDict FullyShardOperations::state_dict(sdk::Model& model, const std::string& kind) {
  sdk::StateDict result;
  if (kind == "full") {
    for (auto& [name, value] : fsdp::full_state_dict(*model.module))
      result.items.push_back({name, value, sdk::whole(value.sizes().vec())});
    return result;
  }
  for (auto& [name, value] : fsdp::sharded_state_dict(*model.module)) {
    const sdk::Placement placement =
        value.group ? placement_of(value.layout) : sdk::whole(value.local.sizes().vec());
    result.items.push_back({name, value.local.detach().clone(), placement});
  }
  return result;
}

void FullyShardOperations::load_state_dict(sdk::Model& model, const sdk::StateDict& state) {
  bool sharded = false;
  for (const sdk::Exposed& item : state.items) sharded = sharded || item.placement.sharded;
  if (!sharded) {
    fsdp::StateDict full;
    for (const sdk::Exposed& item : state.items) full.emplace_back(item.name, item.value);
    return fsdp::load_full_state_dict(*model.module, full);
  }
  // Places are the model's, names and values the saved ones: the library itself finds what is missing or
  // unknown.
  const fsdp::ShardedStateDict places = fsdp::sharded_state_dict(*model.module);
  fsdp::ShardedStateDict shards;
  for (const sdk::Exposed& item : state.items) {
    fsdp::ShardedTensor shard{item.value, {}, nullptr};
    for (const auto& [name, place] : places) {
      if (name == item.name) shard = {item.value, place.layout, place.group};
    }
    shards.emplace_back(item.name, std::move(shard));
  }
  fsdp::load_sharded_state_dict(*model.module, shards);
}

void FullyShardOperations::note_collectives() {
  for (const fsdp::CollectiveEvent& event : trace_->take()) {
    noted_.push_back({name_of(event.kind), name_of(event.site.phase), sdk::dtype_name(event.dtype),
                      reduction_of(event), event.in_numel, event.out_numel,
                      std::vector<int>(event.ranks.begin(), event.ranks.end()),
                      event.site.has_unit ? std::optional(event.site.unit) : std::nullopt});
  }
}

std::vector<sdk::TraceEvent> FullyShardOperations::drain_trace() {
  note_collectives();
  return std::exchange(noted_, {});
}

std::vector<sdk::Unit> FullyShardOperations::units(sdk::Model& model) {
  std::vector<sdk::Unit> result;
  for (auto& [name, unit] : fsdp::named_units(*model.module)) {
    sdk::Unit entry{name, model.module->child(name).class_name(), settings_of(unit), {}};
    const std::string prefix = name.empty() ? "" : name + ".";
    for (const fsdp::UnitParameter& parameter : unit.parameters())
      entry.parameters.push_back(prefix + parameter.name);
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
