#include "fsdp/wrap/module_tree.hpp"

#include "fsdp/errors.hpp"

namespace fsdp {
namespace {

void visit(const NamedModule& at, ModuleSet& seen, std::vector<NamedModule>& found, bool parent_first) {
  if (parent_first) found.push_back(at);
  for (const auto& child : at.module->named_children()) {
    if (!seen.insert(child.value().get()).second) continue;
    visit({qualified(at.name, child.key()), child.value()}, seen, found, parent_first);
  }
  if (!parent_first) found.push_back(at);
}

std::vector<NamedModule> visited(const std::shared_ptr<torch::nn::Module>& root, bool parent_first) {
  std::vector<NamedModule> found;
  ModuleSet seen{root.get()};
  visit({"", root}, seen, found, parent_first);
  return found;
}

}  // namespace

std::vector<NamedModule> pre_order(const std::shared_ptr<torch::nn::Module>& root) {
  return visited(root, /*parent_first=*/true);
}

std::vector<NamedModule> post_order(const std::shared_ptr<torch::nn::Module>& root) {
  return visited(root, /*parent_first=*/false);
}

std::string qualified(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : prefix + "." + name;
}

ModuleSet ignored_modules_of(const std::vector<std::shared_ptr<torch::nn::Module>>& ignored,
                             const std::function<bool(const torch::nn::Module&)>& is_wrapped) {
  ModuleSet result;
  for (const auto& root : ignored) {
    if (is_wrapped(*root)) throw InvalidArgument("`ignored_modules` should not include FSDP modules");
    for (const NamedModule& below : pre_order(root)) {
      if (!is_wrapped(*below.module)) result.insert(below.module.get());
    }
  }
  return result;
}

int64_t parameter_numel(const torch::nn::Module& module, const ParameterSet& ignored) {
  int64_t numel = 0;
  ParameterSet seen;
  for (const auto& parameter : module.parameters()) {
    const auto* impl = parameter.unsafeGetTensorImpl();
    if (!ignored.contains(impl) && seen.insert(impl).second) numel += parameter.numel();
  }
  return numel;
}

}  // namespace fsdp
