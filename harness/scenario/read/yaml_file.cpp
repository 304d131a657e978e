#include "harness/scenario/read/yaml_file.hpp"

#include <yaml-cpp/yaml.h>

#include <charconv>
#include <cmath>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>

#include "harness/protocol/utf8.hpp"

namespace fsdp_cts {
namespace {

constexpr int max_depth = 60;
// Aliases are copied out, so a small file could describe an endless tree.
constexpr std::size_t max_nodes = 200'000;

// Notes a whole number that has no exact value here: as a double it would silently become another one.
nlohmann::ordered_json typed(const std::string& text, const SourcePlace& place, Mistakes& mistakes) {
  if (text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL") return nullptr;
  if (text == "true" || text == "True" || text == "TRUE") return true;
  if (text == "false" || text == "False" || text == "FALSE") return false;
  const bool plus = text[0] == '+' && text.size() > 1 && text[1] != '-';
  const char* const begin = text.data() + (plus ? 1 : 0);
  const char* const end = text.data() + text.size();
  std::int64_t whole = 0;
  if (const auto [stop, error] = std::from_chars(begin, end, whole); stop == end) {
    if (error == std::errc::result_out_of_range)
      mistakes.add(place, "the whole number " + text +
                              " does not fit into 64 bits; write 1.0e20 for a number that need not be exact");
    return whole;
  }
  double real = 0;
  const auto [stop, error] = std::from_chars(begin, end, real);
  // from_chars takes "inf" and "nan" too; in YAML these are words, and no data file needs them as numbers.
  if (error == std::errc{} && stop == end && std::isfinite(real)) return real;
  return text;
}

class Converter {
 public:
  Converter(std::shared_ptr<const std::string> file, Mistakes& mistakes)
      : file_(std::move(file)), mistakes_(mistakes) {}

  DataTree convert(const YAML::Node& node, int depth) {
    DataTree tree;
    tree.place = {file_, node.Mark().line + 1};
    if (depth > max_depth || ++count_ > max_nodes) {
      if (count_ == max_nodes + 1 || depth > max_depth)
        mistakes_.add(tree.place, "the data is nested too deeply or too large");
      return tree;
    }
    if (node.IsSequence()) {
      tree.kind = DataTree::Kind::list;
      for (const YAML::Node& item : node) tree.items.push_back(convert(item, depth + 1));
    } else if (node.IsMap()) {
      tree.kind = DataTree::Kind::map;
      for (const auto& entry : node) add_entry(tree, entry.first, entry.second, depth);
    } else if (node.IsScalar()) {
      tree.scalar = node.Tag() == "!" ? nlohmann::ordered_json(node.Scalar())
                                      : typed(node.Scalar(), tree.place, mistakes_);
    }
    return tree;
  }

 private:
  void add_entry(DataTree& tree, const YAML::Node& key, const YAML::Node& value, int depth) {
    const SourcePlace place{file_, key.Mark().line + 1};
    if (!key.IsScalar()) return mistakes_.add(place, "a key must be text");
    if (tree.find(key.Scalar())) return mistakes_.add(place, "key '" + key.Scalar() + "' occurs twice");
    DataTree converted = convert(value, depth + 1);
    // An empty value has no place of its own; the parser gives it that of whatever follows.
    if (converted.is_null()) converted.place = place;
    tree.entries.push_back({key.Scalar(), place.line, std::move(converted)});
  }

  std::shared_ptr<const std::string> file_;
  Mistakes& mistakes_;
  std::size_t count_ = 0;
};

// What was parsed without a mistake, by name. To copy is much cheaper than to parse, and a program that
// selects cases again and again reads the same few files. Thread-safe.
class ParsedFiles {
 public:
  // Null where the file was not read yet or had another text.
  std::shared_ptr<const DataTree> tree_of(const std::string& name, const std::string& text) const {
    std::lock_guard lock(mutex_);
    const auto found = files_.find(name);
    return found != files_.end() && found->second.text == text ? found->second.tree : nullptr;
  }
  void keep(const std::string& name, const std::string& text, const DataTree& tree) {
    auto kept = std::make_shared<const DataTree>(tree);
    std::lock_guard lock(mutex_);
    files_.insert_or_assign(name, File{text, std::move(kept)});
  }

 private:
  struct File {
    std::string text;
    std::shared_ptr<const DataTree> tree;
  };
  mutable std::mutex mutex_;
  std::map<std::string, File> files_;
};

}  // namespace

DataTree parse_yaml(const std::string& text, const std::string& name, Mistakes& mistakes) {
  const auto file = std::make_shared<const std::string>(name);
  if (!is_utf8(text)) {
    mistakes.add({file, 0}, "not UTF-8");
    return {};
  }
  try {
    return Converter(file, mistakes).convert(YAML::Load(text), 0);
  } catch (const YAML::Exception& error) {
    mistakes.add({file, error.mark.line + 1}, "not valid YAML: " + error.msg);
    return {};
  }
}

DataTree read_yaml(const std::filesystem::path& file, const std::string& name, Mistakes& mistakes) {
  std::ifstream stream(file, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  if (!stream.good() && !stream.eof()) {
    mistakes.add({std::make_shared<const std::string>(name), 0}, "cannot be read");
    return {};
  }
  static ParsedFiles parsed;
  if (const auto before = parsed.tree_of(name, text)) return *before;
  const std::size_t noted = mistakes.noted();
  DataTree tree = parse_yaml(text, name, mistakes);
  if (mistakes.noted() == noted) parsed.keep(name, text, tree);
  return tree;
}

}  // namespace fsdp_cts
