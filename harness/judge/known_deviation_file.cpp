#include "harness/judge/known_deviation_file.hpp"

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>

#include "harness/protocol/pattern.hpp"
#include "harness/protocol/whole_file.hpp"
#include "harness/scenario/edition.hpp"
#include "harness/scenario/read/yaml_file.hpp"

namespace fsdp_cts {
namespace {

class Reader {
 public:
  explicit Reader(std::string file) : file_(std::move(file)) {}

  KnownDeviation entry(const DataTree& tree) const {
    if (!tree.is_map())
      fail(tree.place.line,
           "an entry is not a map; expected id, verdict, reason, expires and optionally locus, when, url");
    static const std::set<std::string> known = {"id", "verdict", "locus", "when", "reason", "url", "expires"};
    for (const DataTree::Entry& pair : tree.entries)
      if (!known.count(pair.key))
        fail(pair.line, fmt::format("unknown key '{}'; allowed are {}", pair.key, fmt::join(known, ", ")));
    KnownDeviation deviation;
    deviation.line = tree.place.line;
    deviation.id = text(tree, "id");
    deviation.reason = text(tree, "reason");
    deviation.expires = text(tree, "expires");
    static const Pattern date(R"(\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01]))");
    if (!date.matches(deviation.expires))
      fail(tree.find("expires")->place.line,
           fmt::format("'{}' is no date; expected YYYY-MM-DD", deviation.expires));
    if (tree.find("url")) deviation.url = text(tree, "url");
    deviation.verdict = verdict(tree);
    deviation.locus = globs(tree, "locus",
                            {"code", "expectation", "clause", "step", "iteration", "label", "phase", "what",
                             "parameter", "rank"});
    deviation.when = globs(tree, "when", {"testee", "backend", "device", "world", "version"});
    if (const auto range = deviation.when.find("version"); range != deviation.when.end()) {
      try {
        version_within("", range->second);
      } catch (const std::invalid_argument& error) {
        fail(tree.find("when")->find("version")->place.line, error.what());
      }
    }
    return deviation;
  }

 private:
  [[noreturn]] void fail(int line, const std::string& what) const {
    throw DeviationFileError(fmt::format("{}:{}: {}", file_, line, what));
  }
  std::string text(const DataTree& tree, const char* key) const {
    const DataTree* value = tree.find(key);
    if (!value) fail(tree.place.line, fmt::format("the entry has no '{}'", key));
    std::string found = tree.text_at(key);
    if (found.empty()) fail(value->place.line, fmt::format("'{}' must be text", key));
    return found;
  }
  VerdictKind verdict(const DataTree& tree) const {
    const std::string name = text(tree, "verdict");
    for (VerdictKind kind : {VerdictKind::fail, VerdictKind::crash, VerdictKind::hang,
                             VerdictKind::unresolved, VerdictKind::unsupported}) {
      if (verdict_name(kind) == name) return kind;
    }
    fail(tree.find("verdict")->place.line,
         fmt::format("'{}' cannot be announced; allowed are fail, crash, hang, unresolved, unsupported",
                     name));
  }
  std::map<std::string, std::string> globs(const DataTree& tree, const char* key,
                                           const std::set<std::string>& allowed) const {
    std::map<std::string, std::string> result;
    const DataTree* map = tree.find(key);
    if (!map) return result;
    if (!map->is_map())
      fail(map->place.line, fmt::format("'{}' must be a map of {}", key, fmt::join(allowed, ", ")));
    for (const DataTree::Entry& pair : map->entries) {
      if (!allowed.count(pair.key))
        fail(pair.line, fmt::format("unknown key '{}' in '{}'; allowed are {}", pair.key, key,
                                    fmt::join(allowed, ", ")));
      if (!pair.value.is_string()) fail(pair.line, fmt::format("'{}' must be text", pair.key));
      result[pair.key] = map->text_at(pair.key);
    }
    return result;
  }

  std::string file_;
};

// Text as it may stand anywhere in a YAML file: its double quotes and escapes are JSON's.
std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump();
}

}  // namespace

std::vector<KnownDeviation> read_deviations(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(stream), {}};
  if (!stream) throw DeviationFileError(file.string() + ": cannot be read");
  return parse_deviations(text, file.string());
}

std::vector<KnownDeviation> parse_deviations(const std::string& yaml, const std::string& name) {
  Mistakes mistakes;
  const DataTree root = parse_yaml(yaml, name, mistakes, Scalars::text);
  try {
    mistakes.throw_if_any();
  } catch (const ScenarioError& error) {
    throw DeviationFileError(error.what());
  }
  if (root.is_null()) return {};
  if (!root.is_list())
    throw DeviationFileError(fmt::format("{}:{}: the file is no list of entries", name, root.place.line));
  const Reader reader(name);
  std::vector<KnownDeviation> result;
  for (const DataTree& entry : root.items) result.push_back(reader.entry(entry));
  return result;
}

void write_deviations(const std::filesystem::path& file, const std::vector<KnownDeviation>& deviations) {
  std::string text = deviations.empty() ? "[]\n" : "";
  for (const KnownDeviation& each : deviations) {
    text += fmt::format("- id: {}\n  verdict: {}\n", quoted(each.id), verdict_name(each.verdict));
    for (const auto& [key, map] : {std::pair("locus", &each.locus), std::pair("when", &each.when)})
      if (!map->empty()) text += fmt::format("  {}: {}\n", key, nlohmann::json(*map).dump());
    text += fmt::format("  reason: {}\n", quoted(each.reason));
    if (!each.url.empty()) text += fmt::format("  url: {}\n", quoted(each.url));
    text += fmt::format("  expires: {}\n", each.expires);
  }
  try {
    write_whole_file(file, text);
  } catch (const std::system_error& error) {
    throw DeviationFileError(error.what());
  }
}

}  // namespace fsdp_cts
