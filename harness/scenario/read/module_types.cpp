#include "harness/scenario/read/module_types.hpp"

#include <algorithm>

namespace fsdp_cts {
namespace {

Field extent(const char* name) {
  return {name, rules::positive, true};
}

Fields graph_fields() {
  static const Fields parameter = {{"shape", rules::naturals, true}};
  static const Fields buffer = {
      {"shape", rules::naturals, true},
      {"dtype", rules::dtype, false, "float32"},
      {"fill", {.types = types::string, .words = {"zeros", "ones", "formula"}}, false, "zeros"}};
  static const Rule parameter_rule{.types = types::map, .fields = &parameter};
  static const Rule buffer_rule{.types = types::map, .fields = &buffer};
  static const Rule op{.types = types::map, .schema_ref = "graph_op"};
  static const Fields method = {
      {"inputs", rules::names, true},
      {"forward", {.types = types::list, .each = &op}, true},
      {"output", {.types = types::string | types::list, .each = &rules::name}, true}};
  static const Rule method_rule{.types = types::map, .fields = &method};
  static const Rule pair{.types = types::list, .each = &rules::name, .length = 2};
  return {{"inputs", rules::names, true, {}, "names of the values a call passes in"},
          {"forward", {.types = types::list, .each = &op}, true, {}, "the ops of the body, in order"},
          {"output",
           {.types = types::string | types::list, .each = &rules::name},
           true,
           {},
           "name, or list of names"},
          {"methods",
           {.types = types::map, .each = &method_rule},
           false,
           {},
           "further bodies by name, for steps that call one"},
          {"parameters", {.types = types::map, .each = &parameter_rule}},
          {"buffers", {.types = types::map, .each = &buffer_rule}},
          {"tie",
           {.types = types::list, .each = &pair},
           false,
           {},
           "[alias path, owner path]: one parameter, two names"}};
}

}  // namespace

const std::vector<ModuleType>& module_types() {
  static const std::vector<ModuleType> table = {
      {"Linear", {extent("in"), extent("out"), {"bias", rules::boolean, false, true}}},
      {"Conv2d", {extent("in"), extent("out"), extent("kernel")}},
      {"Embedding", {extent("num"), extent("dim")}},
      {"LayerNorm", {extent("dim")}},
      {"BatchNorm1d", {extent("features")}},
      {"BatchNorm2d", {extent("features")}},
      {"BatchNorm3d", {extent("features")}},
      {"SyncBatchNorm", {extent("features")}},
      {"MultiheadAttention",
       {extent("dim"), extent("heads"), {"dropout", rules::number, false, 0}},
       Children::none,
       3,
       "called with query, key, value"},
      {"ReLU", {}},
      {"Identity", {}},
      {"Dropout", {{"p", rules::number, false, 0.5}}},
      {"Sequential", {}, Children::required},
      {"ModuleList", {}, Children::required, 0, "not callable"},
      {"ModuleDict", {}, Children::required, 0, "not callable"},
      {"Graph", graph_fields(), Children::optional},
  };
  return table;
}

const ModuleType* find_module_type(std::string_view name) {
  const auto& table = module_types();
  const auto found =
      std::find_if(table.begin(), table.end(), [&](const ModuleType& type) { return type.name == name; });
  return found == table.end() ? nullptr : &*found;
}

const std::vector<GraphOp>& graph_ops() {
  static const Rule two_names{.types = types::list, .each = &rules::name, .length = 2};
  static const Field to{"to", rules::name, true}, as{"as", rules::name, true};
  static const std::vector<GraphOp> table = {
      {"call",
       rules::name,
       {{"args", rules::names, true},
        to,
        {"recompute", rules::boolean, false, {}, "nothing is saved for backward, which runs it again"}}},
      {"relu", rules::name, {to}},
      {"add", two_names, {to}},
      {"mul", two_names, {to}},
      {"buffer", rules::name, {to}},
      {"parameter", rules::name, {to}},
      {"ones", rules::naturals, {{"dtype", rules::dtype, false, "float32"}, to}},
      {"cast", rules::name, {{"like_weight_of", rules::name}, {"dtype", rules::dtype}, to}},
      {"finite_gradient", rules::name, {to}},
      {"record", rules::name, {as}},
      {"record_parameters", rules::name, {as}},
  };
  return table;
}

bool is_norm(std::string_view type) {
  return type == "LayerNorm" || type == "SyncBatchNorm" || type.starts_with("BatchNorm");
}

}  // namespace fsdp_cts
