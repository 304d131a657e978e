// Auto-wrap: which modules become units, with which settings.
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "harness/sdk/cpp/context.hpp"
#include "harness/sdk/cpp/module.hpp"

namespace fsdp_cts::reference {

using Json = nlohmann::ordered_json;

struct WrapTarget {
  std::string path;  // relative to the wrapped root
  sdk::Module* module;
  Json settings;  // the root's, overridden
};

struct WrapRequest {
  sdk::Module& root;
  Json settings;                                 // the root's unit: LANGUAGE.md §5; `auto_wrap` is in it
  std::set<const sdk::Module*> wrapped;          // units that are there already
  std::set<const sdk::Module*> ignored_modules;  // with everything below them
  std::set<const at::TensorImpl*> ignored_parameters;
};

// Children before parents, the root not among them. Modules that keep full precision become targets
// without mixed precision; `context` gets the warnings. Throws sdk::Error ValueError for a module that is
// wrapped already, and for a target that mixes frozen and trainable parameters where original parameters are
// not exposed (with them it is a warning).
std::vector<WrapTarget> wrap_targets(const WrapRequest& request, sdk::Context& context);

// Whether auto-wrap under this policy (null: none) makes a unit of its own, without mixed precision, of the module: of a
// batch norm, or of those classes alone that `module_classes_to_ignore` names.
bool keeps_full_precision(const Json& mixed_precision, const sdk::Module& module);
std::string dotted(const std::string& prefix,
                   const std::string& name);  // "a" and "b" give "a.b", the root's empty name adds nothing

// The check of `wrap_targets` alone: one message for every target that mixes, in post-order.
std::vector<std::string> frozen_mixes(sdk::Module& root, const std::set<const sdk::Module*>& targets,
                                      const std::set<const at::TensorImpl*>& ignored_parameters,
                                      bool use_orig_params);

}  // namespace fsdp_cts::reference
