#include "harness/scenario/read/schema.hpp"

#include <initializer_list>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "harness/scenario/read/expectation_kinds.hpp"
#include "harness/scenario/read/module_types.hpp"
#include "harness/scenario/read/plan_grammar.hpp"
#include "harness/scenario/read/scenario_grammar.hpp"
#include "harness/scenario/read/verbs.hpp"

namespace fsdp_cts {
namespace {

// A string that holds one stands for a value of any type.
const char* const expression_pattern = "\\$\\{";

// `when` is for elements of lists, which it can drop.
enum class Place { element, elsewhere };

Json schema_of(const Rule& rule, Place place = Place::elsewhere);

Json reference(const std::string& name) {
  return {{"$ref", "#/$defs/" + name}};
}

Json any_of(Json alternatives) {
  if (alternatives.size() == 1) return alternatives[0];
  return {{"anyOf", std::move(alternatives)}};
}

// A map with these keys.
Json object_of(const Fields& fields, Place place = Place::elsewhere) {
  Json properties = Json::object(), required = Json::array();
  for (const Field& field : fields) {
    Json schema = schema_of(field.rule);
    if (*field.about) schema["description"] = field.about;
    if (!field.fallback.is_null()) schema["default"] = field.fallback;
    properties[field.name] = std::move(schema);
    if (field.required) required.push_back(field.name);
  }
  if (place == Place::element && !properties.contains("when")) properties["when"] = reference("condition");
  Json schema = {{"type", "object"}, {"properties", std::move(properties)}, {"additionalProperties", false}};
  if (!required.empty()) schema["required"] = std::move(required);
  return schema;
}

// Keywords speak of values of one type only, so a value of several types needs no alternatives, unless some
// of its strings are listed.
Json schema_of(const Rule& rule, Place place) {
  if (rule.schema_ref) return reference(rule.schema_ref);
  constexpr unsigned every = types::scalar | types::list | types::map;
  const bool listed = !rule.words.empty() || !rule.prefixes.empty();
  if ((rule.types & every) == every && !listed && !rule.each && !rule.fields) return Json::object();

  Json names = Json::array();
  const std::pair<unsigned, const char*> known[] = {{types::null, "null"},     {types::boolean, "boolean"},
                                                    {types::number, "number"}, {types::integer, "integer"},
                                                    {types::list, "array"},    {types::map, "object"}};
  for (const auto& [type, name] : known)
    if (rule.types & type) names.push_back(name);
  names.push_back("string");
  Json schema = {{"type", names.size() == 1 ? names[0] : names}};
  if (!(rule.types & types::string) || listed) schema["pattern"] = expression_pattern;
  if (rule.at_least) schema["minimum"] = *rule.at_least;
  if (rule.types & types::list) {
    if (rule.each) schema["items"] = schema_of(*rule.each, Place::element);
    if (rule.length) schema["minItems"] = schema["maxItems"] = rule.length;
  }
  if ((rule.types & types::map) && rule.fields) {
    Json object = object_of(*rule.fields, place);
    object.erase("type");
    schema.update(object);
  } else if ((rule.types & types::map) && rule.each) {
    schema["additionalProperties"] = schema_of(*rule.each);
  }
  if (!listed) return schema;

  Json alternatives = Json::array();
  if (!rule.words.empty()) alternatives.push_back({{"enum", rule.words}});
  for (const std::string& prefix : rule.prefixes)
    alternatives.push_back({{"type", "string"}, {"pattern", "^" + prefix + "."}});
  alternatives.push_back(std::move(schema));
  return any_of(std::move(alternatives));
}

// A value that is a map of arguments, or stands for the main one.
Json arguments_schema(const std::string& main, const Fields& arguments) {
  Json object = object_of(arguments);
  const Field* field = find_field(arguments, main);
  if (!field) return object;
  object["type"] = Json::array({"object", "null"});
  Json alone = schema_of(field->rule);
  if (!alone.contains("type") || (field->rule.types & types::map))
    return any_of(Json::array({std::move(object), std::move(alone)}));
  for (const Json& type : alone["type"].is_array() ? alone["type"] : Json::array({alone["type"]}))
    object["type"].push_back(type);
  alone.erase("type");
  object.update(alone);
  return object;
}

// One of several keys says what a map is. Which keys may stand beside it is in `shared`.
class OneOfManyKeys {
 public:
  explicit OneOfManyKeys(const Fields& shared) : schema_(object_of(shared, Place::element)) {}

  void add(const std::string& key, Json value, const char* about) {
    if (*about) value["description"] = about;
    schema_["properties"][key] = std::move(value);
    alternatives_.push_back({{"required", Json::array({key})}});
  }
  Json schema() const {
    Json result = schema_;
    result["oneOf"] = alternatives_;
    return result;
  }

