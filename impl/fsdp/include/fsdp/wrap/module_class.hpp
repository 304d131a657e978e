#pragma once
// What a wrap policy means by "a module of this class". C++ code names a type; a model that was put together
// from a description names the class its author had in mind.
#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace fsdp {

struct ModuleClass {
  std::string name;  ///< for messages
  std::function<bool(const torch::nn::Module&)> matches;
};

/// Modules whose type is T or derives from it, a `Hooked<T>` among them.
template <class T>
ModuleClass class_of(std::string name) {
  return {std::move(name),
          [](const torch::nn::Module& module) { return dynamic_cast<const T*>(&module) != nullptr; }};
}

/// Modules one of whose nominal classes has this name.
ModuleClass class_named(std::string name);

/// Names a module goes by, its own class first, then its bases. Without an adapter the C++ class alone, as
/// Python would call it: "Linear" for torch::nn::LinearImpl and fsdp::Hooked<torch::nn::LinearImpl>.
std::vector<std::string> nominal_classes(const torch::nn::Module& module);

/// A family of modules with names of its own. Empty for a module that is not of the family. Later adapters
/// are asked first.
using NominalClassAdapter = std::function<std::vector<std::string>(const torch::nn::Module&)>;
void register_nominal_class_adapter(NominalClassAdapter adapter);

bool matches_any(const std::vector<ModuleClass>& classes, const torch::nn::Module& module);

std::vector<ModuleClass> batch_norm_classes();          ///< in one, two, three dimensions, and synchronised
std::vector<ModuleClass> default_force_leaf_classes();  ///< multi-head attention
std::vector<ModuleClass> container_classes();           ///< module lists and dictionaries: nobody calls them
std::vector<ModuleClass> default_exclude_wrap_classes();  ///< the containers

}  // namespace fsdp
