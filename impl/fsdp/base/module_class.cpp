#include "fsdp/wrap/module_class.hpp"

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/moduledict.h>
#include <torch/nn/modules/container/modulelist.h>

#include <algorithm>
#include <string_view>
#include <utility>

namespace fsdp {
namespace {

std::vector<NominalClassAdapter>& naming_adapters() {
  static std::vector<NominalClassAdapter> registered;
  return registered;
}

// torch::nn::LinearImpl -> Linear, fsdp::Hooked<torch::nn::LinearImpl, …> -> Linear.
std::string python_name(std::string name) {
  constexpr std::string_view hooked = "fsdp::Hooked<";
  if (name.starts_with(hooked)) {
    name.erase(0, hooked.size());
    int depth = 0;  // of template arguments of the class itself
    const auto end = std::find_if(name.begin(), name.end(), [&](char c) {
      if (depth == 0 && (c == ',' || c == '>')) return true;
      depth += c == '<' ? 1 : c == '>' ? -1 : 0;
      return false;
    });
    name.erase(end, name.end());
  }
  const auto arguments = std::min(name.find('<'), name.size());
  if (const auto colon = name.rfind("::", arguments); colon != std::string::npos) name.erase(0, colon + 2);
  constexpr std::string_view impl = "Impl";
  if (name.size() > impl.size() && name.ends_with(impl)) name.resize(name.size() - impl.size());
  return name;
}

// One of LibTorch's own classes: the type, and everything that goes by its name.
template <class T>
ModuleClass torch_class(const std::string& name) {
  return {name, [typed = class_of<T>(name), named = class_named(name)](const torch::nn::Module& module) {
            return typed.matches(module) || named.matches(module);
          }};
}

}  // namespace

ModuleClass class_named(std::string name) {
  return {name, [name](const torch::nn::Module& module) {
            const auto names = nominal_classes(module);
            return std::find(names.begin(), names.end(), name) != names.end();
          }};
}

std::vector<std::string> nominal_classes(const torch::nn::Module& module) {
  for (auto adapter = naming_adapters().rbegin(); adapter != naming_adapters().rend(); ++adapter) {
    if (auto names = (*adapter)(module); !names.empty()) return names;
  }
  return {python_name(module.name())};
}

void register_nominal_class_adapter(NominalClassAdapter adapter) {
  naming_adapters().push_back(std::move(adapter));
}

bool matches_any(const std::vector<ModuleClass>& classes, const torch::nn::Module& module) {
  return std::any_of(classes.begin(), classes.end(),
                     [&](const ModuleClass& one) { return one.matches(module); });
}

std::vector<ModuleClass> batch_norm_classes() {
  return {torch_class<torch::nn::BatchNorm1dImpl>("BatchNorm1d"),
          torch_class<torch::nn::BatchNorm2dImpl>("BatchNorm2d"),
          torch_class<torch::nn::BatchNorm3dImpl>("BatchNorm3d"), class_named("SyncBatchNorm")};
}

std::vector<ModuleClass> default_force_leaf_classes() {
  return {torch_class<torch::nn::MultiheadAttentionImpl>("MultiheadAttention")};
}

std::vector<ModuleClass> container_classes() {
  return {torch_class<torch::nn::ModuleListImpl>("ModuleList"),
          torch_class<torch::nn::ModuleDictImpl>("ModuleDict")};
}

std::vector<ModuleClass> default_exclude_wrap_classes() {
  return container_classes();
}

}  // namespace fsdp
