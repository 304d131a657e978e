#pragma once
// Modules that must not compute in low precision, batch norms above all: their running statistics would
// drift. With a wrap policy and mixed precision each becomes a unit of its own without mixed precision, and
// casts what goes in and out.
#include <torch/nn/module.h>

#include <functional>
#include <vector>

#include "fsdp/wrap/module_tree.hpp"

namespace fsdp {

/// The modules of the tree that `keeps_full_precision` names, root included, in pre-order. Warns with their
/// classes, if there are any.
std::vector<NamedModule> full_precision_modules(
    const std::shared_ptr<torch::nn::Module>& root,
    const std::function<bool(const torch::nn::Module&)>& keeps_full_precision);

/// Hooks the module: floating-point inputs become float32, and outputs get the inputs' dtype back. The hooks
/// run inside those of a unit made later.
void cast_to_full_precision(torch::nn::Module& module);

}  // namespace fsdp
