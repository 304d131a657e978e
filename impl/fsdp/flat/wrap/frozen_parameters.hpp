#pragma once
// One flat parameter has one gradient. Members of which some are frozen cost memory or are refused.
#include <torch/nn/module.h>

#include <memory>

#include "fsdp/wrap/module_tree.hpp"

namespace fsdp {

/// Looks at what each of `modules_to_wrap` would manage: the parameters below it, less those below another of
/// them and less the ignored ones. For the first, in post-order, that mixes trainable and frozen ones: throws
/// InvalidArgument; with `use_orig_params` warns instead, and for each of them.
void validate_frozen_params(const std::shared_ptr<torch::nn::Module>& root, const ModuleSet& modules_to_wrap,
                            const ParameterSet& ignored_params, bool use_orig_params);

}  // namespace fsdp
