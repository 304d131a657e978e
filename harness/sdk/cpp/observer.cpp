#include "harness/sdk/cpp/observer.hpp"

#include <ATen/ATen.h>

#include <set>
#include <sstream>

namespace fsdp_cts::sdk {
namespace {

std::string numbered(std::string name, char separator, std::size_t number) {
  name += separator;
  name += std::to_string(number);
  return name;
}

/// As PROTOCOL.md has it: a device, and of host memory whether it is pinned.
std::string memory_of(const at::Tensor& tensor) {
  const std::string device = tensor.device().str();
  if (!tensor.is_cpu()) return device;
  if (tensor.numel() == 0) return device + ":empty";
  return tensor.is_pinned() ? device + ":pinned" : device;
}

}  // namespace

void Observer::observe(const Json& step) {
  for (const Json& what : step.at("what")) one(what, step);
}

void Observer::one(const std::string& what, const Json& step) {
  if (what == "loss" || what == "output") return add_register(what, what);
  if (what.starts_with("register:")) return add_register(what, what.substr(9));
  const Recorder& recorder = *in_.context_.recorder;
  if (what == "recorded") return add_values(what, nullptr, recorder.dtypes);
  if (what == "seen_parameters") return add_values(what, nullptr, recorder.parameters);
  if (what.starts_with("state_dict:")) {
    const auto& [instance, state] = in_.state_dicts_.at(what.substr(11));
    return add_items(what, instance, state.items);
  }
  if (what.starts_with("devices:")) {
    Json devices = Json::object();
    for (const Exposed& item : in_.state_dicts_.at(what.substr(8)).second.items)
      devices[item.name] = memory_of(item.value);
    return add_values(what, nullptr, std::move(devices));
  }
  if (what == "clock") return add_values(what, nullptr, {{"milliseconds", operations_.clock().count()}});
  if (what == "memory") return add_values(what, nullptr, operations_.memory());
  if (what == "virtual_time") return add_values(what, nullptr, operations_.virtual_time());
  if (what == "trace")
    return out_.entries.push_back({{"what", what}, {"events", in_.context_.trace->drain()}});
  if (what == "warnings") {
    Json warnings = Json::array();
    for (const Warning& w : in_.context_.warnings)
      warnings.push_back({{"category", w.category}, {"message", sendable(w.message)}});
    in_.context_.warnings.clear();
    return out_.entries.push_back({{"what", what}, {"warnings", std::move(warnings)}});
  }

  Model& model = in_.model(step.value("model", "model"));
  if (what == "parameters") return add_items(what, model.instance, parameters(model, false));
  if (what == "gradients") return add_items(what, model.instance, parameters(model, true));
  if (what == "full_parameters") return add_items(what, model.instance, operations_.full_parameters(model));
  if (what == "buffers") return add_items(what, model.instance, operations_.buffers(model));
  if (what == "optimizer_state") return add_items(what, model.instance, optimizer_state(model));
  if (what == "counters") {
    std::map<std::string, std::int64_t> counted = operations_.counters(model);
    if (const auto hooks = in_.gradient_hooks_.find(model.instance); hooks != in_.gradient_hooks_.end())
      counted["gradient_hooks"] = hooks->second;
    return add_values(what, &model, counted);
  }
  if (what == "units")
    return out_.entries.push_back({{"what", what}, {"model", model.instance}, {"units", units(model)}});
  if (what == "training_state") {
    return out_.entries.push_back(
        {{"what", what}, {"model", model.instance}, {"value", operations_.training_state(model)}});
  }
  if (what == "identity" || what == "devices") {
    Json values = Json::object();
    for (const Parameter& parameter : operations_.parameters(model)) {
      if (what == "identity") {
        std::ostringstream text;
        text << parameter.value.unsafeGetTensorImpl();
        values[parameter.name] = text.str();
      } else {
        values[parameter.name] = memory_of(parameter.value);
      }
    }
    return add_values(what, &model, std::move(values));
  }
  if (what == "registered_parameters") {
    Json values = Json::object();
    std::set<const at::TensorImpl*> counted;  // a tied one is handed over once
    for (const auto& parameter : model.module->named_parameters()) {
      if (counted.insert(parameter.value().unsafeGetTensorImpl()).second)
        values[parameter.key()] = parameter.value().sizes().vec();
    }
    return add_values(what, &model, std::move(values));
  }
  throw std::invalid_argument("\"" + what + "\" cannot be observed");
}

void Observer::add_register(const std::string& what, const std::string& name) {
  const auto found = in_.registers_.find(name);
  if (found == in_.registers_.end())
    throw std::invalid_argument("register \"" + name + "\" is observed before it is set");
  out_.tensors[what] = to_host(only_tensor(name, found->second));
  out_.entries.push_back({{"what", what}, {"tensor", what}});
}

void Observer::add_values(const std::string& what, const Model* model, Json values) {
  if (values.is_null()) values = Json::object();
  Json entry = {{"what", what}};
  if (model) entry["model"] = model->instance;
  entry["values"] = std::move(values);
  out_.entries.push_back(std::move(entry));
}

void Observer::add_items(const std::string& what, const std::string& instance,
                         const std::vector<Exposed>& items) {
  Json list = Json::array();
  for (const Exposed& item : items) {
    Json pieces = Json::array();
    const bool none = !item.value.defined();
    const std::size_t count = none ? 0 : item.placement.extents.size();
    const at::Tensor flat = none ? at::Tensor() : item.value.detach().reshape({-1});
    std::int64_t start = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const Extent& extent = item.placement.extents[i];
      const std::int64_t padding = i + 1 == count ? item.placement.padding : 0;
      const std::string name = what + "/" + instance + "/" + item.name;
      const std::string key = count > 1 ? numbered(name, '#', i) : name;
      HostTensor host = to_host(flat.narrow(0, start, extent.length + padding));
      if (!item.placement.sharded) host.shape = item.placement.global_shape;
      out_.tensors[key] = std::move(host);
      Json piece = {{"tensor", key}, {"offset", extent.offset}, {"length", extent.length}};
      if (padding > 0) piece["padding"] = padding;
      pieces.push_back(std::move(piece));
      start += extent.length;
    }
    list.push_back({{"name", item.name},
                    {"global_shape", item.placement.global_shape},
                    {"dtype", dtype_name(none ? item.dtype : item.value.scalar_type())},
                    {"sharded", item.placement.sharded},
                    {"requires_grad", item.requires_grad},
                    {"none", none},
                    {"pieces", std::move(pieces)}});
    if (!none && !item.value.is_contiguous()) list.back()["contiguous"] = false;
  }
  out_.entries.push_back({{"what", what}, {"model", instance}, {"items", std::move(list)}});
}