 private:
  Json schema_;
  Json alternatives_ = Json::array();
};

Json step_schema() {
  Json alternatives = Json::array();
  for (const std::string& block : block_names())
    alternatives.push_back(object_of(block_fields(block), Place::element));
  OneOfManyKeys step(step_modifiers());
  for (const Verb& verb : verbs())
    step.add(verb.name, arguments_schema(verb.main, verb.arguments), verb.about);
  alternatives.push_back(step.schema());
  return any_of(std::move(alternatives));
}

Json expectation_schema() {
  OneOfManyKeys expectation(expectation_modifiers());
  for (const ExpectationKind& kind : expectation_kinds_of_language())
    expectation.add(kind.name,
                    kind.whole ? schema_of(*kind.whole) : arguments_schema(kind.main, kind.arguments),
                    kind.about);
  return expectation.schema();
}

Json children_schema() {
  Json items = any_of(Json::array({reference("module"), object_of(repeated_child_fields(), Place::element)}));
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
    Json schema = object_of(type.arguments, Place::element);
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
    alternatives.push_back(object_of(fields, Place::element));
  }
  return any_of(std::move(alternatives));
}

Json plan_schema() {
  Json alternatives = Json::array();
  for (const std::string& api : plan_apis()) {
    Json schema = object_of(plan_and_unit_fields(api));
    schema["properties"]["api"] = {{"const", api}};
    schema["properties"]["units"] = {{"type", "array"},
                                     {"items", object_of(unit_fields(api), Place::element)},
                                     {"description", "calls of the API, in order"}};
    alternatives.push_back(std::move(schema));
  }
  // An axis may choose the API; then its keys can be checked only when the case is made.
  const Json units = {{"type", "array"}, {"items", {{"type", "object"}}}};
  alternatives.push_back(
      {{"type", "object"},
       {"properties", {{"api", {{"type", "string"}, {"pattern", expression_pattern}}}, {"units", units}}},
       {"required", {"api", "units"}}});
  return any_of(std::move(alternatives));
}

// Puts what occurs more than once under $defs, so that every rule stands in the schema once.
class Sharing {
 public:
  // Rules that have a name in the tables keep it.
  Sharing() {
    const Rule name_or_names{.types = types::string | types::list, .each = &rules::name};
    const Rule pair_of_names{.types = types::list, .each = &rules::name, .length = 2};
    const Rule null{.types = types::null};
    for (const auto& [name, rule] : std::initializer_list<std::pair<const char*, const Rule*>>{
             {"boolean", &rules::boolean},
             {"number", &rules::number},
             {"integer", &rules::integer},
             {"natural", &rules::natural},
             {"positive", &rules::positive},
             {"dtype", &rules::dtype},
             {"dtype_or_null", &rules::dtype_or_null},
             {"float_dtype_or_null", &rules::float_dtype_or_null},
             {"names", &rules::names},
             {"naturals", &rules::naturals},
             {"name_or_names", &name_or_names},
             {"pair_of_names", &pair_of_names},
             {"null_or_expression", &null}})
      names_.emplace(collected(schema_of(*rule), "").at("shared").get<std::string>(), name);
  }

  Json document(const Json& whole) {
    Json result = whole;
    result.erase("$defs");
    Json definitions = Json::object();
    const Json first = parts(result, "", &Sharing::collected);
    for (const auto& [name, schema] : whole.at("$defs").items()) {
      definitions[name] = parts(schema, name, &Sharing::collected);
      taken_.insert(name);
    }
    parts(first, "", &Sharing::counted);
    for (const Json& definition : definitions) parts(definition, "", &Sharing::counted);
    result = parts(first, "", &Sharing::resolved);
    for (Json& definition : definitions) definition = parts(definition, "", &Sharing::resolved);
    for (std::size_t done = 0; done < used_.size(); ++done) {
      const Shared& each = shared_.at(used_[done]);
      definitions[each.name] = parts(each.schema, "", &Sharing::resolved);
    }
    result["$defs"] = std::move(definitions);
    return result;
  }

 private:
  struct Shared {
    Json schema;
    std::string first_owner;  // the property it was met at first
    std::string name;         // once it is referred to
    int uses = 0;
  };
  using Visit = Json (Sharing::*)(const Json& schema, const std::string& owner);

  // `schema` with `visit` applied to the schemas right below it.
  Json parts(const Json& schema, const std::string& owner, Visit visit) {
    Json result = Json::object();
    for (const auto& [keyword, body] : schema.items()) {
      if (keyword == "properties") {
        result[keyword] = Json::object();
        for (const auto& [name, each] : body.items())
          result[keyword][name] = (this->*visit)(each, owner.empty() ? name : owner + "_" + name);
      } else if (keyword == "anyOf") {
        result[keyword] = Json::array();
        for (const Json& each : body) result[keyword].push_back((this->*visit)(each, owner));
      } else if ((keyword == "items" || keyword == "additionalProperties") && body.is_object()) {
        result[keyword] = (this->*visit)(body, owner);
      } else {
        result[keyword] = body;
      }
    }
    return result;
  }

