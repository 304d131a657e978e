#include "harness/protocol/schema.hpp"

#include <algorithm>
#include <limits>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

#include "harness/protocol/pattern.hpp"
#include "harness/protocol/utf8.hpp"

namespace fsdp_cts {
namespace {

using Json = Schema::Json;

const std::set<std::string> annotations = {"$schema", "title", "description", "default"};

std::string shown(const Json& value) {
  const std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  return shortened(text, 80);
}

std::string joined(const Json& values) {
  std::string text;
  for (const Json& value : values) text += (text.empty() ? "" : ", ") + shown(value);
  return text;
}

bool has_type(const Json& value, const std::string& type) {
  if (type == "integer") return value.is_number_integer();
  if (type == "number") return value.is_number();
  return type == value.type_name();
}

std::size_t characters(const std::string& utf8) {
  return static_cast<std::size_t>(
      std::count_if(utf8.begin(), utf8.end(), [](unsigned char byte) { return (byte & 0xc0) != 0x80; }));
}

std::size_t depth(const SchemaViolation& violation) {
  return static_cast<std::size_t>(std::count(violation.where.begin(), violation.where.end(), '/'));
}

// The way to a value, written out only for one that does not fit.
struct Place {
  const Place* above = nullptr;
  const std::string* key = nullptr;  // of an object; of a list the index
  std::size_t index = 0;

  // As RFC 6901 writes it.
  std::string pointer() const {
    if (above == nullptr) return "";
    std::string token = key != nullptr ? *key : std::to_string(index);
    for (std::size_t i = 0; i < token.size(); ++i) {
      if (token[i] == '~') token.replace(i, 1, "~0");
      if (token[i] == '/') token.replace(i, 1, "~1");
    }
    return above->pointer() + "/" + token;
  }
};

}  // namespace

std::string SchemaViolation::sentence() const {
  return (where.empty() ? "" : "at " + where + ": ") + "found " + found + ", expected " + expected;
}

// One schema object, read once: a message has thousands of values, and each is judged by one of these.
struct Schema::Node {
  static constexpr std::size_t unlimited = std::numeric_limits<std::size_t>::max();
  using List = std::vector<std::shared_ptr<const Node>>;

  bool forbids = false;             // `false`, where a schema may stand
  const Node* reference = nullptr;  // into the definitions, which outlive it
  std::vector<std::string> types;
  std::optional<Json> constant;
  std::optional<Json> allowed;  // a list
  std::optional<Json> minimum;
  std::size_t max_length = unlimited;
  std::string pattern_text;
  std::optional<Pattern> pattern;
  std::vector<std::string> required;
  std::map<std::string, std::shared_ptr<const Node>> properties;
  std::vector<std::string> property_names;  // in the order of the file
  std::shared_ptr<const Node> other_properties;
  std::size_t min_items = 0, max_items = unlimited;
  List tuple;
  std::shared_ptr<const Node> items;
  List any_of, one_of;
};

class Schema::Reader {
 public:
  explicit Reader(Schema& schema) : schema_(schema) {}

  std::shared_ptr<const Node> read_document(Json document) {
    if (const auto definitions = document.find("$defs"); definitions != document.end()) {
      // Empty first: a definition may name a later one, or itself.
      for (const auto& [name, each] : definitions->items())
        schema_.definitions_[name] = std::make_shared<Node>();
      for (const auto& [name, each] : definitions->items())
        *schema_.definitions_[name] = read(each, "#/$defs/" + name);
      document.erase(definitions);
    }
    return made(document, "#");
  }

 private:
  std::shared_ptr<const Node> made(const Json& text, const std::string& where) {
    return std::make_shared<const Node>(read(text, where));
  }

  Node read(const Json& text, const std::string& where) {
    Node node;
    if (text.is_boolean()) {
      node.forbids = !text.get<bool>();
      return node;
    }
    for (const auto& [keyword, body] : text.items()) {
      if (!annotations.contains(keyword)) add(node, keyword, body, where + "/" + keyword);
    }
    return node;
  }

