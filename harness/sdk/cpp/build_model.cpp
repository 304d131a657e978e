#include "harness/sdk/cpp/build_model.hpp"

#include <ATen/ATen.h>

#include <stdexcept>

#include "harness/sdk/cpp/parameter_source.hpp"

namespace fsdp_cts::sdk {

std::string join_path(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : prefix + "." + name;
}

void ParameterSource::add_tie(const std::string& alias, const std::string& owner) {
  owner_of_[alias] = owner;
}

at::ScalarType ParameterSource::dtype(at::ScalarType dtype) const {
  return data_.widened() && at::isFloatingType(dtype) ? at::kDouble : dtype;
}

at::Tensor ParameterSource::value(const std::string& kind, const std::string& path,
                                  const std::vector<std::int64_t>& shape,
                                  at::ScalarType dtype_on_meta) const {
  if (device_.is_meta()) return at::empty(shape, at::TensorOptions().dtype(dtype_on_meta).device(device_));
  const std::string prefix = kind + "/" + instance_ + "/";
  std::optional<at::Tensor> tensor = data_.find(prefix + path);
  // A tied tensor stands in the file under its first occurrence, which may be the alias.
  for (auto tie = owner_of_.begin(); !tensor && tie != owner_of_.end(); ++tie) {
    if (tie->second == path) tensor = data_.find(prefix + tie->first);
  }
  if (!tensor) tensor = data_.get(prefix + path);
  if (tensor->sizes() != at::IntArrayRef(shape)) {
    throw std::invalid_argument(prefix + path +
                                " in the data file does not have the shape that the model describes");
  }
  return tensor->to(device_);
}

at::Tensor ParameterSource::parameter(const std::string& path, const std::vector<std::int64_t>& shape) const {
  if (owner_of_.contains(path)) return {};
  return value("parameters", path, shape, at::kFloat);
}

at::Tensor ParameterSource::buffer(const std::string& path, const std::vector<std::int64_t>& shape,
                                   at::ScalarType dtype) const {
  return value("buffers", path, shape, dtype);
}

namespace {

void tie_slots(Module& graph, const std::string& alias, const std::string& owner) {
  const auto place = [&graph](const std::string& path) {
    const auto dot = path.rfind('.');
    return dot == std::string::npos ? std::pair{&graph, path}
                                    : std::pair{&graph.child(path.substr(0, dot)), path.substr(dot + 1)};
  };
  const auto [owner_module, owner_key] = place(owner);
  const auto [alias_module, alias_key] = place(alias);
  alias_module->set_parameter(alias_key, owner_module->parameter(owner_key));
}

}  // namespace

std::shared_ptr<Module> build_module(const Json& description, const std::string& path,
                                     ParameterSource& source) {
  const Json ties = description.value("tie", Json::array());
  for (const Json& pair : ties) source.add_tie(join_path(path, pair.at(0)), join_path(path, pair.at(1)));

  std::shared_ptr<Module> module = build_layer(description, path, source);
  if (!module) module = build_batch_norm(description, path, source);
  if (!module) module = build_attention(description, path, source);
  if (!module) module = build_container(description);
  if (!module) module = build_graph(description, path, source);
  if (!module) throw std::invalid_argument("no module type is called " + description.at("type").dump());

  module->set_path(path);
  for (const Json& child : description.value("children", Json::array())) {
    const std::string name = child.at(0);
    module->declare_child(name, build_module(child.at(1), join_path(path, name), source));
  }
  for (const Json& pair : ties) tie_slots(*module, pair.at(0), pair.at(1));
  return module;
}

std::shared_ptr<Module> build_model(const Json& description, const Data& data, const std::string& instance,
                                    c10::Device device, std::shared_ptr<Recorder> recorder) {
  ParameterSource source(data, instance, device, std::move(recorder));
  return build_module(description, "", source);
}

}  // namespace fsdp_cts::sdk
