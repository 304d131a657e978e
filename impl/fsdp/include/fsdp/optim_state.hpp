#pragma once
// Optimizer state by the names of the unsharded model's parameters, for models sharded with fully_shard.
// FSDP1 has the same with its own parameters, in fsdp/flat/state_dict.hpp.
//
//   const auto saved = fsdp::full_optimizer_state(*model, fsdp::optim::state_of(optimizer));
//   fsdp::optim::load_state(optimizer, fsdp::load_full_optimizer_state(*model, saved));
//
// It works for every optimizer whose state of a parameter can be written as named tensors. A tensor is either
// shaped like what the optimizer updates (this rank's shard) or a scalar, such as a step counter, that is the
// same on all ranks. Parameters outside FSDP are whole everywhere.
//
// Call these between training steps, from one thread at a time. They reshard the units first.
#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "fsdp/sharded_tensor.hpp"

namespace fsdp {

/// What an optimizer keeps for each tensor it updates: name of the value -> tensor.
using OptimizerState = std::vector<std::pair<at::Tensor, std::map<std::string, at::Tensor>>>;
/// The same by parameter names; values whole, in the parameters' shapes. Tied parameters stand once, at their
/// first place.
using FullOptimizerState = std::vector<std::pair<std::string, std::map<std::string, at::Tensor>>>;
using ShardedOptimizerState = std::vector<std::pair<std::string, std::map<std::string, ShardedTensor>>>;

/// This rank's part, not copied. A rank whose shard is empty may have no state for it: it gets the names and
/// scalars of the others. Throws InvalidArgument for a value of another shape. Collective.
ShardedOptimizerState sharded_optimizer_state(const torch::nn::Module& module, const OptimizerState& state);
/// Whole copies, on every rank. Collective.
FullOptimizerState full_optimizer_state(const torch::nn::Module& module, const OptimizerState& state);

/// The other way round: what the optimizer of this rank has to be given, copied. They check every name, shape
/// and layout, and throw RuntimeError with all faults found. A parameter may be missing: the optimizer has
/// not stepped it yet. No communication.
OptimizerState load_sharded_optimizer_state(const torch::nn::Module& module,
                                            const ShardedOptimizerState& state);
OptimizerState load_full_optimizer_state(const torch::nn::Module& module, const FullOptimizerState& state);

}  // namespace fsdp