  // What a schema says apart from its annotations is kept apart, and a mark left in its place.
  Json collected(const Json& schema, const std::string& owner) {
    Json rule = parts(schema, owner, &Sharing::collected), result = Json::object();
    if (rule.contains("$ref")) return rule;
    for (const char* annotation : {"description", "default"}) {
      if (!rule.contains(annotation)) continue;
      result[annotation] = rule[annotation];
      rule.erase(annotation);
    }
    const std::string key = rule.dump();
    Shared& shared = shared_.try_emplace(key, Shared{rule, owner, "", 0}).first->second;
    if (shared.first_owner.empty()) shared.first_owner = owner;
    Json marked = {{"shared", key}};
    marked.update(result);
    return marked;
  }

  // What stands in a shared schema is used once, however often that one is.
  Json counted(const Json& marked, const std::string&) {
    if (!marked.contains("shared")) return marked;
    Shared& shared = shared_.at(marked.at("shared").get<std::string>());
    if (++shared.uses == 1) parts(shared.schema, "", &Sharing::counted);
    return marked;
  }

  Json resolved(const Json& marked, const std::string&) {
    if (!marked.contains("shared")) return marked;
    const std::string key = marked.at("shared");
    Shared& shared = shared_.at(key);
    constexpr std::size_t short_enough = 40;  // characters: a reference would not be shorter
    Json result = shared.uses == 1 || key.size() <= short_enough
                      ? parts(shared.schema, "", &Sharing::resolved)
                      : reference(name_of(key, shared));
    for (const auto& [annotation, text] : marked.items())
      if (annotation != "shared") result[annotation] = text;
    return result;
  }

  const std::string& name_of(const std::string& key, Shared& shared) {
    if (!shared.name.empty()) return shared.name;
    const auto known = names_.find(key);
    const std::string base = known == names_.end() ? shared.first_owner : known->second;
    shared.name = base;
    for (int i = 2; !taken_.insert(shared.name).second; ++i) shared.name = base + "_" + std::to_string(i);
    used_.push_back(key);
    return shared.name;
  }

  std::map<std::string, std::string> names_;  // of rules, by what they say
  std::map<std::string, Shared> shared_;      // by what they say
  std::vector<std::string> used_;             // of these, in the order of their first reference
  std::set<std::string> taken_;
};

Json document(const char* title, const Fields& fields, Json definitions) {
  Json schema = {{"$schema", "https://json-schema.org/draft/2020-12/schema"}, {"title", title}};
  Json object = object_of(fields);
  schema.update(object);
  schema["$defs"] = {{"condition",
                      {{"type", Json::array({"string", "boolean"})},
                       {"description", "an expression without ${}; drops the map when false"}}},
                     {"module", module_schema()},
                     {"graph_op", graph_op_schema()}};
  schema["$defs"].update(definitions);
  return Sharing().document(schema);
}

constexpr std::size_t max_width = 140;

std::string on_one_line(const Json& value) {
  if (!value.is_structured()) return value.dump();
  std::string text;
  for (auto each = value.begin(); each != value.end(); ++each)
    text += (text.empty() ? "" : ", ") + (value.is_object() ? Json(each.key()).dump() + ": " : "") +
            on_one_line(*each);
  return value.is_object() ? "{" + text + "}" : "[" + text + "]";
}

// What fits stands on one line, and short keywords share one; the names of properties and definitions do not.
std::string written(const Json& value, std::size_t indent, std::size_t before, bool named) {
  std::string line = on_one_line(value);
  if (!value.is_structured() || before + line.size() <= max_width) return line;
  const std::string margin = "\n" + std::string(indent + 1, ' ');
  std::string text = value.is_object() ? "{" : "[";
  std::size_t column = max_width;  // nothing goes behind the bracket
  for (auto each = value.begin(); each != value.end(); ++each) {
    const std::string key = value.is_object() ? each.key() : "";
    const std::string head = value.is_object() ? Json(key).dump() + ": " : "";
    const std::string item =
        head + written(*each, indent + 1, indent + 1 + head.size(), key == "properties" || key == "$defs");
    const bool behind =
        !named && item.find('\n') == std::string::npos && column + item.size() + 2 < max_width;
    text += behind ? " " + item : margin + item;
    column = item.find('\n') != std::string::npos ? max_width : item.size() + 2 + (behind ? column : indent);
    if (std::next(each) != value.end()) text += ",";
  }
  return text + "\n" + std::string(indent, ' ') + (value.is_object() ? "}" : "]");
}

}  // namespace

Json scenario_schema() {
  return document("A scenario of fsdp-cts: one upstream test method as data", scenario_fields(),
                  {{"auto_wrap", object_of(auto_wrap_fields(), Place::element)},
                   {"plan", plan_schema()},
                   {"step", step_schema()},
                   {"expectation", expectation_schema()}});
}

Json model_schema() {
  return document("A model file of fsdp-cts: one module, with parameters", model_file_fields(),
                  Json::object());
}

std::string schema_text(const Json& schema) {
  return written(schema, 0, 0, false) + "\n";
}

}  // namespace fsdp_cts
