#include "harness/scenario/resolve/sections.hpp"

#include "harness/scenario/edition.hpp"
#include "harness/scenario/read/expectation_kinds.hpp"
#include "harness/scenario/read/plan_grammar.hpp"
#include "harness/scenario/read/scenario_grammar.hpp"
#include "harness/scenario/resolve/program.hpp"

namespace fsdp_cts {

namespace {

DataTree empty_map(const SourcePlace& place) {
  DataTree map;
  map.kind = DataTree::Kind::map;
  map.place = place;
  return map;
}

// Takes the formula and its numbers from `above` where `section` has none of its own.
void inherit_formula(DataTree& section, const DataTree& above) {
  for (const char* key : {"formula", "levels", "unit"})
    if (const DataTree* value = above.find(key); value && !section.find(key)) section.set(key, *value);
}

void check_formula(const DataTree& section, const std::string& what, Mistakes& mistakes) {
  const bool dyadic = section.text_at("formula") == "dyadic";
  for (const char* key : {"levels", "unit"})
    if (dyadic && !section.find(key))
      mistakes.add(section.place, what + ": the dyadic formula needs '" + key + "'");
  if (dyadic && section.find("scale"))
    mistakes.add(section.find("scale")->place,
                 what + ": 'scale' belongs to the ordinary formula; dyadic values have 'unit'");
}

void finish_input(DataTree& input, const DataTree& data, const std::string& what, Mistakes& mistakes) {
  fill_defaults(input, input_fields());
  const std::string kind = input.text_at("kind"), dtype = input.text_at("dtype");
  const bool floating = dtype == "float64" || dtype == "float32" || dtype == "float16" || dtype == "bfloat16";
  if (kind == "formula" && floating) {
    inherit_formula(input, data);
    check_formula(input, what, mistakes);
    if (input.text_at("formula") == "ordinary" && !input.find("scale"))
      input.set("scale", tree_of(1.0, input.place));
  }
  const auto only = [&](const char* key, bool fits, const char* where) {
    const DataTree* value = input.find(key);
    if (value && !fits) mistakes.add(value->place, what + ": '" + key + "' belongs to " + where);
  };
  only("value", kind == "full", "kind full");
  only("modulo", !floating && (kind == "formula" || kind == "arange"),
       "integer dtypes of kind formula or arange");
  if (kind == "full" && !input.find("value")) mistakes.add(input.place, what + ": kind full needs 'value'");
  if (kind == "formula" && !floating && !input.find("modulo"))
    mistakes.add(input.place, what + ": the formula of an integer dtype needs 'modulo'");
}

}  // namespace

Json resolve_data(const DataTree& written, const Scope& scope, Mistakes& mistakes) {
  DataTree data = evaluated(written, scope, mistakes);
  check_fields(data, data_fields(), "data", Stage::evaluated, mistakes);
  fill_defaults(data, data_fields());
  if (!data.find("parameters")) data.set("parameters", empty_map(data.place));
  if (!data.find("inputs")) data.set("inputs", empty_map(data.place));

  DataTree& parameters = *data.find("parameters");
  fill_defaults(parameters, parameter_data_fields());
  inherit_formula(parameters, data);
  check_formula(parameters, "data.parameters", mistakes);
  if (parameters.text_at("formula") == "ordinary" && !parameters.find("scale"))
    parameters.set("scale", tree_of("fan_in", parameters.place));

  for (DataTree::Entry& entry : data.find("inputs")->entries) {
    if (entry.key.find_first_of("@/") != std::string::npos)
      mistakes.add({data.place.file, entry.line},
                   "an input's name must not hold '@' or '/': '" + entry.key + "'");
    if (entry.value.is_map()) finish_input(entry.value, data, "data.inputs." + entry.key, mistakes);
  }
  return data.json();
}

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
  std::string name = api->scalar.get<std::string>();
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

namespace {

std::vector<std::string> names_of_kinds() {
  std::vector<std::string> names;
  for (const ExpectationKind& kind : expectation_kinds_of_language()) names.push_back(kind.name);
  return names;
}

const ExpectationKind* kind_of(const DataTree& expectation, Mistakes& mistakes) {
  if (!expectation.is_map()) {
    mistakes.add(expectation.place,
                 "an expectation must be a map such as {finite: [loss]}, found " + expectation.shown());
    return nullptr;
  }
  const ExpectationKind* found = nullptr;
  const DataTree::Entry* other = nullptr;
  for (const DataTree::Entry& entry : expectation.entries) {
    if (const ExpectationKind* kind = find_expectation_kind(entry.key)) {
      if (found) {
        mistakes.add({expectation.place.file, entry.line},
                     "an expectation has one kind; found '" + found->name + "' and '" + kind->name + "'");
        return nullptr;
      }
      found = kind;
    } else if (entry.key != "when" && !find_field(expectation_modifiers(), entry.key) && !other) {
      other = &entry;
    }
  }
  if (!found)
    mistakes.add({expectation.place.file, other ? other->line : expectation.place.line},
                 unknown_name("expectation", other ? other->key : "", names_of_kinds()));
  return found;
}

// The value behind the kind's name, in its full form. Notes what is wrong with it.
DataTree arguments_of(const ExpectationKind& kind, const DataTree& expectation, Stage stage,
                      Mistakes& mistakes) {
  check_fields(expectation, expectation_modifiers(), "an expectation", stage, mistakes, {kind.name});
  const DataTree& value = *expectation.find(kind.name);
  if (kind.whole) {
    check(value, *kind.whole, kind.name, stage, mistakes);
    return value;
  }
  DataTree arguments = expand_main(value, kind.main);
  for (const char* key : {"what", "to"})
    if (DataTree* one = arguments.find(key)) one->one_becomes_list();
  if (arguments.is_map())
    check_fields(arguments, kind.arguments, kind.name, stage, mistakes);
  else if (!arguments.is_unknown())
    mistakes.add(value.place, kind.name + " needs a map of arguments, found " + value.shown());
  return arguments;
}

void check_meaning(const ExpectationKind& kind, const DataTree& arguments, Mistakes& mistakes) {
  const auto has = [&](std::string_view key) { return arguments.find(key) != nullptr; };
  if (kind.name == "collectives" && has("count") == has("at_least"))
    mistakes.add(arguments.place, "collectives needs one of 'count' and 'at_least'");
  if ((kind.name == "differ" || kind.name == "match") && has("labels") == has("between"))
    mistakes.add(arguments.place, kind.name + " needs one of 'labels' and 'between'");
  if (kind.name == "layout" && !has("kind") && !has("pieces"))
    mistakes.add(arguments.place, "layout needs 'kind' or 'pieces'");
}

}  // namespace

void check_written_expectations(const DataTree& expect, Mistakes& mistakes) {
  for (const DataTree& expectation : expect.items)
    if (const ExpectationKind* kind = kind_of(expectation, mistakes))
      arguments_of(*kind, expectation, Stage::written, mistakes);
}

namespace {

// Null after a mistake about its kind.
Json resolved(DataTree expectation, Lane lane, Mistakes& mistakes) {
  expectation.erase("when");
  const ExpectationKind* found = kind_of(expectation, mistakes);
  if (!found) return nullptr;
  const ExpectationKind& kind = *found;
  DataTree arguments = arguments_of(kind, expectation, Stage::evaluated, mistakes);
  if (!kind.whole) {
    fill_defaults(arguments, kind.arguments);
    check_meaning(kind, arguments, mistakes);
  }
  if (kind.name == "equal" && !arguments.find("tolerance"))
    arguments.set("tolerance", tree_of(lane == Lane::exact ? "exact" : "upstream", arguments.place));
  Json entry = {{kind.name, arguments.json()}};
  for (const Field& modifier : expectation_modifiers())
    if (const DataTree* value = expectation.find(modifier.name)) entry[modifier.name] = value->json();
  for (const char* bound : {"since", "until"})
    if (const DataTree* value = expectation.find(bound);
        value && value->is_string() && !edition_of(value->scalar.get<std::string>()))
      mistakes.add(value->place,
                   std::string(bound) + " needs a version such as \"2.15\", found " + value->shown());
  entry["line"] = expectation.place.line;
  return entry;
}

}  // namespace

Json ExpectationResolver::resolve(const Scope& scope, Lane lane, Mistakes& mistakes) {
  Json result = Json::array();
  for (const DataTree& written : written_.items) {
    if (!holds(written.find("when"), scope, mistakes)) continue;
    const Json& expectation = of_lane_[lane].of(written, scope, mistakes, [&] {
      return resolved(evaluated(written, scope, mistakes), lane, mistakes);
    });
    if (!expectation.is_null()) result.push_back(expectation);
  }
  return result;
}

}  // namespace fsdp_cts
