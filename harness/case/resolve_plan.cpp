#include "harness/case/build_cases.hpp"
#include "harness/case/evaluation.hpp"
#include "harness/case/scenario_grammar.hpp"

namespace fsdp_cts {
namespace {

// `rules` are tables of their own below a policy, so that `or` may hold further policies.
void check_auto_wrap(const DataTree& auto_wrap, Stage stage, Mistakes& mistakes) {
  if (!auto_wrap.is_map()) return;
  check_fields(auto_wrap, auto_wrap_fields(), "auto_wrap", stage, mistakes);
  if (const DataTree* policies = auto_wrap.find("policies"))
    for (const DataTree& policy : policies->items) check_auto_wrap(policy, stage, mistakes);
}

// A unit, the defaults of a plan, or those of an `enable_wrap` context.
void check_policies(const DataTree& unit, Stage stage, Mistakes& mistakes) {
  if (const DataTree* wrap = unit.find("auto_wrap")) check_auto_wrap(*wrap, stage, mistakes);
  if (const DataTree* context = unit.find("enable_wrap"); context && context->is_map())
    check_policies(*context, stage, mistakes);
}

std::string api_of(const DataTree& plan) {
  const DataTree* api = plan.find("api");
  if (!api || !api->is_string()) return "";
  const std::string name = api->scalar.get<std::string>();
  for (const std::string& known : plan_apis())
    if (name == known) return name;
  return "";
}

void check_plan(const DataTree& plan, Stage stage, Mistakes& mistakes) {
  if (!plan.is_map()) return;
  const std::string api = api_of(plan);
  if (api.empty()) return check_fields(plan, plan_fields(), "plan", stage, mistakes);
  check_fields(plan, plan_and_unit_fields(api), "plan", stage, mistakes);
  check_policies(plan, stage, mistakes);
  const DataTree* units = plan.find("units");
  for (const DataTree& unit : units ? units->items : std::vector<DataTree>{}) {
    if (!unit.is_map()) {
      mistakes.add(unit.place, "a unit must be a map such as {modules: [\"0\"]}, found " + unit.shown());
      continue;
    }
    check_fields(unit, unit_fields(api), "unit", stage, mistakes);
    check_policies(unit, stage, mistakes);
  }
}

}  // namespace

void check_written_plan(const DataTree& plan, Mistakes& mistakes) {
  check_plan(plan, Stage::written, mistakes);
}

Json resolve_plan(const DataTree& written, const Scope& scope, Mistakes& mistakes) {
  const DataTree plan = evaluated(written, scope, mistakes);
  check_plan(plan, Stage::evaluated, mistakes);
  Json result = Json::object();
  Json defaults = Json::object();
  for (const DataTree::Entry& entry : plan.entries)
    (find_field(plan_fields(), entry.key) ? result : defaults)[entry.key] = entry.value.json();
  if (!result.contains("units") || !result["units"].is_array()) return result;
  for (Json& unit : result["units"]) {
    if (!unit.is_object()) continue;
    for (const auto& [key, value] : defaults.items()) unit.emplace(key, Json(value));
  }
  return result;
}

}  // namespace fsdp_cts