  void add(Node& node, const std::string& keyword, const Json& body, const std::string& here) {
    if (keyword == "$ref") {
      node.reference = definition(body.get<std::string>());
    } else if (keyword == "type") {
      node.types =
          body.is_string() ? std::vector{body.get<std::string>()} : body.get<std::vector<std::string>>();
    } else if (keyword == "const") {
      node.constant = body;
    } else if (keyword == "enum") {
      node.allowed = body;
    } else if (keyword == "minimum") {
      node.minimum = body;
    } else if (keyword == "maxLength") {
      node.max_length = body.get<std::size_t>();
    } else if (keyword == "pattern") {
      node.pattern_text = body.get<std::string>();
      node.pattern.emplace(node.pattern_text);
    } else if (keyword == "required") {
      node.required = body.get<std::vector<std::string>>();
    } else if (keyword == "properties") {
      for (const auto& [name, each] : body.items()) {
        node.properties[name] = made(each, here + "/" + name);
        node.property_names.push_back(name);
      }
    } else if (keyword == "additionalProperties") {
      node.other_properties = made(body, here);
    } else if (keyword == "minItems") {
      node.min_items = body.get<std::size_t>();
    } else if (keyword == "maxItems") {
      node.max_items = body.get<std::size_t>();
    } else if (keyword == "items") {
      node.items = made(body, here);
    } else if (keyword == "prefixItems") {
      for (const Json& each : body) node.tuple.push_back(made(each, here));
    } else if (keyword == "anyOf") {
      for (const Json& each : body) node.any_of.push_back(made(each, here));
    } else if (keyword == "oneOf") {
      for (const Json& each : body) node.one_of.push_back(made(each, here));
    } else {
      throw std::invalid_argument(
          here + ": this keyword of JSON Schema is not evaluated here; a schema must not rely on it");
    }
  }

  const Node* definition(const std::string& reference) const {
    static const std::string prefix = "#/$defs/";
    const auto found = reference.starts_with(prefix)
                           ? schema_.definitions_.find(reference.substr(prefix.size()))
                           : schema_.definitions_.end();
    if (found == schema_.definitions_.end())
      throw std::invalid_argument("no definition " + reference + " in the schema");
    return found->second.get();
  }

  Schema& schema_;
};

// Judges by one schema and what it consists of. Without a violation to fill it only says whether the value
// fits: of a dozen alternatives all but one do not, and nobody reads why.
class Schema::Visit {
 public:
  explicit Visit(std::optional<SchemaViolation>* violation) : violation_(violation) {}

  bool fits(const Node& node, const Json& value, const Place& where) const {
    if (node.reference != nullptr && !fits(*node.reference, value, where)) return false;
    if (!value_fits(node, value, where)) return false;
    if (value.is_object() && !object_fits(node, value.get_ref<const Json::object_t&>(), where)) return false;
    if (value.is_array() && !array_fits(node, value, where)) return false;
    return (node.any_of.empty() || alternatives_fit(node.any_of, value, where, false)) &&
           (node.one_of.empty() || alternatives_fit(node.one_of, value, where, true));
  }

 private:
  template <typename Found, typename Expected>
  bool refuse(const Place& where, const Found& found, const Expected& expected) const {
    if (violation_ != nullptr) *violation_ = SchemaViolation{where.pointer(), found(), expected()};
    return false;
  }

  bool value_fits(const Node& node, const Json& value, const Place& where) const {
    const auto found = [&] { return shown(value); };
    if (!node.types.empty() && std::none_of(node.types.begin(), node.types.end(),
                                            [&](const std::string& type) { return has_type(value, type); })) {
      return refuse(where, found, [&] {
        return node.types.size() == 1 ? node.types.front() : "one of the types " + joined(Json(node.types));
      });
    }
    if (node.constant && value != *node.constant)
      return refuse(where, found, [&] { return shown(*node.constant); });
    if (node.allowed && std::find(node.allowed->begin(), node.allowed->end(), value) == node.allowed->end())
      return refuse(where, found, [&] { return "one of " + joined(*node.allowed); });
    if (node.minimum && value.is_number() && value < *node.minimum)
      return refuse(where, found, [&] { return "at least " + shown(*node.minimum); });
    if (!value.is_string()) return true;
    const auto& text = value.get_ref<const std::string&>();
    // No text has more characters than bytes.
    if (text.size() > node.max_length && characters(text) > node.max_length) {
      return refuse(
          where,
          [&] { return std::to_string(characters(text)) + " characters beginning with " + shown(value); },
          [&] { return "at most " + std::to_string(node.max_length) + " characters"; });
    }
    if (node.pattern && !node.pattern->found_in(text))
      return refuse(where, found, [&] { return "a string like " + node.pattern_text; });
    return true;
  }

