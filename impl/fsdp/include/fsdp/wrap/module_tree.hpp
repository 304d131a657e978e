#pragma once
// Orders in which wrapping looks at a module tree. A module that stands at several places is met once, at its
// first.
#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

namespace fsdp {

struct NamedModule {
  std::string name;  ///< from the root, "" for the root itself
  std::shared_ptr<torch::nn::Module> module;
};

using ModuleSet = std::unordered_set<const torch::nn::Module*>;
using ParameterSet = std::unordered_set<const c10::TensorImpl*>;

/// The root first, then each child's subtree in registration order.
std::vector<NamedModule> pre_order(const std::shared_ptr<torch::nn::Module>& root);
/// Children before their parent, in registration order; the root last.
std::vector<NamedModule> post_order(const std::shared_ptr<torch::nn::Module>& root);

/// "a" and "b" give "a.b"; the root's empty name adds nothing.
std::string qualified(const std::string& prefix, const std::string& name);

/// The modules and everything below them. Throws InvalidArgument when `is_wrapped` says so of one of the
/// modules given; wrapped ones further below are left out.
ModuleSet ignored_modules_of(const std::vector<std::shared_ptr<torch::nn::Module>>& ignored,
                             const std::function<bool(const torch::nn::Module&)>& is_wrapped);

/// Elements of the parameters under `module`, each once, without the ignored ones.
int64_t parameter_numel(const torch::nn::Module& module, const ParameterSet& ignored);

}  // namespace fsdp
