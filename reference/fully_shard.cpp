#include "reference/fully_shard.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <set>

#include "harness/sdk/cpp/errors.hpp"
#include "harness/sdk/cpp/tensors.hpp"

namespace fsdp_cts::reference {
namespace {

std::optional<at::ScalarType> dtype_of(const Json& policy, const char* key, bool widen) {
  if (!policy.contains(key) || policy.at(key).is_null()) return std::nullopt;
  const at::ScalarType dtype = sdk::dtype_from_name(policy.at(key).get<std::string>());
  return widen ? at::kDouble : dtype;
}

// Children before the module itself, which is the order of parameters in the group's buffers; not into
// another group.
void managed_modules(sdk::Module& module, const std::set<sdk::Module*>& sharded, bool is_root,
                     std::set<sdk::Module*>& visited, std::vector<sdk::Module*>& out) {
  if (!is_root && sharded.contains(&module)) return;
  if (!visited.insert(&module).second) return;
  for (const auto& [name, child] : module.child_modules())
    managed_modules(*child, sharded, false, visited, out);
  out.push_back(&module);
}

}  // namespace

MixedPrecisionPolicy mixed_precision_policy(const Json& policy, bool widen) {
  if (!policy.is_object()) return {};
  return {dtype_of(policy, "param_dtype", widen), dtype_of(policy, "reduce_dtype", widen),
          dtype_of(policy, "output_dtype", widen), policy.value("cast_forward_inputs", true)};
}

FullyShardUnit::FullyShardUnit(std::vector<std::pair<std::string, sdk::Module*>> modules,
                               std::vector<UnitParameter> parameters, std::vector<std::int64_t> shard_dims,
                               MixedPrecisionPolicy policy, Replicas replicas)
    : Unit(std::move(modules), std::move(parameters)),
      shard_dims_(std::move(shard_dims)),
      policy_(policy),
      replicas_(replicas),
      unreduced_(parameters_.size()) {}

at::ScalarType FullyShardUnit::compute_dtype(const UnitParameter& parameter) const {
  return policy_.param_dtype.value_or(parameter.master.scalar_type());
}

// Every module with a policy casts, root or not, by its own policy.
sdk::Tensors FullyShardUnit::before_forward(sdk::Tensors inputs) {
  if (!std::exchange(ran_, true)) reached_ = false;
  return policy_.cast_forward_inputs ? cast_floating(std::move(inputs), policy_.param_dtype) : inputs;
}

sdk::Tensors FullyShardUnit::after_forward(sdk::Tensors outputs) {
  return cast_floating(std::move(outputs), policy_.output_dtype);
}

// Backward gathers a unit before anything of it runs, so that it comes to one whose parameters get nothing, too.
void FullyShardUnit::watch(const sdk::Tensors& outputs) {
  for (const at::Tensor& output : outputs)
    if (output.defined() && output.requires_grad())
      output.register_hook([this](const at::Tensor&) { reached_ = true; });
}

// What earlier micro-batches have left goes, too: a sum with a batch missing is nobody's gradient.
void FullyShardUnit::abandon_backward() {
  Unit::abandon_backward();
  std::ranges::fill(unreduced_, at::Tensor());
  partial_.reset();
  reached_ = false;
}

sdk::Unit FullyShardUnit::describe() const {
  const auto shown = [](std::optional<at::ScalarType> dtype) {
    return dtype ? Json(sdk::dtype_name(*dtype)) : Json();
  };
  const Json settings = {{"mixed_precision",
                          {{"param_dtype", shown(policy_.param_dtype)},
                           {"reduce_dtype", shown(policy_.reduce_dtype)},
                           {"output_dtype", shown(policy_.output_dtype)},
                           {"cast_forward_inputs", policy_.cast_forward_inputs}}}};
  sdk::Unit unit{path(), module().class_name(), settings, {}};
  for (const UnitParameter& p : parameters_) unit.parameters.push_back(p.name);
  return unit;
}

std::vector<std::unique_ptr<Unit>> fully_shard_units(sdk::Module& root, const Json& plan, bool widen,
                                                     bool reduces_in_original_dtype) {
  const Json mesh = plan.value("mesh", Json());
  Replicas replicas;
  if (mesh.is_array() && mesh.size() == 2)
    replicas = {mesh.at(0).get<int>(), plan.value("replicas", "native") == "native"};
  const std::vector<sdk::Slot> all_slots = parameter_slots_with_ties(root);
  std::set<sdk::Module*> sharded;
  std::set<const at::TensorImpl*> claimed;
  std::vector<std::unique_ptr<Unit>> units;
  for (const Json& unit : plan.at("units")) {
    std::vector<std::pair<std::string, sdk::Module*>> leaders;
    for (const Json& path : unit.at("modules")) {
      leaders.emplace_back(path, &root.child(path));
      sharded.insert(leaders.back().second);
    }
    for (const Json& ignored : unit.value("ignored_parameters", Json::array())) {
      for (const sdk::Slot& slot : all_slots) {
        if (slot.name == ignored) claimed.insert(slot.tensor().unsafeGetTensorImpl());
      }
    }
    std::set<sdk::Module*> visited, roots;
    std::vector<sdk::Module*> managed;
    for (const auto& [path, module] : leaders) managed_modules(*module, sharded, true, visited, managed);

    std::vector<UnitParameter> parameters;
    std::vector<std::int64_t> shard_dims;
    const Json dims = unit.value("shard_dims", Json::object());
    for (sdk::Module* module : managed) {
      for (const std::string& key : module->parameter_names()) {
        const at::Tensor& tensor = module->parameter(key);
        if (!tensor.defined() || !claimed.insert(tensor.unsafeGetTensorImpl()).second) continue;
        if (!tensor.is_contiguous())
          throw sdk::Error("NotImplementedError", "FSDP does not support non-contiguous parameters yet");
        UnitParameter parameter{"", {}, tensor};
        for (const sdk::Slot& slot : all_slots) {
          if (slot.tensor().is_same(tensor)) parameter.slots.push_back(slot);
        }
        parameter.name = parameter.slots.front().name;
        const auto dim = dims.value(parameter.name, std::int64_t{0});
        shard_dims.push_back(dim < 0 ? dim + tensor.dim() : dim);
        parameters.push_back(std::move(parameter));
      }
    }
    MixedPrecisionPolicy policy = mixed_precision_policy(unit.value("mixed_precision", Json()), widen);
    policy.reduces_in_original_dtype = reduces_in_original_dtype;
    const bool is_root = leaders.front().first.empty();
    auto made = std::make_unique<FullyShardUnit>(std::move(leaders), std::move(parameters),
                                                 std::move(shard_dims), policy, replicas);
    const Json reshards = unit.value("reshard_after_forward", Json());
    made->reshards_after_forward = reshards.is_null() ? !is_root : reshards != false;
    units.push_back(std::move(made));
  }
  return units;
}

}  // namespace fsdp_cts::reference
