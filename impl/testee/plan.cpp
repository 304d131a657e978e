#include "impl/testee/plan.hpp"

#include <map>
#include <stdexcept>

namespace fsdp_cts::testee {
std::optional<at::ScalarType> dtype_of(const sdk::Json& policy, const char* key) {
  if (!policy.contains(key) || policy.at(key).is_null()) return std::nullopt;
  return sdk::dtype_from_name(policy.at(key).get<std::string>());
}

sdk::Json name_or_null(const std::optional<at::ScalarType>& dtype) {
  return dtype ? sdk::Json(sdk::dtype_name(*dtype)) : sdk::Json();
}

at::Tensor parameter_named(sdk::Module& root, const std::string& name) {
  for (const sdk::Slot& slot : sdk::parameter_slots_with_ties(root)) {
    if (slot.name == name) return slot.tensor();
  }
  throw std::invalid_argument("the plan names a parameter \"" + name + "\" that the model does not have");
}

fsdp::DeviceMesh mesh_of(const sdk::Json& plan, const std::shared_ptr<fsdp::Communicator>& world) {
  const sdk::Json shape = plan.value("mesh", sdk::Json());
  const auto mesh =
      shape.is_array() ? fsdp::DeviceMesh(world, shape, {"replicate", "shard"}) : fsdp::DeviceMesh(world);
  if (plan.value("mesh_from", "shape") != "groups") return mesh;
  std::vector<std::shared_ptr<fsdp::Communicator>> groups;
  for (int64_t dim = 0; dim < mesh.ndim(); ++dim) groups.push_back(mesh.group(dim));
  return fsdp::DeviceMesh::from_groups(world, std::move(groups), mesh.dim_names());
}

// A scenario may say what no C++ program could: what Python's front door answers then is this one's to
// answer.
fsdp::ReshardAfterForward reshard_after_forward_of(const sdk::Json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number_integer()) return value.get<std::int64_t>();
  if (value.is_null()) return std::monostate{};
  throw sdk::Error(
      "ValueError",
      "reshard_after_forward should be a bool or an int representing the group size to reshard to, not " +
          (value.is_string() ? value.get<std::string>() : value.dump()));
}

bool bool_reshard_after_forward_of(const sdk::Json& value) {
  if (value.is_boolean()) return value;
  const char* type = value.is_number_integer() ? "int"
                     : value.is_number()       ? "float"
                     : value.is_string()       ? "str"
                                               : "NoneType";
  throw sdk::Error("ValueError",
                   std::string("reshard_after_forward should be a bool, got <class '") + type + "'>");
}

fsdp::FullyShardOptions options_of(const sdk::Json& unit, sdk::Module& root) {
  fsdp::FullyShardOptions options;
  options.reshard_after_forward = reshard_after_forward_of(unit.value("reshard_after_forward", sdk::Json()));
  const sdk::Json policy = unit.value("mixed_precision", sdk::Json());
  if (policy.is_object()) {
    options.mp_policy = {dtype_of(policy, "param_dtype"), dtype_of(policy, "reduce_dtype"),
                         dtype_of(policy, "output_dtype"), policy.value("cast_forward_inputs", true)};
  }
  if (unit.value("cpu_offload", false))
    options.offload_policy = fsdp::CPUOffloadPolicy{.pin_memory = unit.value("pin_memory", true)};
  for (const sdk::Json& name : unit.value("ignored_parameters", sdk::Json::array())) {
    options.ignored_params.push_back(parameter_named(root, name));
  }
  std::map<const c10::TensorImpl*, std::int64_t> dims;
  const sdk::Json shard_dims = unit.value("shard_dims", sdk::Json::object());
  for (const auto& [name, dim] : shard_dims.items()) {
    dims[parameter_named(root, name).unsafeGetTensorImpl()] = dim;
  }
  if (!dims.empty()) {
    options.shard_placement_fn = [dims](const at::Tensor& parameter) -> std::optional<std::int64_t> {
      const auto found = dims.find(parameter.unsafeGetTensorImpl());
      return found == dims.end() ? std::nullopt : std::optional(found->second);
    };
  }
  return options;
}

sdk::Json settings_of(const fsdp::FSDPModule& unit) {
  const fsdp::MixedPrecisionPolicy& policy = unit.mp_policy();
  sdk::Json settings = {{"mixed_precision",
                         {{"param_dtype", name_or_null(policy.param_dtype)},
                          {"reduce_dtype", name_or_null(policy.reduce_dtype)},
                          {"output_dtype", name_or_null(policy.output_dtype)},
                          {"cast_forward_inputs", policy.cast_forward_inputs}}}};
  const fsdp::ReshardAfterForward reshard = unit.reshard_after_forward();
  if (const bool* flag = std::get_if<bool>(&reshard)) settings["reshard_after_forward"] = *flag;
  if (const auto* ranks = std::get_if<std::int64_t>(&reshard)) settings["reshard_after_forward"] = *ranks;
  return settings;
}

}  // namespace fsdp_cts::testee
