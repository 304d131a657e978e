#include "fsdp/wrap/policies.hpp"

#include <optional>

#include "fsdp/errors.hpp"

namespace fsdp::flat {
namespace {

// The modules below the root that may become units, each with what `choose` makes of the root's options.
template <class Choose>
std::vector<WrapTarget> chosen(const std::shared_ptr<torch::nn::Module>& root, const IgnoredStates& ignored,
                               const FSDPOptions& root_options, const Choose& choose) {
  const FSDPOptions inherited = inherited_options(root_options);
  std::vector<WrapTarget> targets;
  for (const NamedModule& at : post_order(root)) {
    if (ignored.modules.contains(at.module.get())) continue;
    // The root is asked, too: a wrong answer about it is a mistake like any other.
    if (std::optional<FSDPOptions> options = choose(*at.module, inherited); options && at.module != root)
      targets.push_back({at.name, at.module, *std::move(options)});
  }
  return targets;
}

}  // namespace

FSDPOptions inherited_options(FSDPOptions root_options) {
  root_options.auto_wrap_policy = nullptr;
  root_options.ignored_modules.reset();
  root_options.ignored_state_modules.clear();
  root_options.ignored_parameters.clear();
  return root_options;
}

std::vector<WrapTarget> ModuleWrapPolicy::targets(const std::shared_ptr<torch::nn::Module>& root,
                                                  const IgnoredStates& ignored,
                                                  const FSDPOptions& root_options) const {
  return chosen(root, ignored, root_options,
                [this](const torch::nn::Module& module, const FSDPOptions& inherited) {
                  return matches_any(classes_, module) ? std::optional(inherited) : std::nullopt;
                });
}

bool ModuleWrapPolicy::operator()(const WrapQuestion& asked) const {
  return wrap_module_classes_individually(classes_)(asked);
}

std::vector<WrapTarget> CustomPolicy::targets(const std::shared_ptr<torch::nn::Module>& root,
                                              const IgnoredStates& ignored,
                                              const FSDPOptions& root_options) const {
  const auto choose = [this](const torch::nn::Module& module,
                             const FSDPOptions& inherited) -> std::optional<FSDPOptions> {
    const Answer answer = lambda_fn_(module);
    if (const bool* wrap = std::get_if<bool>(&answer)) return *wrap ? std::optional(inherited) : std::nullopt;
    const auto& change = std::get<OptionsOverride>(answer);
    if (!change) return std::nullopt;
    FSDPOptions options = inherited;
    change(options);
    return options;
  };
  return chosen(root, ignored, root_options, choose);
}

std::vector<WrapTarget> FunctionPolicy::targets(const std::shared_ptr<torch::nn::Module>& root,
                                                const IgnoredStates& ignored,
                                                const FSDPOptions& root_options) const {
  const FSDPOptions inherited = inherited_options(root_options);
  std::vector<WrapTarget> targets;
  for (NamedModule& at : recursive_wrap_targets(root, function_, ignored.modules, ignored.parameters))
    targets.push_back({std::move(at.name), std::move(at.module), inherited});
  return targets;
}

}  // namespace fsdp::flat
