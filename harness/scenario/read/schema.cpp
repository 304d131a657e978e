#include "harness/scenario/read/schema.hpp"

#include "harness/scenario/read/expectation_kinds.hpp"
#include "harness/scenario/read/module_types.hpp"
#include "harness/scenario/read/plan_grammar.hpp"
#include "harness/scenario/read/scenario_grammar.hpp"
#include "harness/scenario/read/verbs.hpp"

namespace fsdp_cts {
namespace {

Json schema_of(const Rule& rule);

Json reference(const std::string& name) {
  return {{"$ref", "#/$defs/" + name}};
}

Json any_of(Json alternatives) {
  if (alternatives.size() == 1) return alternatives[0];
  return {{"anyOf", std::move(alternatives)}};
}

// Properties of a map with these keys; `when` is allowed in every map that can be an element of a list.
Json object_of(const Fields& fields) {
  Json properties = Json::object(), required = Json::array();
  for (const Field& field : fields) {
    Json schema = schema_of(field.rule);
    if (*field.about) schema["description"] = field.about;
    if (!field.fallback.is_null()) schema["default"] = field.fallback;
    properties[field.name] = std::move(schema);
    if (field.required) required.push_back(field.name);
  }
  if (!properties.contains("when")) properties["when"] = reference("condition");
  Json schema = {{"type", "object"}, {"properties", std::move(properties)}, {"additionalProperties", false}};
  if (!required.empty()) schema["required"] = std::move(required);
  return schema;
}

Json text_schema(const Rule& rule) {
  Json alternatives = Json::array();
  if (rule.words.empty() && rule.prefixes.empty()) return {{"type", "string"}};
  if (!rule.words.empty()) alternatives.push_back({{"enum", rule.words}});
  for (const std::string& prefix : rule.prefixes)
    alternatives.push_back({{"type", "string"}, {"pattern", "^" + prefix + "."}});
  alternatives.push_back(reference("expression"));
  return any_of(std::move(alternatives));
}

Json schema_of(const Rule& rule) {
  if (rule.schema_ref) return reference(rule.schema_ref);
  Json alternatives = Json::array();
  const auto number = [&](const char* type) {
    Json schema = {{"type", type}};
    if (rule.at_least) schema["minimum"] = *rule.at_least;
    alternatives.push_back(std::move(schema));
  };
  if (rule.types & types::null) alternatives.push_back({{"type", "null"}});
  if (rule.types & types::boolean) alternatives.push_back({{"type", "boolean"}});
  if (rule.types & types::number)
    number("number");
  else if (rule.types & types::integer)
    number("integer");
  alternatives.push_back(rule.types & types::string ? text_schema(rule) : reference("expression"));
  if (rule.types & types::list) {
    Json schema = {{"type", "array"}};
    if (rule.each) schema["items"] = schema_of(*rule.each);
    if (rule.length) schema["minItems"] = schema["maxItems"] = rule.length;
    alternatives.push_back(std::move(schema));
  }
  if (rule.types & types::map) {
    Json schema = {{"type", "object"}};
    if (rule.fields)
      schema = object_of(*rule.fields);
    else if (rule.each)
      schema["additionalProperties"] = schema_of(*rule.each);
    alternatives.push_back(std::move(schema));
  }
  return any_of(std::move(alternatives));
}

// A map of which one key says what it is; the value stands for its main argument or is a map of arguments.
Json keyed(const std::string& name, const std::string& main, const Fields& arguments, const char* about,
           const Fields& beside) {
  Json alternatives = Json::array({object_of(arguments)});
  if (const Field* field = find_field(arguments, main)) {
    alternatives.push_back(schema_of(field->rule));
    alternatives.push_back({{"type", "null"}});
  }
  Json value = any_of(std::move(alternatives));
  if (*about) value["description"] = about;
  Json schema = object_of(beside);
  schema["properties"][name] = std::move(value);
  schema["required"] = Json::array({name});
  return schema;
}

Json step_schema() {
  Json alternatives = Json::array();
  for (const std::string& block : block_names()) alternatives.push_back(object_of(block_fields(block)));
  for (const Verb& verb : verbs())
    alternatives.push_back(keyed(verb.name, verb.main, verb.arguments, verb.about, step_modifiers()));
  return any_of(std::move(alternatives));
}

Json expectation_schema() {
  Json alternatives = Json::array();
  for (const ExpectationKind& kind : expectation_kinds_of_language()) {
    Json schema = keyed(kind.name, kind.main, kind.arguments, kind.about, expectation_modifiers());
    if (kind.whole) schema["properties"][kind.name] = schema_of(*kind.whole);
    alternatives.push_back(std::move(schema));
  }
  return any_of(std::move(alternatives));
}

Json children_schema() {
  Json items = any_of(Json::array({reference("module"), object_of(repeated_child_fields())}));
  return any_of(Json::array({{{"type", "array"}, {"items", std::move(items)}},
                             {{"type", "object"}, {"additionalProperties", reference("module")}}}));
}

Json module_schema() {
  Json alternatives = Json::array();
  alternatives.push_back(
      {{"type", "object"},
       {"properties",
        {{"use", {{"type", "string"}, {"description", "a model file; further keys are its parameters"}}}}},
       {"required", Json::array({"use"})}});
  for (const ModuleType& type : module_types()) {
    Json schema = object_of(type.arguments);
    schema["properties"]["type"] = {{"const", type.name}};
    if (*type.about) schema["properties"]["type"]["description"] = type.about;
    schema["properties"]["class"] = {{"type", "string"}};
    if (type.children != Children::none) schema["properties"]["children"] = children_schema();
    Json required = schema.value("required", Json::array());
    required.push_back("type");
    if (type.children == Children::required) required.push_back("children");
    schema["required"] = std::move(required);
    alternatives.push_back(std::move(schema));
  }
  return any_of(std::move(alternatives));
}

Json graph_op_schema() {
  Json alternatives = Json::array();
  for (const GraphOp& op : graph_ops()) {
    Fields fields = {{op.name, op.main, true}};
    fields.insert(fields.end(), op.others.begin(), op.others.end());
    alternatives.push_back(object_of(fields));
  }
  return any_of(std::move(alternatives));
}

Json plan_schema() {
  Json alternatives = Json::array();
  for (const std::string& api : plan_apis()) {
    Json schema = object_of(plan_and_unit_fields(api));
    schema["properties"]["api"] = {{"const", api}};
    schema["properties"]["units"] = {{"type", "array"},
                                     {"items", object_of(unit_fields(api))},
                                     {"description", "calls of the API, in order"}};
    alternatives.push_back(std::move(schema));
  }
  return any_of(std::move(alternatives));
}

Json document(const char* title, const Fields& fields) {
  Json schema = {{"$schema", "https://json-schema.org/draft/2020-12/schema"}, {"title", title}};
  Json object = object_of(fields);
  object["properties"].erase("when");
  schema.update(object);
  schema["$defs"] = {{"expression",
                      {{"type", "string"},
                       {"pattern", "\\$\\{"},
                       {"description", "stands for a value of any type once evaluated"}}},
                     {"condition",
                      {{"type", Json::array({"string", "boolean"})},
                       {"description", "an expression without ${}; drops the map when false"}}},
                     {"module", module_schema()},
                     {"graph_op", graph_op_schema()}};
  return schema;
}

}  // namespace

Json scenario_schema() {
  Json schema = document("A scenario of fsdp-cts: one upstream test method as data", scenario_fields());
  schema["$defs"]["auto_wrap"] = object_of(auto_wrap_fields());
  schema["$defs"]["plan"] = plan_schema();
  schema["$defs"]["step"] = step_schema();
  schema["$defs"]["expectation"] = expectation_schema();
  return schema;
}

Json model_schema() {
  return document("A model file of fsdp-cts: one module, with parameters", model_file_fields());
}

}  // namespace fsdp_cts
