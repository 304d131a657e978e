#include "harness/scenario/resolve/module_state.hpp"

#include <algorithm>

#include "harness/scenario/case.hpp"
#include "harness/scenario/read/module_types.hpp"

namespace fsdp_cts {
namespace {

using Shape = std::vector<std::int64_t>;

class StateCollector {
 public:
  std::vector<StateShape> states;

  void module(const Json& module, const std::string& prefix) {
    const std::string type = module.at("type");
    const auto n = [&](const char* key) { return module.at(key).get<std::int64_t>(); };
    type_ = type;
    if (type == "Linear") {
      linear(prefix, n("out"), n("in"), module.value("bias", true));
    } else if (type == "Conv2d") {
      parameter(prefix + "weight", {n("out"), n("in"), n("kernel"), n("kernel")});
      parameter(prefix + "bias", {n("out")});
    } else if (type == "Embedding") {
      parameter(prefix + "weight", {n("num"), n("dim")});
    } else if (type == "MultiheadAttention") {
      parameter(prefix + "in_proj_weight", {3 * n("dim"), n("dim")});
      parameter(prefix + "in_proj_bias", {3 * n("dim")});
      linear(prefix + "out_proj.", n("dim"), n("dim"), true);
    } else if (is_norm(type)) {
      norm(prefix, n(type == "LayerNorm" ? "dim" : "features"), type != "LayerNorm");
    } else if (type == "Graph") {
      own(module, prefix);
    }
    if (const auto children = module.find("children"); children != module.end())
      for (const Json& child : *children) this->module(child[1], prefix + child[0].get<std::string>() + ".");
    if (const auto ties = module.find("tie"); ties != module.end())
      for (const Json& tie : *ties)
        merge(prefix + tie[0].get<std::string>(), prefix + tie[1].get<std::string>());
  }

 private:
  void parameter(const std::string& name, Shape shape) {
    states.push_back({name, std::move(shape), DType::float32, false, type_});
  }

  void buffer(const std::string& name, Shape shape, DType dtype) {
    states.push_back({name, std::move(shape), dtype, true, type_});
  }

  void linear(const std::string& prefix, std::int64_t out, std::int64_t in, bool bias) {
    parameter(prefix + "weight", {out, in});
    if (bias) parameter(prefix + "bias", {out});
  }

  void norm(const std::string& prefix, std::int64_t features, bool running) {
    parameter(prefix + "weight", {features});
    parameter(prefix + "bias", {features});
    if (!running) return;
    buffer(prefix + "running_mean", {features}, DType::float32);
    buffer(prefix + "running_var", {features}, DType::float32);
    buffer(prefix + "num_batches_tracked", {}, DType::int64);
  }

  void own(const Json& graph, const std::string& prefix) {
    for (const Json& entry : graph.value("parameters", Json::array()))
      parameter(prefix + entry[0].get<std::string>(), entry[1].at("shape").get<Shape>());
    for (const Json& entry : graph.value("buffers", Json::array()))
      buffer(prefix + entry[0].get<std::string>(), entry[1].at("shape").get<Shape>(),
             dtype_from_name(entry[1].at("dtype").get<std::string>()));
  }

  // Of two names for one parameter the one registered first stays.
  void merge(const std::string& alias, const std::string& owner) {
    const auto first = std::find_if(states.begin(), states.end(),
                                    [&](const StateShape& s) { return s.name == alias || s.name == owner; });
    if (first == states.end()) return;
    const std::string& later = first->name == alias ? owner : alias;
    const auto second =
        std::find_if(first + 1, states.end(), [&](const StateShape& s) { return s.name == later; });
    first->other_names.push_back(later);
    if (second != states.end()) states.erase(second);
  }

  std::string type_;
};

}  // namespace

std::vector<StateShape> module_state(const Json& resolved_module) {
  StateCollector collector;
  collector.module(resolved_module, "");
  return std::move(collector.states);
}

}  // namespace fsdp_cts
