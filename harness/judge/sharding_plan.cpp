#include "harness/judge/sharding_plan.hpp"

#include <algorithm>
#include <numeric>
#include <set>

#include "harness/judge/program_map.hpp"
#include "harness/scenario/resolve/module_state.hpp"

namespace fsdp_cts {
namespace {

ShardGroups consecutive(int world, int size, bool replicas) {
  ShardGroups result;
  result.replicas = replicas;
  for (int first = 0; first < world; first += size) {
    std::vector<int> group(static_cast<std::size_t>(size));
    std::iota(group.begin(), group.end(), first);
    result.groups.push_back(std::move(group));
  }
  return result;
}

bool alone(const Json& unit) {
  auto group = unit.find("process_group");
  return group != unit.end() && (group->is_object() || *group == "self");
}

// LANGUAGE.md §5, `enable_wrap`: outside of a context there is no unit; inside, the unit's own keys go before
// the context's.
Json units_made(const Json& asked) {
  Json made = Json::array();
  for (const Json& unit : asked) {
    auto context = unit.find("enable_wrap");
    if (context == unit.end()) {
      made.push_back(unit);
    } else if (context->is_object()) {
      Json settings = *context;
      settings.update(unit);
      made.push_back(std::move(settings));
    }
  }
  return made;
}

Json plans_as_made(Json plans) {
  if (!plans.is_object()) return plans;
  for (auto& [model, plan] : plans.items()) {
    if (plan.is_object() && plan.contains("units")) plan["units"] = units_made(plan["units"]);
  }
  return plans;
}

}  // namespace

bool inside_module(const std::string& parameter, const std::string& module) {
  return module.empty() ||
         (parameter.size() > module.size() && parameter.compare(0, module.size(), module) == 0 &&
          parameter[module.size()] == '.');
}

bool ignores(const Json& unit, const std::string& parameter) {
  const std::vector<std::string> names = strings_of(unit.value("ignored_parameters", Json::array()));
  std::vector<std::string> modules = strings_of(unit.value("ignored_modules", Json::array()));
  std::ranges::move(strings_of(unit.value("ignored_state_modules", Json::array())),
                    std::back_inserter(modules));
  return std::find(names.begin(), names.end(), parameter) != names.end() ||
         std::any_of(modules.begin(), modules.end(),
                     [&](const std::string& module) { return inside_module(parameter, module); });
}

std::vector<std::string> unit_modules(const Json& unit) {
  auto modules = unit.find("modules");
  return modules == unit.end() ? std::vector<std::string>{""} : strings_of(*modules);
}

ShardingPlan::ShardingPlan(const Case& a_case) : plans_(plans_as_made(a_case.plans)), world_(a_case.world) {
  for (const auto& [model, description] : a_case.models.items()) {
    for (const StateShape& state : module_state(description)) {
      if (!state.is_buffer) parameters_[model].push_back(state.name);
    }
  }
}

const Json* ShardingPlan::plan(const std::string& model) const {
  if (!plans_.is_object()) return nullptr;
  auto found = plans_.find(model);
  return found == plans_.end() || !found->is_object() ? nullptr : &*found;
}

const Json* ShardingPlan::unit_of(const std::string& model, const std::string& parameter) const {
  const Json* plan_of_model = plan(model);
  if (!plan_of_model || !plan_of_model->contains("units")) return nullptr;
  const Json* best = nullptr;
  std::size_t best_length = 0;
  for (const Json& unit : (*plan_of_model)["units"]) {
    for (const std::string& module : unit_modules(unit)) {
      if (inside_module(parameter, module) && (!best || module.size() > best_length)) {
        best = &unit;
        best_length = module.size();
      }
    }
  }
  return best;
}

ShardGroups ShardingPlan::mesh_groups(const Json& plan) const {
  auto mesh = plan.find("mesh");
  if (mesh != plan.end() && mesh->is_array() && mesh->size() == 2) {
    return consecutive(world_, (*mesh)[1].get<int>(), true);
  }
  return consecutive(world_, world_, false);
}

ShardGroups ShardingPlan::shard_groups(const std::string& model, const std::string& parameter) const {
  const Json* plan_of_model = plan(model);
  if (!plan_of_model) return consecutive(world_, world_, false);
  const Json* unit = unit_of(model, parameter);
  if (unit && alone(*unit)) return consecutive(world_, 1, false);
  // FSDP1 takes the mesh for its hybrid strategies only.
  const std::string strategy = unit ? unit->value("sharding_strategy", std::string("FULL_SHARD")) : "";
  const bool per_parameter = plan_of_model->value("api", "") == "fully_shard";
  if (!per_parameter && strategy.find("HYBRID") == std::string::npos)
    return consecutive(world_, world_, false);
  ShardGroups groups = mesh_groups(*plan_of_model);
  if (groups.replicas) groups.replica_clause = per_parameter ? "FS-HSDP-2" : "FP-HYBRID-3";
  return groups;
}

std::vector<ShardGroups> ShardingPlan::post_forward_groups(const std::string& model) const {
  std::set<int> sizes;
  if (const Json* plan_of_model = plan(model); plan_of_model && plan_of_model->contains("units")) {
    for (const Json& unit : (*plan_of_model)["units"]) {
      auto reshard = unit.find("reshard_after_forward");
      if (reshard != unit.end() && reshard->is_number_integer()) sizes.insert(reshard->get<int>());
    }
  }
  std::vector<ShardGroups> result;
  for (int size : sizes) {
    if (size > 1 && size < world_ && world_ % size == 0) result.push_back(consecutive(world_, size, true));
  }
  return result;
}

bool ShardingPlan::must_shard(const std::string& model) const {
  const Json* plan_of_model = plan(model);
  if (!plan_of_model || !plan_of_model->contains("units") || mesh_groups(*plan_of_model).size() < 2)
    return false;
  const auto parameters = parameters_.find(model);
  if (parameters == parameters_.end()) return false;
  for (const std::string& parameter : parameters->second) {
    const Json* unit = unit_of(model, parameter);
    if (!unit || alone(*unit) || ignores(*unit, parameter)) continue;
    if (unit->value("sharding_strategy", std::string("FULL_SHARD")) != "NO_SHARD") return true;
  }
  return false;
}

}  // namespace fsdp_cts
