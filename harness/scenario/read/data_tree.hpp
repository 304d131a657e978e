// A YAML file as plain data in which every value remembers its line. Scenario files are read, patched,
// evaluated and checked in this form, so that every mistake has an address.
#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp_cts {

struct SourcePlace {
  std::shared_ptr<const std::string> file;  // as it shall stand in messages
  int line = 0;
  std::string text() const { return (file ? *file : "") + ":" + std::to_string(line); }
};

struct DataTree {
  // `unknown`: its mistake is already reported; nothing more is said about it.
  enum class Kind { scalar, list, map, unknown };
  struct Entry;

  Kind kind = Kind::scalar;
  nlohmann::ordered_json scalar;  // null, boolean, integer, float or string
  std::vector<DataTree> items;    // of a list
  std::vector<Entry> entries;     // of a map, in file order
  SourcePlace place;

  bool is_scalar() const { return kind == Kind::scalar || kind == Kind::unknown; }
  bool is_unknown() const { return kind == Kind::unknown; }
  bool is_map() const { return kind == Kind::map; }
  bool is_list() const { return kind == Kind::list; }
  bool is_string() const { return kind == Kind::scalar && scalar.is_string(); }
  bool is_null() const { return kind == Kind::scalar && scalar.is_null(); }

  const DataTree* find(std::string_view key) const;  // null when absent or not a map
  DataTree* find(std::string_view key);
  void set(const std::string& key, DataTree value);  // replaces in place or appends
  void erase(std::string_view key);
  std::string text_at(std::string_view key) const;  // "" when absent or not a string
  void one_becomes_list();                          // a scalar where a list is meant

  nlohmann::ordered_json json() const;  // without lines
  std::string shown() const;            // short, for messages: what was found
};

struct DataTree::Entry {
  std::string key;
  int line = 0;  // of the key; a value below it has a later one
  DataTree value;
};

// Whether the text holds a ${…} (LANGUAGE.md §2).
bool has_expression(std::string_view text);

// A value made by the harness itself: list, map or scalar, all at one place.
DataTree tree_of(const nlohmann::ordered_json& value, const SourcePlace& place);

// JSON merge patch, RFC 7396: null removes, maps merge, everything else replaces. Order is kept, new keys
// come last.
void merge_patch(DataTree& target, const DataTree& patch);

}  // namespace fsdp_cts