std::vector<Exposed> Observer::parameters(Model& model, bool gradients) {
  std::vector<Exposed> items;
  for (Parameter& p : operations_.parameters(model)) {
    const bool requires_grad = p.requires_grad.value_or(p.value.requires_grad());
    items.push_back({p.name, gradients ? p.gradient : p.value, gradients ? p.gradient_placement : p.placement,
                     requires_grad, p.value.scalar_type()});
  }
  return items;
}

// States shaped like the local parameter lie where it lies.
std::vector<Exposed> Observer::optimizer_state(Model& model) {
  std::map<std::string, Placement> placements;
  for (Parameter& parameter : operations_.parameters(model))
    placements[parameter.name] = std::move(parameter.placement);
  std::vector<Exposed> items;
  for (const auto& [name, optimizer] : in_.optimizers_) {
    if (optimizer.instance != model.instance) continue;
    for (const Optimizer::State& state : optimizer.optimizer->state()) {
      items.push_back({state.parameter + "/" + state.name, state.value, placements.at(state.parameter)});
    }
  }
  return items;
}

Json Observer::units(Model& model) {
  Json units = Json::array();
  for (const Unit& unit : operations_.units(model)) {
    units.push_back({{"module", unit.module},
                     {"class", unit.class_name},
                     {"settings", unit.settings},
                     {"parameters", unit.parameters}});
  }
  return units;
}

}  // namespace fsdp_cts::sdk
