#include "harness/scenario/resolve/check_graph.hpp"

#include <algorithm>
#include <set>

#include "harness/scenario/read/module_types.hpp"
#include "harness/scenario/resolve/module_state.hpp"
#include "harness/scenario/resolve/resolve_module.hpp"

namespace fsdp_cts {
namespace {

std::vector<std::string> strings(const DataTree* tree) {
  std::vector<std::string> result;
  if (!tree) return result;
  if (tree->is_string()) return {tree->scalar.get<std::string>()};
  for (const DataTree& item : tree->items)
    if (item.is_string()) result.push_back(item.scalar.get<std::string>());
  return result;
}

class GraphCheck {
 public:
  GraphCheck(const Json& graph, Mistakes& mistakes) : graph_(graph), mistakes_(mistakes) {}

  void inputs(const DataTree* names) {
    for (const std::string& name : strings(names)) values_.push_back(name);
  }

  void op(const DataTree& written) {
    const GraphOp* found = nullptr;
    for (const GraphOp& candidate : graph_ops()) {
      // `parameter` and `buffer` are ops; `dtype` or `to` alone are not.
      if (written.find(candidate.name)) found = &candidate;
    }
    if (!found) {
      std::vector<std::string> known;
      for (const GraphOp& candidate : graph_ops()) known.push_back(candidate.name);
      return mistakes_.add(
          written.place,
          unknown_name("graph op", written.entries.empty() ? "" : written.entries.front().key, known));
    }
    const DataTree& main = *written.find(found->name);
    check(main, found->main, found->name, Stage::evaluated, mistakes_);
    check_fields(written, found->others, "op " + found->name, Stage::evaluated, mistakes_, {found->name});
    references(*found, main, written);
    if (const DataTree* to = written.find("to"); to && to->is_string())
      values_.push_back(to->scalar.get<std::string>());
  }

  void output(const DataTree* names) {
    for (const std::string& name : strings(names)) value(name, names->place);
  }

  void ties(const DataTree* pairs) {
    if (!pairs) return;
    for (const DataTree& pair : pairs->items) {
      const std::vector<std::string> paths = strings(&pair);
      if (paths.size() != 2) continue;  // reported by the table
      const StateShape* alias = parameter(paths[0], pair.place);
      const StateShape* owner = parameter(paths[1], pair.place);
      if (alias && owner && alias->shape != owner->shape)
        mistakes_.add(pair.place, "'" + paths[0] + "' and '" + paths[1] + "' are tied but differ in shape");
    }
  }

 private:
  void references(const GraphOp& op, const DataTree& main, const DataTree& written) {
    if (op.name == "call") {
      for (const std::string& name : strings(written.find("args"))) value(name, written.place);
      if (main.is_string()) call(main, strings(written.find("args")).size());
    } else if (op.name == "buffer" || op.name == "parameter") {
      own(op.name + "s", main);
    } else if (op.name == "record_parameters") {
      if (main.is_string()) child(main.scalar.get<std::string>(), main.place);
    } else if (op.name != "ones") {
      for (const std::string& name : strings(&main)) value(name, main.place);
    }
    if (op.name != "cast") return;
    const DataTree* like = written.find("like_weight_of");
    if (!like == !written.find("dtype"))
      mistakes_.add(written.place, "op cast needs one of 'like_weight_of' and 'dtype'");
    if (like && like->is_string()) child(like->scalar.get<std::string>(), like->place);
  }

  void value(const std::string& name, const SourcePlace& place) {
    if (std::find(values_.begin(), values_.end(), name) == values_.end())
      mistakes_.add(place, unknown_name("value", name, values_));
  }

  const Json* child(const std::string& path, const SourcePlace& place) {
    const Json* found = find_module(graph_, path);
    if (!found) {
      std::vector<std::string> paths = module_paths(graph_);
      paths.erase(paths.begin());
      mistakes_.add(place, unknown_name("child", path, paths));
    }
    return found;
  }

  void call(const DataTree& main, std::size_t given) {
    const Json* callee = child(main.scalar.get<std::string>(), main.place);
    if (!callee) return;
    const std::string type = callee->value("type", "");
    const std::size_t wanted = type == "Graph" ? callee->value("inputs", Json::array()).size()
                                               : static_cast<std::size_t>(find_module_type(type)->inputs);
    if (wanted == 0)
      return mistakes_.add(main.place, type + " '" + main.scalar.get<std::string>() + "' cannot be called");
    if (wanted != given)
      mistakes_.add(main.place, "'" + main.scalar.get<std::string>() + "' takes " + std::to_string(wanted) +
                                    " inputs, found " + std::to_string(given));
  }

  void own(const std::string& kind, const DataTree& main) {
    std::vector<std::string> known;
    for (const Json& entry : graph_[kind]) known.push_back(entry[0]);
    if (main.is_string() &&
        std::find(known.begin(), known.end(), main.scalar.get<std::string>()) == known.end())
      mistakes_.add(main.place,
                    unknown_name(kind.substr(0, kind.size() - 1), main.scalar.get<std::string>(), known));
  }

  const StateShape* parameter(const std::string& path, const SourcePlace& place) {
    if (state_.empty()) {
      Json untied = graph_;
      untied.erase("tie");
      state_ = module_state(untied);
    }
    std::vector<std::string> known;
    for (const StateShape& entry : state_) {
      if (entry.is_buffer) continue;
      if (entry.name == path) return &entry;
      known.push_back(entry.name);
    }
    mistakes_.add(place, unknown_name("parameter", path, known));
    return nullptr;
  }

  const Json& graph_;
  Mistakes& mistakes_;
  std::vector<std::string> values_;
  std::vector<StateShape> state_;
};

}  // namespace

void check_graph(const Json& graph, const DataTree& written, bool children_are_sound, Mistakes& mistakes) {
  const auto body = [&](const DataTree& of) {
    GraphCheck check(graph, mistakes);
    check.inputs(of.find("inputs"));
    if (const DataTree* ops = of.find("forward"))
      for (const DataTree& op : ops->items) check.op(op);
    check.output(of.find("output"));
  };
  body(written);
  if (const DataTree* methods = written.find("methods"))
    for (const DataTree::Entry& method : methods->entries) body(method.value);
  if (children_are_sound) GraphCheck(graph, mistakes).ties(written.find("tie"));
}

}  // namespace fsdp_cts
