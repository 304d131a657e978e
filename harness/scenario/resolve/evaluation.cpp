#include "harness/scenario/resolve/evaluation.hpp"

namespace fsdp_cts {
namespace {

DataTree unknown_at(const SourcePlace& place) {
  DataTree tree;
  tree.kind = DataTree::Kind::unknown;
  tree.place = place;
  return tree;
}

// The names that `evaluated` reads. The tree's own `when` is not counted: that is its list's.
void add_names(const DataTree& tree, std::set<std::string>& names) {
  try {
    if (tree.is_string()) names.merge(names_in_text(tree.scalar.get_ref<const std::string&>()));
    for (const DataTree& item : tree.items)
      if (const DataTree* when = item.find("when"); when && when->is_string())
        names.merge(names_in_expression(when->scalar.get_ref<const std::string&>()));
  } catch (const ExpressionError&) {  // whoever evaluates it notes a mistake
  }
  for (const DataTree& item : tree.items) add_names(item, names);
  for (const DataTree::Entry& entry : tree.entries)
    if (entry.key != "when") add_names(entry.value, names);
}

// Different wherever one of these names has another value, or none.
std::string values_of(const std::set<std::string>& names, const Scope& scope) {
  std::string values;
  for (const std::string& name : names)
    if (const auto found = scope.find(name); found != scope.end())
      values += name + "=" + found->second.dump() + "\n";
  return values;
}

}  // namespace

bool holds(const DataTree* when, const Scope& scope, Mistakes& mistakes) {
  if (!when || when->is_unknown()) return true;
  if (when->is_scalar() && when->scalar.is_boolean()) return when->scalar.get<bool>();
  try {
    if (!when->is_string()) throw ExpressionError("'when' needs an expression, found " + when->shown());
    const std::string& text = when->scalar.get_ref<const std::string&>();
    if (has_expression(text)) throw ExpressionError("'when' is an expression already and takes no ${}");
    const auto value = evaluate_expression(text, scope);
    if (!value.is_boolean())
      throw ExpressionError("'when' must be true or false, '" + text + "' is " + value.dump());
    return value.get<bool>();
  } catch (const ExpressionError& error) {
    mistakes.add(when->place, error.what());
    return true;
  }
}

DataTree evaluated(const DataTree& tree, const Scope& scope, Mistakes& mistakes) {
  DataTree result;
  result.kind = tree.kind;
  result.place = tree.place;
  if (tree.is_string() && has_expression(tree.scalar.get_ref<const std::string&>())) {
    try {
      return tree_of(interpolate(tree.scalar.get_ref<const std::string&>(), scope), tree.place);
    } catch (const ExpressionError& error) {
      mistakes.add(tree.place, error.what());
      return unknown_at(tree.place);
    }
  }
  result.scalar = tree.scalar;
  for (const DataTree& item : tree.items) {
    const DataTree* when = item.find("when");
    if (!holds(when, scope, mistakes)) continue;
    result.items.push_back(evaluated(item, scope, mistakes));
    if (when) result.items.back().erase("when");
  }
  result.entries.reserve(tree.entries.size());
  for (const DataTree::Entry& entry : tree.entries) {
    // The condition was evaluated with the list that holds this map.
    if (entry.key == "when")
      result.entries.push_back(entry);
    else
      result.entries.push_back({entry.key, entry.line, evaluated(entry.value, scope, mistakes)});
  }
  return result;
}

const nlohmann::ordered_json& MadeParts::of(const DataTree& written, const Scope& scope, Mistakes& mistakes,
                                            const std::function<nlohmann::ordered_json()>& make) {
  const auto [found, fresh] = parts_.try_emplace(&written);
  Part& part = found->second;
  if (fresh) add_names(written, part.names);
  std::string values = values_of(part.names, scope);
  if (const auto kept = part.made.find(values); kept != part.made.end()) return kept->second;
  const std::size_t noted = mistakes.noted();
  nlohmann::ordered_json made = make();
  if (mistakes.noted() == noted) return part.made.emplace(std::move(values), std::move(made)).first->second;
  return with_mistakes_ = std::move(made);
}

}  // namespace fsdp_cts
