#include "harness/scenario/read/grammar.hpp"

#include <algorithm>

#include "harness/protocol/pattern.hpp"

namespace fsdp_cts {

namespace rules {
const Rule text{types::string};
const Rule name{types::string};
const Rule pattern{.types = types::string, .is_pattern = true};
const Rule boolean{types::boolean};
const Rule number{types::number};
const Rule integer{types::integer};
const Rule natural{.types = types::integer, .at_least = 0};
const Rule positive{.types = types::integer, .at_least = 1};
const Rule dtype{.types = types::string,
                 .words = {"float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8",
                           "uint8", "bool"}};
const Rule dtype_or_null{.types = types::string | types::null, .words = dtype.words};
const Rule float_dtype_or_null{.types = types::string | types::null,
                               .words = {"float64", "float32", "float16", "bfloat16"}};
const Rule names{.types = types::list, .each = &name};
const Rule naturals{.types = types::list, .each = &natural};
const Rule anything{types::scalar | types::list | types::map};
const Rule condition{types::string | types::boolean};
}  // namespace rules

namespace {

unsigned type_of(const DataTree& tree) {
  if (tree.is_list()) return types::list;
  if (tree.is_map()) return types::map;
  if (tree.scalar.is_null()) return types::null;
  if (tree.scalar.is_boolean()) return types::boolean;
  if (tree.scalar.is_number_integer()) return types::integer | types::number;
  if (tree.scalar.is_number()) return types::number;
  return types::string;
}

std::string type_names(unsigned allowed) {
  static const std::pair<unsigned, const char*> names[] = {
      {types::null, "null"},       {types::boolean, "true or false"}, {types::integer, "a whole number"},
      {types::number, "a number"}, {types::string, "text"},           {types::list, "a list"},
      {types::map, "a map"}};
  std::string text;
  for (const auto& [bit, name] : names)
    if (allowed & bit) text += (text.empty() ? "" : " or ") + std::string(name);
  return text;
}

void check_text(const DataTree& tree, const Rule& rule, const std::string& what, Mistakes& mistakes) {
  const std::string& text = tree.scalar.get_ref<const std::string&>();
  if (rule.is_pattern) try {
      Pattern compiled(text);
    } catch (const std::invalid_argument& error) {
      mistakes.add(tree.place,
                   what + " is not a regular expression: " + error.what() + " in " + tree.shown());
    }
  if (rule.words.empty() && rule.prefixes.empty()) return;
  if (std::find(rule.words.begin(), rule.words.end(), text) != rule.words.end()) return;
  for (const std::string& prefix : rule.prefixes)
    if (text.size() > prefix.size() && text.starts_with(prefix)) return;
  std::vector<std::string> allowed = rule.words;
  for (const std::string& prefix : rule.prefixes) allowed.push_back(prefix + "NAME");
  mistakes.add(tree.place, unknown_name("value for " + what, text, allowed));
}

}  // namespace

const Field* find_field(const Fields& fields, std::string_view name) {
  const auto found =
      std::find_if(fields.begin(), fields.end(), [&](const Field& field) { return field.name == name; });
  return found == fields.end() ? nullptr : &*found;
}

std::vector<std::string> names_of(const Fields& fields) {
  std::vector<std::string> names;
  for (const Field& field : fields) names.push_back(field.name);
  return names;
}

void check_fields(const DataTree& map, const Fields& fields, const std::string& what, Stage stage,
                  Mistakes& mistakes, std::initializer_list<std::string_view> others) {
  for (const DataTree::Entry& entry : map.entries) {
    if (const Field* field = find_field(fields, entry.key)) {
      check(entry.value, field->rule, what.empty() ? entry.key : what + "." + entry.key, stage, mistakes);
    } else if (std::find(others.begin(), others.end(), entry.key) == others.end() &&
               !(stage == Stage::written && entry.key == "when")) {
      std::vector<std::string> allowed = names_of(fields);
      allowed.insert(allowed.end(), others.begin(), others.end());
      mistakes.add({map.place.file, entry.line},
                   unknown_name(what.empty() ? "key" : "key in " + what, entry.key, allowed));
    }
  }
  for (const Field& field : fields)
    if (field.required && !map.find(field.name))
      mistakes.add(map.place, (what.empty() ? "the file" : what) + " lacks the key '" + field.name + "'" +
                                  (*field.about ? std::string(" (") + field.about + ")" : ""));
}

void check(const DataTree& tree, const Rule& rule, const std::string& what, Stage stage, Mistakes& mistakes) {
  if (tree.is_unknown() || rule.schema_ref) return;
  if (stage == Stage::written && tree.is_string() &&
      has_expression(tree.scalar.get_ref<const std::string&>()))
    return;
  if (!(type_of(tree) & rule.types)) {
    std::string hint;
    if ((rule.types & types::string) && tree.is_scalar() && !tree.is_null())
      hint = "; quote it to make it text";
    return mistakes.add(tree.place,
                        what + " must be " + type_names(rule.types) + ", found " + tree.shown() + hint);
  }
  if (tree.is_string()) return check_text(tree, rule, what, mistakes);
  if (tree.is_scalar()) {
    if (rule.at_least && tree.scalar.is_number() &&
        tree.scalar.get<double>() < static_cast<double>(*rule.at_least))
      mistakes.add(tree.place,
                   what + " must be at least " + std::to_string(*rule.at_least) + ", found " + tree.shown());
    return;
  }
  if (rule.length && tree.is_list() && tree.items.size() != rule.length)
    mistakes.add(tree.place, what + " must have " + std::to_string(rule.length) + " elements, found " +
                                 std::to_string(tree.items.size()));
  if (tree.is_map() && rule.fields) {
    return check_fields(tree, *rule.fields, what, stage, mistakes);
  }
  if (!rule.each) return;
  for (std::size_t i = 0; i < tree.items.size(); ++i)
    check(tree.items[i], *rule.each, what + "[" + std::to_string(i) + "]", stage, mistakes);
  for (const DataTree::Entry& entry : tree.entries)
    check(entry.value, *rule.each, what + "." + entry.key, stage, mistakes);
}

void fill_defaults(DataTree& map, const Fields& fields) {
  for (const Field& field : fields)
    if (!field.fallback.is_null() && !map.find(field.name))
      map.set(field.name, tree_of(field.fallback, map.place));
}

}  // namespace fsdp_cts
