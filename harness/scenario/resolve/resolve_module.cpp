#include "harness/scenario/resolve/resolve_module.hpp"

#include <algorithm>

#include "harness/scenario/read/module_types.hpp"
#include "harness/scenario/read/scenario_grammar.hpp"
#include "harness/scenario/resolve/check_graph.hpp"
#include "harness/scenario/resolve/evaluation.hpp"

namespace fsdp_cts {
namespace {

constexpr int max_use_depth = 30;  // a model file that uses itself ends here
constexpr std::int64_t max_copies = 1000;

Json empty_module() {
  return {{"type", "Identity"}, {"class", "Identity"}};
}

class Resolver {
 public:
  Resolver(const ModelFiles& files, MadeParts& made, Mistakes& mistakes)
      : files_(files), made_(made), mistakes_(mistakes) {}

  // As `module`, once for all cases and uses that agree in what it reads.
  Json kept(const DataTree& written, const Scope& scope, int depth) {
    return made_.of(written, scope, mistakes_, [&] { return module(written, scope, depth); });
  }

 private:
  Json module(const DataTree& written, const Scope& scope, int depth) {
    if (!written.is_map()) {
      mistakes_.add(written.place, "a module must be a map with 'type' or 'use', found " + written.shown());
      return empty_module();
    }
    if (depth > max_use_depth) {
      mistakes_.add(written.place, "modules are nested more than " + std::to_string(max_use_depth) +
                                       " deep; does a model file use itself?");
      return empty_module();
    }
    if (const DataTree* use = written.find("use")) return used(written, *use, scope, depth);
    return described(written, scope, depth);
  }

  Json used(const DataTree& written, const DataTree& use, const Scope& scope, int depth) {
    const auto file = use.is_string() ? files_.find(use.scalar.get<std::string>()) : files_.end();
    if (file == files_.end()) {
      std::vector<std::string> known;
      for (const auto& entry : files_) known.push_back(entry.first);
      mistakes_.add(
          use.place,
          unknown_name("model file", use.is_string() ? use.scalar.get<std::string>() : use.shown(), known));
      return empty_module();
    }
    std::vector<std::string> allowed;
    Scope inner;  // a model file sees its own parameters and nothing else
    for (const DataTree::Entry& parameter : file->second.parameters.entries) {
      allowed.push_back(parameter.key);
      inner[parameter.key] = parameter.value.json();
    }
    for (const DataTree::Entry& argument : written.entries) {
      if (argument.key == "use" || argument.key == "when") continue;
      if (std::find(allowed.begin(), allowed.end(), argument.key) == allowed.end()) {
        mistakes_.add({written.place.file, argument.line},
                      unknown_name("parameter of model '" + file->first + "'", argument.key, allowed));
        continue;
      }
      const DataTree value = evaluated(argument.value, scope, mistakes_);
      if (!value.is_unknown()) inner[argument.key] = value.json();
    }
    return kept(file->second.module, inner, depth + 1);
  }

  Json described(const DataTree& written, const Scope& scope, int depth) {
    const std::size_t noted = mistakes_.noted();
    DataTree own;  // children are resolved one by one
    own.kind = DataTree::Kind::map;
    own.place = written.place;
    for (const DataTree::Entry& entry : written.entries)
      if (entry.key != "children")
        own.entries.push_back({entry.key, entry.line, evaluated(entry.value, scope, mistakes_)});
    const DataTree* type_tree = own.find("type");
    if (!type_tree) {
      mistakes_.add(written.place, "a module needs 'type' or 'use'");
      return empty_module();
    }
    const ModuleType* type =
        type_tree->is_string() ? find_module_type(type_tree->scalar.get<std::string>()) : nullptr;
    if (!type) {
      std::vector<std::string> known;
      for (const ModuleType& entry : module_types()) known.push_back(entry.name);
      if (!type_tree->is_unknown())
        mistakes_.add(
            type_tree->place,
            unknown_name("module type",
                         type_tree->is_string() ? type_tree->scalar.get<std::string>() : type_tree->shown(),
                         known));
      return empty_module();
    }
    check_fields(own, type->arguments, type->name, Stage::evaluated, mistakes_,
                 {"type", "class", "when", "children"});
    fill_defaults(own, type->arguments);

    Json result = {{"type", type->name}, {"class", type->name}};
    if (const DataTree* named = own.find("class"); named && named->is_string())
      result["class"] = named->scalar;
    for (const Field& field : type->arguments)
      if (const DataTree* argument = own.find(field.name)) result[field.name] = argument->json();
    if (type->name == "Graph") finish_graph(result, own);
    if (type->children != Children::none)
      result["children"] = children(written, *type, scope, depth);
    else if (const DataTree* extra = written.find("children"))
      mistakes_.add(extra->place, type->name + " has no children");
    if (type->name == "Graph") check_graph(result, own, mistakes_.noted() == noted, mistakes_);
    return result;
  }

