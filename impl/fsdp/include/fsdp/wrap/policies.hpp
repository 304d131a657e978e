#pragma once
// The policies of FSDPOptions::auto_wrap_policy:
//
//   .auto_wrap_policy = std::make_shared<ModuleWrapPolicy>(std::vector{class_of<Block>("Block")})
//   .auto_wrap_policy = std::make_shared<FunctionPolicy>(size_based_auto_wrap_policy({.min_num_params =
//   1'000}))
//
// Names and rules are those of torch.distributed.fsdp.wrap of PyTorch 2.11.
#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "fsdp/wrap/module_class.hpp"
#include "fsdp/wrap/wrap_functions.hpp"
#include "fsdp/wrap/wrap_policy.hpp"

namespace fsdp::flat {

/// Explicit settings of one module: changes what it would get from the root.
using OptionsOverride = std::function<void(FSDPOptions& options)>;

/// Every module of the classes, with the root's options.
class ModuleWrapPolicy : public WrapPolicy {
 public:
  explicit ModuleWrapPolicy(std::vector<ModuleClass> module_classes) : classes_(std::move(module_classes)) {}
  std::vector<WrapTarget> targets(const std::shared_ptr<torch::nn::Module>& root,
                                  const IgnoredStates& ignored,
                                  const FSDPOptions& root_options) const override;
  /// As a part of `or_policy`.
  bool operator()(const WrapQuestion& asked) const;

 private:
  std::vector<ModuleClass> classes_;
};

/// Asks a function of the user's, module by module.
class CustomPolicy : public WrapPolicy {
 public:
  /// false: not a unit. true: with the root's options. An override: with the root's options, changed by it.
  using Answer = std::variant<bool, OptionsOverride>;
  explicit CustomPolicy(std::function<Answer(const torch::nn::Module&)> lambda_fn)
      : lambda_fn_(std::move(lambda_fn)) {}
  std::vector<WrapTarget> targets(const std::shared_ptr<torch::nn::Module>& root,
                                  const IgnoredStates& ignored,
                                  const FSDPOptions& root_options) const override;

 private:
  std::function<Answer(const torch::nn::Module&)> lambda_fn_;
};

/// One of the functions of wrap_functions.hpp, or a function of the user's. Frozen parameters are not
/// checked.
class FunctionPolicy : public WrapPolicy {
 public:
  explicit FunctionPolicy(WrapFunction function) : function_(std::move(function)) {}
  std::vector<WrapTarget> targets(const std::shared_ptr<torch::nn::Module>& root,
                                  const IgnoredStates& ignored,
                                  const FSDPOptions& root_options) const override;
  const WrapFunction& function() const { return function_; }

 private:
  WrapFunction function_;
};

/// What a target gets from the root: everything but the policy and what is ignored, which are the root's affair.
FSDPOptions inherited_options(FSDPOptions root_options);

}  // namespace fsdp::flat
