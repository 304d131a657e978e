// Checks a JSON value against a JSON Schema (draft 2020-12), as far as our own schema files use it: $ref into
// $defs, anyOf, oneOf, type, const, enum, minimum, maxLength, pattern (by RE2), required, properties,
// additionalProperties, items, prefixItems, minItems, maxItems. A schema with any other keyword is refused
// when it is loaded: nothing may look checked that is not. Why no library does this:
// docs/notes-schema-engine.md.
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace fsdp_cts {

struct SchemaViolation {
  std::string where;  // JSON pointer into the value, "" for the whole
  std::string found;
  std::string expected;

  std::string sentence() const;
};

class Schema {
 public:
  using Json = nlohmann::ordered_json;

  // Throws std::invalid_argument for an unknown keyword, a $ref to nowhere or a bad pattern.
  explicit Schema(const Json& document);

  // Judges `value` by the definition `$defs/<name>`, or by the whole document. Gives the first violation;
  // among alternatives that of the one that went furthest.
  std::optional<SchemaViolation> check(const Json& value, const std::string& name) const;
  std::optional<SchemaViolation> check(const Json& value) const;

 private:
  struct Node;
  class Reader;
  class Visit;

  std::map<std::string, std::shared_ptr<Node>> definitions_;
  std::shared_ptr<const Node> whole_;
};

}  // namespace fsdp_cts
