#include "harness/scenario/read/yaml_file.hpp"

#include <yaml.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <new>
#include <utility>

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

// Ends the reading of a file of which nothing more can be read.
struct Unreadable {};

// What libyaml says next.
class Events {
 public:
  explicit Events(const std::string& text) {
    if (yaml_parser_initialize(&parser_) == 0) throw std::bad_alloc();
    yaml_parser_set_input_string(&parser_, reinterpret_cast<const unsigned char*>(text.data()), text.size());
  }
  ~Events() {
    yaml_event_delete(&event_);
    yaml_parser_delete(&parser_);
  }
  Events(const Events&) = delete;
  Events& operator=(const Events&) = delete;

  // Valid until the next call. Null where the text is no YAML: `problem` says why.
  const yaml_event_t* next() {
    yaml_event_delete(&event_);
    return yaml_parser_parse(&parser_, &event_) != 0 ? &event_ : nullptr;
  }
  std::string problem() const { return parser_.problem ? parser_.problem : "out of memory"; }
  int problem_line() const { return static_cast<int>(parser_.problem_mark.line) + 1; }

 private:
  yaml_parser_t parser_{};
  yaml_event_t event_{};
};

// "" where there is none.
std::string name_of(const unsigned char* anchor) {
  return anchor ? reinterpret_cast<const char*>(anchor) : "";
}

std::string text_of(const yaml_event_t& scalar) {
  return {reinterpret_cast<const char*>(scalar.data.scalar.value), scalar.data.scalar.length};
}

class Reader {
 public:
  Reader(const std::string& text, std::shared_ptr<const std::string> file, Scalars scalars,
         Mistakes& mistakes)
      : events_(text), file_(std::move(file)), scalars_(scalars), mistakes_(mistakes) {}

  // The file's only document; null where there is none.
  DataTree document() {
    next();  // the stream begins
    if (next().type == YAML_STREAM_END_EVENT) return at_line(0);
    DataTree tree = value(next(), 0);
    next();  // the document ends
    if (const yaml_event_t& after = next(); after.type != YAML_STREAM_END_EVENT)
      mistakes_.add(place_of(after), "a second document; a file has one");
    return tree;
  }

 private:
  // What an anchor names. Aliases are copied out.
  struct Anchored {
    DataTree tree;
    std::size_t nodes = 0;
    int depth = 0;  // of the levels below it
  };

  const yaml_event_t& next() {
    if (const yaml_event_t* event = events_.next()) return *event;
    mistakes_.add({file_, events_.problem_line()}, "not valid YAML: " + events_.problem());
    throw Unreadable();
  }

  SourcePlace place_of(const yaml_event_t& event) const {
    return {file_, static_cast<int>(event.start_mark.line) + 1};
  }
  DataTree at_line(int line) const {
    DataTree tree;
    tree.place = {file_, line};
    return tree;
  }

  // The value that begins with this event, which is used up.
  DataTree value(const yaml_event_t& event, int depth) {
    if (event.type == YAML_ALIAS_EVENT) return alias(event, depth);
    DataTree tree;
    tree.place = place_of(event);
    count(tree.place, 1, depth);
    std::string anchor;
    const std::size_t before = count_ - 1;
    const int outer_deepest = std::exchange(deepest_, depth);
    if (event.type == YAML_SCALAR_EVENT) {
      anchor = name_of(event.data.scalar.anchor);
      const std::string text = text_of(event);
      const bool plain = event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
      if (plain && (scalars_ == Scalars::typed || text.empty()))
        tree.scalar = typed(text, tree.place, mistakes_);
      else
        tree.scalar = text;
    } else if (event.type == YAML_SEQUENCE_START_EVENT) {
      anchor = name_of(event.data.sequence_start.anchor);
      tree.kind = DataTree::Kind::list;
      for (const yaml_event_t* item = &next(); item->type != YAML_SEQUENCE_END_EVENT; item = &next())
        tree.items.push_back(value(*item, depth + 1));
    } else {
      anchor = name_of(event.data.mapping_start.anchor);
      tree.kind = DataTree::Kind::map;
      for (const yaml_event_t* key = &next(); key->type != YAML_MAPPING_END_EVENT; key = &next())
        entry(*key, tree, depth);
    }
    if (!anchor.empty()) {
      const std::size_t nodes = count_ - before;
      count(tree.place, nodes, depth);  // for the copy
      anchored_.insert_or_assign(anchor, Anchored{tree, nodes, deepest_ - depth});
    }
    deepest_ = std::max(deepest_, outer_deepest);
    return tree;
  }

  DataTree alias(const yaml_event_t& event, int depth) {
    const std::string name = name_of(event.data.alias.anchor);
    const auto found = anchored_.find(name);
    if (found == anchored_.end()) {
      mistakes_.add(place_of(event), "*" + name + " stands for nothing: no &" + name + " ends before it");
      return at_line(place_of(event).line);
    }
    count(place_of(event), found->second.nodes, depth + found->second.depth);
    return found->second.tree;
  }

  void entry(const yaml_event_t& event, DataTree& map, int depth) {
    const SourcePlace place = place_of(event);
    if (event.type != YAML_SCALAR_EVENT) {
      mistakes_.add(place, "a key must be text");
      value(event, depth + 1);
      value(next(), depth + 1);
      return;
    }
    const std::string key = text_of(event);
    DataTree converted = value(next(), depth + 1);
    if (map.find(key)) return mistakes_.add(place, "key '" + key + "' occurs twice");
    // An empty value has no place of its own; the parser gives it that of whatever follows.
    if (converted.is_null()) converted.place = place;
    map.entries.push_back({key, place.line, std::move(converted)});
  }

  void count(const SourcePlace& place, std::size_t nodes, int depth) {
    count_ += nodes;
    deepest_ = std::max(deepest_, depth);
    if (depth <= max_depth && count_ <= max_nodes) return;
    mistakes_.add(place, "the data is nested too deeply or too large");
    throw Unreadable();
  }

  Events events_;
  std::shared_ptr<const std::string> file_;
  Scalars scalars_;
  Mistakes& mistakes_;
  std::map<std::string, Anchored> anchored_;
  std::size_t count_ = 0;  // of values so far, with those kept for aliases
  int deepest_ = 0;        // level, of what was read within the present value
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

DataTree parse_yaml(const std::string& text, const std::string& name, Mistakes& mistakes, Scalars scalars) {
  const auto file = std::make_shared<const std::string>(name);
  if (!is_utf8(text)) {
    mistakes.add({file, 0}, "not UTF-8");
    return {};
  }
  try {
    return Reader(text, file, scalars, mistakes).document();
  } catch (const Unreadable&) {
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
