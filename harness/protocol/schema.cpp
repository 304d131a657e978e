#include "harness/protocol/schema.hpp"

#include <algorithm>
#include <set>
#include <stdexcept>

#include "harness/protocol/utf8.hpp"

namespace fsdp_cts {
namespace {

using Json = Schema::Json;
using Violation = std::optional<SchemaViolation>;

const std::set<std::string> annotations = {"$schema", "title", "description", "default"};
const std::set<std::string> literals = {"type",     "const",    "enum",     "minimum",
                                        "required", "minItems", "maxItems", "maxLength"};

std::string shown(const Json& value) {
  const std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  return shortened(text, 80);
}

bool has_type(const Json& value, const std::string& type) {
  if (type == "integer") return value.is_number_integer();
  if (type == "number") return value.is_number();
  return type == value.type_name();
}

bool has_type(const Json& value, const Json& types) {
  if (types.is_string()) return has_type(value, types.get_ref<const std::string&>());
  return std::any_of(types.begin(), types.end(),
                     [&](const Json& type) { return has_type(value, type.get_ref<const std::string&>()); });
}

Violation found(const Json& value, const std::string& where, const std::string& expected) {
  return SchemaViolation{where, shown(value), expected};
}

// Where a member lies, as RFC 6901 writes it.
std::string below(const std::string& where, std::string key) {
  for (std::size_t i = 0; i < key.size(); ++i) {
    if (key[i] == '~') key.replace(i, 1, "~0");
    if (key[i] == '/') key.replace(i, 1, "~1");
  }
  return where + "/" + key;
}

std::string joined(const Json& values) {
  std::string text;
  for (const Json& value : values) text += (text.empty() ? "" : ", ") + shown(value);
  return text;
}

std::size_t characters(const std::string& utf8) {
  return static_cast<std::size_t>(
      std::count_if(utf8.begin(), utf8.end(), [](unsigned char byte) { return (byte & 0xc0) != 0x80; }));
}

Violation visit_value(const Json& schema, const Json& value, const std::string& where) {
  if (const auto type = schema.find("type"); type != schema.end() && !has_type(value, *type)) {
    return found(value, where,
                 type->is_string() ? type->get<std::string>() : "one of the types " + joined(*type));
  }
  if (const auto constant = schema.find("const"); constant != schema.end() && value != *constant) {
    return found(value, where, shown(*constant));
  }
  if (const auto allowed = schema.find("enum");
      allowed != schema.end() && std::find(allowed->begin(), allowed->end(), value) == allowed->end()) {
    return found(value, where, "one of " + joined(*allowed));
  }
  if (const auto minimum = schema.find("minimum");
      minimum != schema.end() && value.is_number() && value < *minimum) {
    return found(value, where, "at least " + shown(*minimum));
  }
  if (const auto limit = schema.find("maxLength"); limit != schema.end() && value.is_string()) {
    const std::size_t length = characters(value.get_ref<const std::string&>());
    if (length > limit->get<std::size_t>())
      return SchemaViolation{where, std::to_string(length) + " characters beginning with " + shown(value),
                             "at most " + shown(*limit) + " characters"};
  }
  return std::nullopt;
}

std::size_t depth(const SchemaViolation& violation) {
  return static_cast<std::size_t>(std::count(violation.where.begin(), violation.where.end(), '/'));
}

}  // namespace

std::string SchemaViolation::sentence() const {
  return (where.empty() ? "" : "at " + where + ": ") + "found " + found + ", expected " + expected;
}

Schema::Schema(Json document) : document_(std::move(document)) {
  load(document_, "#");
}

void Schema::load(const Json& schema, const std::string& where) {
  for (const auto& [keyword, body] : schema.items()) {
    const std::string here = where + "/" + keyword;
    if (keyword == "$defs" || keyword == "properties") {
      for (const auto& [name, each] : body.items()) load(each, here + "/" + name);
    } else if (keyword == "oneOf" || keyword == "anyOf" || keyword == "prefixItems") {
      for (const Json& each : body) load(each, here);
    } else if (keyword == "items" || keyword == "additionalProperties") {
      if (!body.is_boolean()) load(body, here);
    } else if (keyword == "$ref") {
      definition(body.get<std::string>());
    } else if (keyword == "pattern") {
      const auto text = body.get<std::string>();
      patterns_.emplace(text, Pattern(text));
    } else if (!annotations.contains(keyword) && !literals.contains(keyword)) {
      throw std::invalid_argument(
          here + ": this keyword of JSON Schema is not evaluated here; a schema must not rely on it");
    }
  }
}

const Json& Schema::definition(const std::string& reference) const {
  static const std::string prefix = "#/$defs/";
  const Json& definitions = document_.at("$defs");
  const auto found_at =
      reference.starts_with(prefix) ? definitions.find(reference.substr(prefix.size())) : definitions.end();
  if (found_at == definitions.end())
    throw std::invalid_argument("no definition " + reference + " in the schema");
  return *found_at;
}

Violation Schema::check(const Json& value, const std::string& name) const {
  return visit(definition("#/$defs/" + name), value, "");
}

Violation Schema::check(const Json& value) const {
  return visit(document_, value, "");
}

Violation Schema::visit(const Json& schema, const Json& value, const std::string& where) const {
  if (const auto reference = schema.find("$ref"); reference != schema.end()) {
    Violation violation = visit(definition(reference->get_ref<const std::string&>()), value, where);
    if (violation || schema.size() == 1) return violation;
  }
  if (Violation violation = visit_value(schema, value, where)) return violation;
  if (const auto pattern = schema.find("pattern"); pattern != schema.end() && value.is_string()) {
    const auto& text = pattern->get_ref<const std::string&>();
    if (!patterns_.at(text).found_in(value.get_ref<const std::string&>())) {
      return found(value, where, "a string like " + text);
    }
  }
  if (value.is_object()) {
    if (Violation violation = visit_object(schema, value, where)) return violation;
  } else if (value.is_array()) {
    if (Violation violation = visit_array(schema, value, where)) return violation;
  }
  for (const char* keyword : {"anyOf", "oneOf"}) {
    const auto alternatives = schema.find(keyword);
    if (alternatives == schema.end()) continue;
    if (Violation violation = visit_alternatives(*alternatives, value, where, *keyword == 'o'))
      return violation;
  }
  return std::nullopt;
}

Violation Schema::visit_object(const Json& schema, const Json& value, const std::string& where) const {
  if (const auto required = schema.find("required"); required != schema.end()) {
    for (const Json& key : *required) {
      if (!value.contains(key.get_ref<const std::string&>())) {
        return SchemaViolation{where, "no key " + shown(key), "the keys " + joined(*required)};
      }
    }
  }
  const auto properties = schema.find("properties");
  const auto others = schema.find("additionalProperties");
  for (const auto& [key, member] : value.items()) {
    const Json* judge = nullptr;
    if (properties != schema.end() && properties->contains(key)) {
      judge = &properties->at(key);
    } else if (others != schema.end()) {
      judge = &*others;
    }
    if (judge == nullptr || *judge == true) continue;
    if (*judge == false) {
      Json known = Json::array();
      if (properties != schema.end())
        for (const auto& [name, each] : properties->items()) known.push_back(name);
      return SchemaViolation{where, "the key " + shown(key), "one of " + joined(known)};
    }
    if (Violation violation = visit(*judge, member, below(where, key))) return violation;
  }
  return std::nullopt;
}

Violation Schema::visit_array(const Json& schema, const Json& value, const std::string& where) const {
  const std::size_t min_items = schema.value("minItems", std::size_t{0});
  const std::size_t max_items = schema.value("maxItems", value.size());
  if (value.size() < min_items || value.size() > max_items) {
    return SchemaViolation{where, std::to_string(value.size()) + " elements",
                           std::to_string(min_items) + " to " + std::to_string(max_items)};
  }
  const auto tuple = schema.find("prefixItems");
  const auto items = schema.find("items");
  for (std::size_t i = 0; i < value.size(); ++i) {
    const Json* judge = nullptr;
    if (tuple != schema.end() && i < tuple->size()) {
      judge = &(*tuple)[i];
    } else if (items != schema.end()) {
      judge = &*items;
    }
    if (judge == nullptr) continue;
    if (Violation violation = visit(*judge, value[i], where + "/" + std::to_string(i))) return violation;
  }
  return std::nullopt;
}

Violation Schema::visit_alternatives(const Json& alternatives, const Json& value, const std::string& where,
                                     bool just_one) const {
  Violation furthest;
  int fitting = 0;
  for (const Json& alternative : alternatives) {
    const Violation violation = visit(alternative, value, where);
    if (!violation) {
      if (!just_one) return std::nullopt;
      if (++fitting > 1) return found(value, where, "what fits one of the alternatives; it fits several");
      continue;
    }
    if (!furthest || depth(*violation) > depth(*furthest)) {
      furthest = violation;
    } else if (violation->where == furthest->where) {
      furthest->expected += " or " + violation->expected;  // the message lists all that would have done
    }
  }
  return fitting > 0 ? std::nullopt : furthest;
}

}  // namespace fsdp_cts
