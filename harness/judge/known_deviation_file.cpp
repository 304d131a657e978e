#include "harness/judge/known_deviation_file.hpp"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <fstream>
#include <set>
#include <system_error>

#include "harness/protocol/pattern.hpp"
#include "harness/protocol/whole_file.hpp"
#include "harness/scenario/edition.hpp"

namespace fsdp_cts {
namespace {

class Reader {
 public:
  explicit Reader(std::string file) : file_(std::move(file)) {}

  KnownDeviation entry(const YAML::Node& node) const {
    if (!node.IsMap())
      fail(node,
           "an entry is not a map; expected id, verdict, reason, expires and optionally locus, when, url");
    static const std::set<std::string> known = {"id", "verdict", "locus", "when", "reason", "url", "expires"};
    for (const auto& pair : node) {
      const std::string key = pair.first.as<std::string>();
      if (!known.count(key))
        fail(pair.first, fmt::format("unknown key '{}'; allowed are {}", key, fmt::join(known, ", ")));
    }
    KnownDeviation deviation;
    deviation.line = node.Mark().line + 1;
    deviation.id = text(node, "id");
    deviation.reason = text(node, "reason");
    deviation.expires = text(node, "expires");
    static const Pattern date(R"(\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01]))");
    if (!date.matches(deviation.expires))
      fail(node["expires"], fmt::format("'{}' is no date; expected YYYY-MM-DD", deviation.expires));
    if (node["url"]) deviation.url = text(node, "url");
    deviation.verdict = verdict(node);
    deviation.locus = globs(node, "locus",
                            {"code", "expectation", "clause", "step", "iteration", "label", "phase", "what",
                             "parameter", "rank"});
    deviation.when = globs(node, "when", {"testee", "backend", "device", "world", "version"});
    if (const auto range = deviation.when.find("version"); range != deviation.when.end()) {
      try {
        version_within("", range->second);
      } catch (const std::invalid_argument& error) {
        fail(node["when"]["version"], error.what());
      }
    }
    return deviation;
  }

 private:
  [[noreturn]] void fail(const YAML::Node& node, const std::string& what) const {
    throw DeviationFileError(fmt::format("{}:{}: {}", file_, node.Mark().line + 1, what));
  }
  std::string text(const YAML::Node& node, const char* key) const {
    const YAML::Node value = node[key];
    if (!value) fail(node, fmt::format("the entry has no '{}'", key));
    if (!value.IsScalar() || value.Scalar().empty()) fail(value, fmt::format("'{}' must be text", key));
    return value.Scalar();
  }
  VerdictKind verdict(const YAML::Node& node) const {
    const std::string name = text(node, "verdict");
    for (VerdictKind kind : {VerdictKind::fail, VerdictKind::crash, VerdictKind::hang,
                             VerdictKind::unresolved, VerdictKind::unsupported}) {
      if (verdict_name(kind) == name) return kind;
    }
    fail(node["verdict"],
         fmt::format("'{}' cannot be announced; allowed are fail, crash, hang, unresolved, unsupported",
                     name));
  }
  std::map<std::string, std::string> globs(const YAML::Node& node, const char* key,
                                           const std::set<std::string>& allowed) const {
    std::map<std::string, std::string> result;
    const YAML::Node map = node[key];
    if (!map) return result;
    if (!map.IsMap()) fail(map, fmt::format("'{}' must be a map of {}", key, fmt::join(allowed, ", ")));
    for (const auto& pair : map) {
      const std::string name = pair.first.as<std::string>();
      if (!allowed.count(name))
        fail(pair.first,
             fmt::format("unknown key '{}' in '{}'; allowed are {}", name, key, fmt::join(allowed, ", ")));
      if (!pair.second.IsScalar()) fail(pair.second, fmt::format("'{}' must be text", name));
      result[name] = pair.second.Scalar();
    }
    return result;
  }

  std::string file_;
};

}  // namespace

std::vector<KnownDeviation> read_deviations(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(stream), {}};
  if (!stream) throw DeviationFileError(file.string() + ": cannot be read");
  return parse_deviations(text, file.string());
}

std::vector<KnownDeviation> parse_deviations(const std::string& yaml, const std::string& name) {
  try {
    const YAML::Node root = YAML::Load(yaml);
    if (!root || root.IsNull()) return {};
    if (!root.IsSequence()) throw DeviationFileError(name + ":1: the file is no list of entries");
    const Reader reader(name);
    std::vector<KnownDeviation> result;
    for (const YAML::Node& node : root) result.push_back(reader.entry(node));
    return result;
  } catch (const YAML::Exception& error) {  // also of a key that is no text
    throw DeviationFileError(fmt::format("{}:{}: {}", name, error.mark.line + 1, error.msg));
  }
}

void write_deviations(const std::filesystem::path& file, const std::vector<KnownDeviation>& deviations) {
  YAML::Emitter out;
  out << YAML::BeginSeq;
  for (const KnownDeviation& each : deviations) {
    out << YAML::BeginMap;
    out << YAML::Key << "id" << YAML::Value << each.id;
    out << YAML::Key << "verdict" << YAML::Value << std::string(verdict_name(each.verdict));
    for (const auto& [key, map] : {std::pair("locus", &each.locus), std::pair("when", &each.when)}) {
      if (!map->empty()) out << YAML::Key << key << YAML::Value << YAML::Flow << *map;
    }
    out << YAML::Key << "reason" << YAML::Value << each.reason;
    if (!each.url.empty()) out << YAML::Key << "url" << YAML::Value << each.url;
    out << YAML::Key << "expires" << YAML::Value << each.expires;
    out << YAML::EndMap;
  }
  out << YAML::EndSeq;
  try {
    write_whole_file(file, std::string(out.c_str()) + "\n");
  } catch (const std::system_error& error) {
    throw DeviationFileError(error.what());
  }
}

}  // namespace fsdp_cts
