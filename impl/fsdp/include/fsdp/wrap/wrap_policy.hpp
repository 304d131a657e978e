#pragma once
// Where automatic wrapping meets the engine: a policy says which modules below the root become units of their
// own, and with which options. The policies themselves stand in fsdp/wrap.
#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <vector>

#include "fsdp/flat/options.hpp"
#include "fsdp/wrap/module_tree.hpp"

namespace fsdp::flat {

struct WrapTarget {
  std::string name;  ///< from the root
  std::shared_ptr<torch::nn::Module> module;
  FSDPOptions options;  ///< without a policy: a target is not wrapped further
};

/// What stays outside every unit under the root.
struct IgnoredStates {
  ModuleSet modules;  ///< with all below them, except units
  ParameterSet parameters;
};

class WrapPolicy {
 public:
  virtual ~WrapPolicy() = default;
  /// Units to be made below `root`, children before parents, never the root itself, none of them ignored.
  /// `root_options` are what a target gets where the policy says nothing else. Throws InvalidArgument for an
  /// answer that is none. Changes nothing.
  virtual std::vector<WrapTarget> targets(const std::shared_ptr<torch::nn::Module>& root,
                                          const IgnoredStates& ignored,
                                          const FSDPOptions& root_options) const = 0;
};

/// All that `root_options.auto_wrap_policy` (not null) leads to, checked: no module is a unit already, frozen
/// and trainable parameters do not mix where that is refused, batch norms are units of their own under mixed
/// precision, with hooks of theirs that cast to full precision and back. Throws InvalidArgument; warns.
/// Called by the front doors before anything has changed. Implemented in fsdp/wrap/auto_wrap.cpp.
std::vector<WrapTarget> auto_wrap_targets(const std::shared_ptr<torch::nn::Module>& root,
                                          const IgnoredStates& ignored, const FSDPOptions& root_options);

}  // namespace fsdp::flat
