#include "reference/rank.hpp"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "harness/sdk/cpp/build_model.hpp"
#include "harness/sdk/cpp/parameter_source.hpp"
#include "reference/flat_units.hpp"
#include "reference/fully_shard.hpp"

namespace fsdp_cts::reference {

namespace {

// FS-MP-10, a rule since PyTorch 2.15; FS-MP-9 before.
bool reduces_in_original_dtype(const sdk::Case& a_case) {
  int major = 0, minor = 0;
  const std::string edition = a_case.oracle.is_object() ? a_case.oracle.value("edition", "") : "";
  return std::sscanf(edition.c_str(), "%d.%d", &major, &minor) == 2 &&
         std::pair(major, minor) >= std::pair(2, 15);
}

}  // namespace

sdk::Identity Rank::identity() const {
  return {"fsdp-cts reference", "1", {"fully_shard", "fsdp", "composable"}, "none", "cpu", "unspecified", {}};
}

void Rank::shard(sdk::Model& model) {
  const bool widen = context().data.widened();
  ShardedModel sharded{model.module, {}};
  const std::string api = model.plan.at("api");
  if (api == "fully_shard") {
    sharded.units =
        fully_shard_units(*model.module, model.plan, widen, reduces_in_original_dtype(context().a_case));
  } else if (api == "fsdp" || api == "composable") {
    sharded.units = flat_units(*model.module, model.plan, context());
  } else {
    throw std::invalid_argument("the reference has no api \"" + api + "\"");
  }
  for (const auto& unit : sharded.units) unit->install();
  sharded_[model.instance] = std::move(sharded);
  const Json& units = model.plan.at("units");
  if (std::any_of(units.begin(), units.end(), [](const Json& unit) { return unit.contains("param_init"); }))
    materialize(model);
}

// Units hold on to masters, which are on the meta device until now: they and their slots get the values of a
// model that was built with values.
void Rank::materialize(sdk::Model& model) {
  const auto built = build_model(context().a_case.models.at(model.instance), context().data, model.instance,
                                 device(), context().recorder);
  std::map<const at::TensorImpl*, at::Tensor> real;  // by what it takes the place of; ties stay ties
  const std::vector<sdk::Slot> values = parameter_slots_with_ties(*built),
                               places = parameter_slots_with_ties(*model.module);
  for (std::size_t i = 0; i < places.size(); ++i) {
    const at::Tensor before = places[i].tensor();
    const at::Tensor value = values.at(i).tensor();
    value.set_requires_grad(before.requires_grad());
    real[before.unsafeGetTensorImpl()] = value;
    places[i].owner->set_parameter(places[i].key, value);
  }
  const auto buffers = sdk::named_buffers(*built), buffer_places = sdk::named_buffers(*model.module);
  for (std::size_t i = 0; i < buffer_places.size(); ++i) {
    // Not set_data, which refuses to go from the meta device to a real one.
    const at::Tensor place = buffer_places[i].second;
    place.unsafeGetTensorImpl()->shallow_copy_from(buffers.at(i).second.getIntrusivePtr());
  }
  for (Unit* unit : units_of(model)) {
    for (UnitParameter& parameter : unit->parameters())
      parameter.master = real.at(parameter.master.unsafeGetTensorImpl());
  }
}

void Rank::cast(sdk::Model& model, at::ScalarType dtype, const std::string& match) {
  if (!context().data.widened()) Operations::cast(model, dtype, match);
}

sdk::Tensors Rank::forward(sdk::Model& model, const std::string& module, sdk::Tensors inputs) {
  try {
    return Operations::forward(model, module, std::move(inputs));
  } catch (...) {
    for (Unit* unit : units_of(model)) unit->abandon_forward();
    throw;
  }
}

void Rank::backward(const at::Tensor& loss, bool create_graph) {
  const auto for_all_units = [this](const auto& act) {
    for (auto& [instance, sharded] : sharded_) {
      for (const auto& unit : sharded.units) act(*unit);
    }
  };
  for_all_units([](Unit& unit) { unit.before_backward(); });
  for_all_units([](Unit& unit) { unit.show_compute(); });
  try {
    Operations::backward(loss, create_graph);
  } catch (...) {
    for_all_units([](Unit& unit) { unit.show_masters(); });
    for_all_units([](Unit& unit) { unit.abandon_backward(); });
    throw;
  }
  for_all_units([](Unit& unit) { unit.show_masters(); });
}

// What has no effect on values has none here: gathering, freeing before backward and prefetching. What is free after a forward decides only
// what a unit shows that a backward without resharding does not come to.
void Rank::control(sdk::Model& model, const sdk::Json& verb) {
  const std::string name = verb.at("verb"), module = verb.value("module", "");
  for (Unit* unit : units_of(model)) {
    auto* sharded = dynamic_cast<FullyShardUnit*>(unit);
    if (auto* flat = dynamic_cast<FlatUnit*>(unit); flat && name == "register_comm_hook") {
      flat->comm_hook = {verb.at("scale"), verb.value("add", 0.0), {}};
      if (verb.contains("dtype") && !context().data.widened())
        flat->comm_hook->dtype = sdk::dtype_from_name(verb.at("dtype").get<std::string>());
    }
    if (!sharded) continue;
    if (name == "set_all_reduce_hook" && sharded->path() == module)
      sharded->all_reduce_hook = {verb.at("scale"), verb.value("add", 0.0), verb.contains("mean_over")};
    if (name == "set_gradient_divide_factor" && sharded->path() == module)
      sharded->divide_factor = verb.at("value");
    if (name == "set_force_sum_reduction_for_comms" && sharded->path() == module)
      sharded->sums_only = verb.at("value");
    if (verb.value("recurse", true) ? !sharded->is_inside(module) : sharded->path() != module) continue;
    if (name == "set_requires_gradient_sync")
      sharded->reduce_gradients = sharded->all_reduce_gradients = verb.at("value");
    if (name == "set_requires_all_reduce") sharded->all_reduce_gradients = verb.at("value");
    if (name == "set_reshard_after_backward") sharded->reshards_after_backward = verb.at("value");
    if (name == "set_reshard_after_forward") sharded->reshards_after_forward = verb.at("value");
    if (name == "reshard" && sharded->path() == module) sharded->free();
  }
}

std::function<void()> Rank::enter(sdk::Model& model, const sdk::Json& verb) {
  if (verb.at("scope") == "summon") {
    summon(model);
    return verb.value("writeback", true) ? [] {} : undo_changes(model);
  }
  std::vector<std::function<void()>> restore;
  for (Unit* unit : units_of(model)) {
    auto* flat = dynamic_cast<FlatUnit*>(unit);
    bool& flag = flat ? flat->sync_gradients : static_cast<FullyShardUnit*>(unit)->reduce_gradients;
    restore.push_back([&flag, before = flag] { flag = before; });
    flag = false;
  }
  return [restore] {
    for (const auto& one : restore) one();
  };
}

void Rank::summon(const sdk::Model& model) {
  for (Unit* unit : units_of(model)) {
    if (auto* flat = dynamic_cast<FlatUnit*>(unit)) flat->write_back();
  }
}

// Without writeback the shards stay as they were. A unit that is not sharded has shown its only copy.
std::function<void()> Rank::undo_changes(const sdk::Model& model) {
  struct Before {
    at::Tensor master, value, gradient;
  };
  std::vector<Before> before;
  for (Unit* unit : units_of(model)) {
    const auto* flat = dynamic_cast<FlatUnit*>(unit);
    if (!flat || !flat->settings().shards()) continue;
    for (const UnitParameter& parameter : unit->parameters()) {
      const at::Tensor& gradient = parameter.master.grad();
      before.push_back({parameter.master, parameter.master.detach().clone(),
                        gradient.defined() ? gradient.detach().clone() : at::Tensor()});
    }
  }
  return [before] {
    const c10::AutoGradMode no_grad(false);
    for (const auto& [master, value, gradient] : before) {
      at::Tensor(master).copy_(value);
      master.mutable_grad() = gradient;
    }
  };
}

// The value stays the master's: that is what optimizers update.
std::vector<sdk::Parameter> Rank::parameters(sdk::Model& model) {
  std::vector<sdk::Parameter> all = Operations::parameters(model);
  for (Unit* unit : units_of(model)) {
    const auto* sharded = dynamic_cast<FullyShardUnit*>(unit);
    if (!sharded || !sharded->stays_gathered()) continue;
    for (const UnitParameter& shown : unit->parameters()) {
      const auto at =
          std::find_if(all.begin(), all.end(), [&](const auto& p) { return p.name == shown.name; });
      if (at != all.end()) at->gradient = shown.compute.grad();
    }
  }
  return all;
}

std::vector<sdk::Exposed> Rank::full_parameters(sdk::Model& model) {
  summon(model);
  return Operations::full_parameters(model);
}

void Rank::zero_parameters(sdk::Model& model) {
  summon(model);
  Operations::zero_parameters(model);
}

// Buffers go in with the dtype they had before any unit cast them.
sdk::StateDict Rank::state_dict(sdk::Model& model, const std::string& kind) {
  sdk::StateDict state = Operations::state_dict(model, kind);
  for (Unit* unit : units_of(model)) {
    auto* flat = dynamic_cast<FlatUnit*>(unit);
    if (!flat || !flat->settings().mixed_precision.buffer_dtype) continue;
    for (const FlatUnit::Buffer& buffer : flat->buffers) {
      for (sdk::Exposed& item : state.items) {
        if (sdk::join_path(model.module->path(), item.name) == buffer.name)
          item.value = item.value.to(buffer.original);
      }
    }
  }
  return state;
}

// Where its tensors lie is no question for a reference, which has no device.
sdk::StateDict Rank::full_state_dict(sdk::Model& model, const sdk::FullStateDictOptions& options) {
  sdk::StateDict state = state_dict(model, "full");
  if (!options.rank0_only || context().rank == 0) return state;
  return {{}, std::move(state.items)};
}

// Parameters are the same on all ranks here, and so is what the first rank has saved of them.
void Rank::broadcast_state_dict(sdk::Model& model, const sdk::StateDict& state) {
  const auto* of_first = std::any_cast<std::vector<sdk::Exposed>>(&state.native);
  load_state_dict(model, of_first ? sdk::StateDict{*of_first} : state);
}

void Rank::load_checkpoint(const sdk::Checkpoint& checkpoint) {
  load_state_dict(*checkpoint.model, state_dict(*checkpoint.like, "full"));
  if (checkpoint.optimizer) checkpoint.optimizer->load(checkpoint.optimizer_like->saved());
}

std::vector<sdk::Unit> Rank::units(sdk::Model& model) {
  std::vector<sdk::Unit> described;
  for (const auto& [path, module] : named_modules(*model.module)) {
    for (const Unit* unit : units_of(model)) {
      if (&unit->module() == module) described.push_back(unit->describe());
    }
  }
  return described;
}

std::vector<Unit*> Rank::units_of(const sdk::Model& model) const {
  std::vector<Unit*> units;
  const auto sharded = sharded_.find(model.instance);
  if (sharded == sharded_.end()) return units;
  for (const auto& unit : sharded->second.units) {
    if (unit->is_inside(model.module->path())) units.push_back(unit.get());
  }
  return units;
}

void Rank::set_buffer(sdk::Model& model, const std::string& name, at::ScalarType dtype) {
  const bool widen = context().data.widened() && at::isFloatingType(dtype);
  Operations::set_buffer(model, name, widen ? at::ScalarType::Double : dtype);
}

}  // namespace fsdp_cts::reference
