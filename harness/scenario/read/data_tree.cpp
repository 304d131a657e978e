#include "harness/scenario/read/data_tree.hpp"

#include <algorithm>

namespace fsdp_cts {

const DataTree* DataTree::find(std::string_view key) const {
  const auto found =
      std::find_if(entries.begin(), entries.end(), [&](const Entry& entry) { return entry.key == key; });
  return found == entries.end() ? nullptr : &found->value;
}

DataTree* DataTree::find(std::string_view key) {
  return const_cast<DataTree*>(static_cast<const DataTree*>(this)->find(key));
}

void DataTree::set(const std::string& key, DataTree value) {
  if (DataTree* present = find(key))
    *present = std::move(value);
  else
    entries.push_back({key, value.place.line, std::move(value)});
}

void DataTree::erase(std::string_view key) {
  entries.erase(
      std::remove_if(entries.begin(), entries.end(), [&](const Entry& entry) { return entry.key == key; }),
      entries.end());
}

std::string DataTree::text_at(std::string_view key) const {
  const DataTree* value = find(key);
  return value && value->is_string() ? value->scalar.get<std::string>() : "";
}

void DataTree::one_becomes_list() {
  if (kind != Kind::scalar) return;
  DataTree list;
  list.kind = Kind::list;
  list.place = place;
  list.items.push_back(std::move(*this));
  *this = std::move(list);
}

nlohmann::ordered_json DataTree::json() const {
  if (is_scalar()) return scalar;
  nlohmann::ordered_json result =
      is_list() ? nlohmann::ordered_json::array() : nlohmann::ordered_json::object();
  for (const DataTree& item : items) result.push_back(item.json());
  // Keys are unique already; operator[] would search for each.
  if (is_map()) {
    auto& object = result.get_ref<nlohmann::ordered_json::object_t&>();
    object.reserve(entries.size());
    for (const Entry& entry : entries) object.emplace_back(entry.key, entry.value.json());
  }
  return result;
}

std::string DataTree::shown() const {
  if (is_list()) return "a list";
  if (is_map()) return entries.empty() ? "an empty map" : "a map with '" + entries.front().key + "'";
  if (!scalar.is_string()) return scalar.dump();
  const auto& text = scalar.get_ref<const std::string&>();
  return "'" + (text.size() > 60 ? text.substr(0, 57) + "..." : text) + "'";
}

bool has_expression(std::string_view text) {
  return text.find("${") != std::string_view::npos;
}

DataTree tree_of(const nlohmann::ordered_json& value, const SourcePlace& place) {
  DataTree tree;
  tree.place = place;
  if (value.is_array()) {
    tree.kind = DataTree::Kind::list;
    for (const auto& item : value) tree.items.push_back(tree_of(item, place));
  } else if (value.is_object()) {
    tree.kind = DataTree::Kind::map;
    for (const auto& [key, item] : value.items())
      tree.entries.push_back({key, place.line, tree_of(item, place)});
  } else {
    tree.scalar = value;
  }
  return tree;
}

void merge_patch(DataTree& target, const DataTree& patch) {
  if (!patch.is_map()) {
    target = patch;
    return;
  }
  if (!target.is_map()) {
    target = DataTree{};
    target.kind = DataTree::Kind::map;
    target.place = patch.place;
  }
  for (const DataTree::Entry& entry : patch.entries) {
    if (entry.value.is_null()) {
      target.erase(entry.key);
      continue;
    }
    if (!target.find(entry.key)) {
      target.entries.push_back({entry.key, entry.line, {}});
      target.entries.back().value.place = entry.value.place;
    }
    merge_patch(*target.find(entry.key), entry.value);
  }
}

}  // namespace fsdp_cts
