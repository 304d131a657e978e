#include "fsdp/wrap/wrap_functions.hpp"

#include <algorithm>
#include <utility>

namespace fsdp {
namespace {

// One pass over the tree. A module that stands at several places is decided at its first.
class RecursiveWrap {
 public:
  RecursiveWrap(const WrapFunction& policy, const ModuleSet& ignored_modules,
                const ParameterSet& ignored_params)
      : policy_(policy), ignored_modules_(ignored_modules), ignored_params_(ignored_params) {}

  // Elements wrapped at or below `at`.
  int64_t wrap(const NamedModule& at, bool only_children) {
    const auto numel = parameter_numel(*at.module, ignored_params_);
    if (!policy_({*at.module, /*recurse=*/true, numel})) return 0;
    int64_t wrapped = 0;
    for (const auto& child : at.module->named_children()) {
      const auto& module = child.value();
      if (ignored_modules_.contains(module.get()) || !seen_.insert(module.get()).second) continue;
      wrapped += wrap({qualified(at.name, child.key()), module}, /*only_children=*/false);
    }
    if (only_children || !policy_({*at.module, /*recurse=*/false, numel - wrapped})) return wrapped;
    targets.push_back(at);
    return numel;
  }

  std::vector<NamedModule> targets;

 private:
  const WrapFunction& policy_;
  const ModuleSet& ignored_modules_;
  const ParameterSet& ignored_params_;
  ModuleSet seen_;
};

}  // namespace

WrapFunction size_based_auto_wrap_policy(SizeBasedOptions options) {
  return [options = std::move(options)](const WrapQuestion& asked) {
    const auto& barred = asked.recurse ? options.force_leaf_modules : options.exclude_wrap_modules;
    return asked.nonwrapped_numel >= options.min_num_params && !matches_any(barred, asked.module);
  };
}

WrapFunction always_wrap_policy() {
  return [](const WrapQuestion&) { return true; };
}

WrapFunction never_wrap_policy() {
  return [](const WrapQuestion&) { return false; };
}

WrapFunction transformer_auto_wrap_policy(std::vector<ModuleClass> transformer_layer_cls) {
  return wrap_module_classes_individually(std::move(transformer_layer_cls));
}

WrapFunction wrap_module_classes_individually(std::vector<ModuleClass> module_classes) {
  return [classes = std::move(module_classes)](const WrapQuestion& asked) {
    return asked.recurse || matches_any(classes, asked.module);
  };
}

WrapFunction lambda_auto_wrap_policy(std::function<bool(const torch::nn::Module&)> lambda_fn) {
  return [lambda_fn = std::move(lambda_fn)](const WrapQuestion& asked) {
    return asked.recurse || lambda_fn(asked.module);
  };
}

WrapFunction or_policy(std::vector<WrapFunction> policies) {
  return [policies = std::move(policies)](const WrapQuestion& asked) {
    return std::any_of(policies.begin(), policies.end(),
                       [&](const WrapFunction& policy) { return policy(asked); });
  };
}

std::vector<NamedModule> recursive_wrap_targets(const std::shared_ptr<torch::nn::Module>& root,
                                                const WrapFunction& policy, const ModuleSet& ignored_modules,
                                                const ParameterSet& ignored_params) {
  RecursiveWrap pass(policy, ignored_modules, ignored_params);
  pass.wrap({"", root}, /*only_children=*/true);
  return std::move(pass.targets);
}

}  // namespace fsdp
