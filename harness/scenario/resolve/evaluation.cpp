#include "harness/scenario/resolve/evaluation.hpp"

#include <algorithm>

namespace fsdp_cts {
namespace {

DataTree unknown_at(const SourcePlace& place) {
  DataTree tree;
  tree.kind = DataTree::Kind::unknown;
  tree.place = place;
  return tree;
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

bool is_constant(const DataTree& tree) {
  if (tree.is_string()) return !has_expression(tree.scalar.get_ref<const std::string&>());
  const auto always_there = [](const DataTree& item) { return !item.find("when") && is_constant(item); };
  return std::all_of(tree.items.begin(), tree.items.end(), always_there) &&
         std::all_of(tree.entries.begin(), tree.entries.end(), [](const DataTree::Entry& entry) {
           return entry.key == "when" || is_constant(entry.value);
         });
}

nlohmann::ordered_json Constants::of(const DataTree& written, Mistakes& mistakes,
                                     const std::function<nlohmann::ordered_json()>& make) {
  const auto [kept, fresh] = kept_.try_emplace(&written);
  if (!kept->second.is_null()) return kept->second;
  const std::size_t noted = mistakes.noted();
  nlohmann::ordered_json made = make();
  if (fresh && mistakes.noted() == noted && is_constant(written)) kept->second = made;
  return made;
}

}  // namespace fsdp_cts
