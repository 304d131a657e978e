#include <deque>
#include <unordered_map>

#include "reference/wrap_policy.hpp"

namespace fsdp_cts::reference {
namespace {

void post_order(sdk::Module& module, const std::string& path, std::set<const sdk::Module*>& visited,
                std::vector<std::pair<std::string, sdk::Module*>>& out) {
  for (const auto& [name, child] : module.child_modules()) {
    if (visited.insert(child.get()).second) post_order(*child, dotted(path, name), visited, out);
  }
  out.emplace_back(path, &module);
}

struct Managed {
  std::vector<std::string> frozen, trainable;
  std::int64_t frozen_numel = 0, trainable_numel = 0;
};

// Breadth first; not into modules that were visited before, hence not into targets below.
Managed managed_parameters(sdk::Module& target, const std::string& path,
                           std::set<const sdk::Module*>& visited,
                           const std::set<const at::TensorImpl*>& ignored) {
  Managed managed;
  std::set<const at::TensorImpl*> met;
  std::deque<std::pair<sdk::Module*, std::string>> queue{{&target, path}};
  visited.insert(&target);
  while (!queue.empty()) {
    const auto [module, prefix] = queue.front();
    queue.pop_front();
    for (const std::string& key : module->parameter_names()) {
      const at::Tensor& tensor = module->parameter(key);
      if (ignored.contains(tensor.unsafeGetTensorImpl()) || !met.insert(tensor.unsafeGetTensorImpl()).second)
        continue;
      (tensor.requires_grad() ? managed.trainable : managed.frozen).push_back(dotted(prefix, key));
      (tensor.requires_grad() ? managed.trainable_numel : managed.frozen_numel) += tensor.numel();
    }
    for (const auto& [name, child] : module->child_modules()) {
      if (visited.insert(child.get()).second) queue.emplace_back(child.get(), dotted(prefix, name));
    }
  }
  return managed;
}

// As Python shows a list of strings.
std::string shown(const std::vector<std::string>& names) {
  std::string text = "[";
  for (const std::string& name : names) text += (text.size() > 1 ? ", '" : "'") + name + "'";
  return text + "]";
}

}  // namespace

std::vector<std::string> frozen_mixes(sdk::Module& root, const std::set<const sdk::Module*>& targets,
                                      const std::set<const at::TensorImpl*>& ignored_parameters,
                                      bool use_orig_params) {
  std::vector<std::pair<std::string, sdk::Module*>> modules;
  std::set<const sdk::Module*> met{&root}, visited;
  post_order(root, "", met, modules);
  std::vector<std::string> messages;
  for (const auto& [path, module] : modules) {
    if (!targets.contains(module)) continue;
    const Managed m = managed_parameters(*module, path, visited, ignored_parameters);
    if (m.frozen.empty() || m.trainable.empty()) continue;
    std::string text = path + " has both parameters with requires_grad=True and False.";
    if (use_orig_params) {
      text +=
          " We do not recommend wrapping such modules since the gradient memory usage will be higher than "
          "expected (" +
          std::to_string(m.frozen_numel + m.trainable_numel) + " numel instead of " +
          std::to_string(m.trainable_numel) + " numel before sharding via reduce-scatter). ";
    } else {
      text += " FSDP does not support wrapping such modules when use_orig_params=False. ";
    }
    text += "If possible, wrap the frozen parameters with FSDP separately.\n";
    text += "The following parameters have requires_grad=True:\n" + shown(m.trainable) + "\n";
    text += "The following parameters have requires_grad=False:\n" + shown(m.frozen);
    messages.push_back(std::move(text));
  }
  return messages;
}

}  // namespace fsdp_cts::reference
