// What a piece of a data file may look like. One set of tables serves the loader's checks, the defaults and
// the published JSON Schemas, so that they cannot drift apart.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "harness/scenario/read/mistakes.hpp"

namespace fsdp_cts {

namespace types {
constexpr unsigned null = 1, boolean = 2, integer = 4, number = 8, string = 16, list = 32,
                   map = 64;  // number: integers too
constexpr unsigned scalar = null | boolean | number | string;
}  // namespace types

struct Field;
using Fields = std::vector<Field>;

struct Rule {
  unsigned types = 0;
  std::vector<std::string> words = {};        // allowed strings; empty: any
  std::vector<std::string> prefixes = {};     // strings beginning like this are allowed beside `words`
  const Fields* fields = nullptr;             // a map with just these keys
  const Rule* each = nullptr;                 // of list elements, and of the values of a map with free keys
  std::optional<std::int64_t> at_least = {};  // of numbers
  std::size_t length = 0;                     // of a list, when fixed
  bool is_pattern = false;                    // a string that is a regular expression
  const char* schema_ref = nullptr;  // stands for a rule checked elsewhere, by its name in the JSON Schema
};

struct Field {
  std::string name;
  Rule rule;
  bool required = false;
  nlohmann::ordered_json fallback = {};  // null: no default, the key stays absent
  const char* about = "";
};

const Field* find_field(const Fields& fields, std::string_view name);
std::vector<std::string> names_of(const Fields& fields);

// Before evaluation a string with ${…} may stand for anything, and list elements may carry `when`.
enum class Stage { written, evaluated };

// Notes every deviation of `tree` from `rule`. `what` names it in messages: "plans.model.units".
void check(const DataTree& tree, const Rule& rule, const std::string& what, Stage stage, Mistakes& mistakes);
// The same for a map whose keys are `fields` and `others`; the latter are left to the caller. Before
// evaluation `when` may stand in any map.
void check_fields(const DataTree& map, const Fields& fields, const std::string& what, Stage stage,
                  Mistakes& mistakes, std::initializer_list<std::string_view> others = {});

// Adds defaults for absent keys, in the order of the table.
void fill_defaults(DataTree& map, const Fields& fields);

// Rules that many tables use.
namespace rules {
extern const Rule text, name, pattern, boolean, number, integer, natural, positive, dtype, dtype_or_null,
    float_dtype_or_null;
extern const Rule names, naturals, anything, condition;
}  // namespace rules

}  // namespace fsdp_cts
