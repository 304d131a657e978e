#include "harness/case/build_cases.hpp"
#include "harness/case/evaluation.hpp"
#include "harness/case/scenario_grammar.hpp"

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

}  // namespace fsdp_cts
