// Declared in fsdp/flat/wrap_policy.hpp: everything between the front door and a policy.
#include <c10/util/StringUtil.h>

#include <algorithm>

#include "flat/wrap/frozen_parameters.hpp"
#include "flat/wrap/full_precision_modules.hpp"
#include "fsdp/errors.hpp"
#include "fsdp/flat/fully_sharded_data_parallel.hpp"
#include "fsdp/wrap/policies.hpp"

namespace fsdp::flat {
namespace {

void check_nested_wrapping(const std::shared_ptr<torch::nn::Module>& root) {
  for (const NamedModule& at : pre_order(root)) {
    if (!FullyShardedDataParallel::is(*at.module)) continue;
    throw InvalidArgument(
        c10::str("FSDP auto wrapping requires modules to not already have FSDP applied but found ", at.name,
                 " in\n", *root));
  }
}

std::function<bool(const torch::nn::Module&)> keeps_full_precision(const MixedPrecision& policy) {
  if (policy.module_classes_to_ignore) return policy.module_classes_to_ignore;
  return [classes = batch_norm_classes()](const torch::nn::Module& module) {
    return matches_any(classes, module);
  };
}

// Targets of the policy, and the modules in full precision whatever the policy says, children before parents.
std::vector<WrapTarget> with_full_precision(const std::shared_ptr<torch::nn::Module>& root,
                                            const IgnoredStates& ignored, const FSDPOptions& root_options,
                                            std::vector<WrapTarget> targets,
                                            const ModuleSet& full_precision) {
  const FSDPOptions inherited = inherited_options(root_options);
  std::vector<WrapTarget> all;
  for (const NamedModule& at : post_order(root)) {
    const auto known = std::find_if(targets.begin(), targets.end(),
                                    [&](const WrapTarget& target) { return target.module == at.module; });
    const bool full = full_precision.contains(at.module.get()) && !ignored.modules.contains(at.module.get());
    if (known != targets.end()) {
      all.push_back(std::move(*known));
    } else if (full && at.module != root) {
      all.push_back({at.name, at.module, inherited});
    } else {
      continue;
    }
    if (full) all.back().options.mixed_precision.reset();
  }
  return all;
}

}  // namespace

std::vector<WrapTarget> auto_wrap_targets(const std::shared_ptr<torch::nn::Module>& root,
                                          const IgnoredStates& ignored, const FSDPOptions& root_options) {
  check_nested_wrapping(root);
  std::vector<NamedModule> full_precision;
  ModuleSet individual;
  if (root_options.mixed_precision) {
    full_precision = full_precision_modules(root, keeps_full_precision(*root_options.mixed_precision));
    for (const NamedModule& at : full_precision) individual.insert(at.module.get());
  }
  const auto* policy = dynamic_cast<const FunctionPolicy*>(root_options.auto_wrap_policy.get());
  std::vector<WrapTarget> targets;
  if (policy) {
    // With mixed precision one looks below every module for those to wrap individually, and what they hold no
    // longer counts above them.
    const FunctionPolicy both([&](const WrapQuestion& asked) {
      if (root_options.mixed_precision && (asked.recurse || individual.contains(&asked.module))) return true;
      return policy->function()(asked);
    });
    targets = both.targets(root, ignored, root_options);
  } else {
    targets = root_options.auto_wrap_policy->targets(root, ignored, root_options);
  }
  targets = with_full_precision(root, ignored, root_options, std::move(targets), individual);
  if (!policy) {
    ModuleSet modules;
    for (const WrapTarget& target : targets) modules.insert(target.module.get());
    validate_frozen_params(root, modules, ignored.parameters, root_options.use_orig_params);
  }
  for (const NamedModule& at : full_precision) cast_to_full_precision(*at.module);
  return targets;
}

}  // namespace fsdp::flat