  bool object_fits(const Node& node, const Json::object_t& members, const Place& where) const {
    for (const std::string& key : node.required) {
      if (std::any_of(members.begin(), members.end(),
                      [&](const auto& member) { return member.first == key; }))
        continue;
      return refuse(
          where, [&] { return "no key " + shown(key); },
          [&] { return "the keys " + joined(Json(node.required)); });
    }
    if (node.properties.empty() && !node.other_properties) return true;
    for (const auto& [key, member] : members) {
      const auto named = node.properties.find(key);
      const Node* judge = named != node.properties.end() ? named->second.get() : node.other_properties.get();
      if (judge == nullptr) continue;
      if (judge->forbids) {
        return refuse(
            where, [&, name = &key] { return "the key " + shown(*name); },
            [&] { return "one of " + joined(Json(node.property_names)); });
      }
      if (!fits(*judge, member, Place{&where, &key})) return false;
    }
    return true;
  }

  bool array_fits(const Node& node, const Json& elements, const Place& where) const {
    if (elements.size() < node.min_items || elements.size() > node.max_items) {
      return refuse(
          where, [&] { return std::to_string(elements.size()) + " elements"; },
          [&] {
            return node.max_items == Node::unlimited
                       ? "at least " + std::to_string(node.min_items)
                       : std::to_string(node.min_items) + " to " + std::to_string(node.max_items);
          });
    }
    for (std::size_t i = 0; i < elements.size(); ++i) {
      const Node* judge = i < node.tuple.size() ? node.tuple[i].get() : node.items.get();
      if (judge != nullptr && !fits(*judge, elements[i], Place{&where, nullptr, i})) return false;
    }
    return true;
  }

  bool alternatives_fit(const Node::List& alternatives, const Json& value, const Place& where,
                        bool just_one) const {
    std::size_t fitting = 0;
    for (const auto& alternative : alternatives) {
      if (!Visit(nullptr).fits(*alternative, value, where)) continue;
      if (!just_one) return true;
      ++fitting;
    }
    if (fitting == 1) return true;
    if (fitting > 1) {
      return refuse(
          where, [&] { return shown(value); },
          [] { return "what fits one of the alternatives; it fits several"; });
    }
    if (violation_ != nullptr) *violation_ = furthest(alternatives, value, where);
    return false;
  }

  static std::optional<SchemaViolation> furthest(const Node::List& alternatives, const Json& value,
                                                 const Place& where) {
    std::optional<SchemaViolation> furthest;
    for (const auto& alternative : alternatives) {
      std::optional<SchemaViolation> violation;
      Visit(&violation).fits(*alternative, value, where);
      if (!furthest || depth(*violation) > depth(*furthest)) {
        furthest = violation;
      } else if (violation->where == furthest->where) {
        furthest->expected += " or " + violation->expected;  // the message lists all that would have done
      }
    }
    return furthest;
  }

  std::optional<SchemaViolation>* violation_;
};

Schema::Schema(const Json& document) : whole_(Reader(*this).read_document(document)) {}

std::optional<SchemaViolation> Schema::check(const Json& value, const std::string& name) const {
  const auto found = definitions_.find(name);
  if (found == definitions_.end())
    throw std::invalid_argument("no definition #/$defs/" + name + " in the schema");
  std::optional<SchemaViolation> violation;
  Visit(&violation).fits(*found->second, value, Place{});
  return violation;
}

std::optional<SchemaViolation> Schema::check(const Json& value) const {
  std::optional<SchemaViolation> violation;
  Visit(&violation).fits(*whole_, value, Place{});
  return violation;
}

}  // namespace fsdp_cts