  // Parameters and buffers become lists of pairs: JSON maps have no order that every reader keeps.
  static void finish_graph(Json& result, const DataTree& own) {
    for (const char* key : {"parameters", "buffers"}) {
      Json pairs = Json::array();
      const DataTree* entries = own.find(key);
      for (const DataTree::Entry& entry : entries ? entries->entries : std::vector<DataTree::Entry>{}) {
        Json facts = entry.value.json();
        if (std::string_view(key) == "buffers" && facts.is_object()) {
          facts.emplace("dtype", "float32");
          facts.emplace("fill", "zeros");
        }
        pairs.push_back(Json::array({entry.key, std::move(facts)}));
      }
      result[key] = std::move(pairs);
    }
    say_dtypes_of_ones(result);
    if (result.contains("methods") && result["methods"].is_object())
      for (Json& method : result["methods"])
        if (method.is_object()) say_dtypes_of_ones(method);
  }

  static void say_dtypes_of_ones(Json& body) {
    if (body.contains("forward") && body["forward"].is_array())
      for (Json& op : body["forward"])
        if (op.is_object() && op.contains("ones")) op.emplace("dtype", "float32");
  }

  Json children(const DataTree& written, const ModuleType& type, const Scope& scope, int depth) {
    Json result = Json::array();
    const DataTree* listed = written.find("children");
    if (!listed) {
      if (type.children == Children::required) mistakes_.add(written.place, type.name + " lacks 'children'");
      return result;
    }
    if (listed->is_map()) {
      for (const DataTree::Entry& entry : listed->entries) {
        if (entry.key.empty() || entry.key.find('.') != std::string::npos)
          mistakes_.add({listed->place.file, entry.line},
                        "a child's name must not be empty or hold a dot: '" + entry.key + "'");
        result.push_back(Json::array({entry.key, module(entry.value, scope, depth + 1)}));
      }
      return result;
    }
    if (!listed->is_list()) {
      mistakes_.add(listed->place, "children must be a list or a map, found " + listed->shown());
      return result;
    }
    for (const DataTree& item : listed->items) {
      if (!holds(item.find("when"), scope, mistakes_)) continue;
      const DataTree* repeat = item.find("repeat");
      if (repeat) check_fields(item, repeated_child_fields(), "a repeated child", Stage::written, mistakes_);
      const std::int64_t copies = repeat ? count(*repeat, scope) : 1;
      const DataTree* body = repeat ? item.find("module") : &item;
      if (!body) continue;
      if (copies == 0) continue;
      const Json resolved = module(*body, scope, depth + 1);
      for (std::int64_t i = 0; i < copies; ++i)
        result.push_back(Json::array({std::to_string(result.size()), resolved}));
    }
    return result;
  }

  std::int64_t count(const DataTree& written, const Scope& scope) {
    const DataTree value = evaluated(written, scope, mistakes_);
    if (value.is_unknown()) return 0;
    if (value.is_scalar() && value.scalar.is_number_integer()) {
      const auto n = value.scalar.get<std::int64_t>();
      if (n >= 0 && n <= max_copies) return n;
    }
    mistakes_.add(written.place, "repeat must be a whole number from 0 to " + std::to_string(max_copies) +
                                     ", found " + value.shown());
    return 0;
  }

  const ModelFiles& files_;
  MadeParts& made_;
  Mistakes& mistakes_;
};

}  // namespace

Json ModuleResolver::resolve(const DataTree& written, const Scope& scope, Mistakes& mistakes) {
  return Resolver(files_, made_, mistakes).kept(written, scope, 0);
}

const Json* find_module(const Json& resolved, std::string_view path) {
  if (path.empty()) return &resolved;
  const std::size_t dot = path.find('.');
  const std::string_view first = path.substr(0, dot);
  const std::string_view rest = dot == std::string_view::npos ? "" : path.substr(dot + 1);
  if (resolved.value("type", "") == "MultiheadAttention" && first == "out_proj" && rest.empty()) {
    static const Json projection = {{"type", "Linear"}, {"class", "NonDynamicallyQuantizableLinear"}};
    return &projection;
  }
  const auto children = resolved.find("children");
  if (children == resolved.end()) return nullptr;
  for (const Json& child : *children)
    if (child[0].get_ref<const std::string&>() == first) return find_module(child[1], rest);
  return nullptr;
}

std::vector<std::string> module_paths(const Json& resolved) {
  std::vector<std::string> paths = {""};
  const auto children = resolved.find("children");
  if (children == resolved.end()) return paths;
  for (const Json& child : *children)
    for (const std::string& inner : module_paths(child[1]))
      paths.push_back(child[0].get<std::string>() + (inner.empty() ? "" : "." + inner));
  return paths;
}

}  // namespace fsdp_cts
