#pragma once
// Policies that are asked module by module, bottom-up, how much is still unwrapped. The root is never theirs
// to wrap: the caller does that.
#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <vector>

#include "fsdp/wrap/module_class.hpp"
#include "fsdp/wrap/module_tree.hpp"

namespace fsdp {

struct WrapQuestion {
  const torch::nn::Module& module;
  bool recurse;              ///< true: look below this module? false: wrap it?
  int64_t nonwrapped_numel;  ///< of its parameters, less what was wrapped below it
};
using WrapFunction = std::function<bool(const WrapQuestion&)>;

struct SizeBasedOptions {
  int64_t min_num_params = 100'000'000;                                        ///< elements
  std::vector<ModuleClass> force_leaf_modules = default_force_leaf_classes();  ///< nothing below is wrapped
  std::vector<ModuleClass> exclude_wrap_modules = default_exclude_wrap_classes();  ///< not wrapped themselves
};
/// Wraps what holds at least `min_num_params` unwrapped elements, and looks below nothing smaller.
WrapFunction size_based_auto_wrap_policy(SizeBasedOptions options = {});

WrapFunction always_wrap_policy();
/// Says no to looking below, too; beside others in `or_policy` it changes nothing.
WrapFunction never_wrap_policy();

/// Each looks below everything and wraps the modules of the classes.
WrapFunction transformer_auto_wrap_policy(std::vector<ModuleClass> transformer_layer_cls);
WrapFunction wrap_module_classes_individually(std::vector<ModuleClass> module_classes);

/// Looks below everything and wraps where the function says so.
WrapFunction lambda_auto_wrap_policy(std::function<bool(const torch::nn::Module&)> lambda_fn);

/// Yes where one of them says yes.
WrapFunction or_policy(std::vector<WrapFunction> policies);

/// What such a policy wraps below `root`, in the order of wrapping: children before parents. Ignored modules
/// and what is below them are passed over; ignored parameters do not count.
std::vector<NamedModule> recursive_wrap_targets(const std::shared_ptr<torch::nn::Module>& root,
                                                const WrapFunction& policy, const ModuleSet& ignored_modules,
                                                const ParameterSet& ignored_params);

}  // namespace fsdp
