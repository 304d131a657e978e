#pragma once
// Saving and loading. Names are those of the unsharded model, in named_parameters then named_buffers order.
#include <torch/nn/module.h>

#include <string>
#include <utility>
#include <vector>

#include "fsdp/sharded_tensor.hpp"

namespace fsdp {

using ShardedStateDict = std::vector<std::pair<std::string, ShardedTensor>>;
using StateDict = std::vector<std::pair<std::string, at::Tensor>>;

/// This rank's shards, without padding and without copying; parameters outside FSDP and buffers whole (group
/// null). Units are resharded first. No communication.
ShardedStateDict sharded_state_dict(const torch::nn::Module& module);
struct FullStateDictOptions {
  bool rank0_only = false;      ///< the other ranks get nothing, but take part
  bool offload_to_cpu = false;  ///< tensors in host memory
};

/// Whole copies, on every rank unless `options` say otherwise. Collective.
StateDict full_state_dict(const torch::nn::Module& module, const FullStateDictOptions& options = {});

/// Both check every name, shape and layout before anything changes, and throw RuntimeError with all faults
/// found. Values of another dtype are cast, as by torch.nn.Module. No communication: with a full state dict each
/// rank cuts out its own part.
void load_sharded_state_dict(torch::nn::Module& module, const ShardedStateDict& state);
void load_full_state_dict(torch::nn::Module& module, const StateDict& state);

/// As load_full_state_dict, of what the first rank of the mesh alone has: each tensor in turn is broadcast whole,
/// in the module's dtype. What `state` is on the other ranks is not looked at, and every rank throws what the
/// first rank finds wrong. Throws InvalidState for a module without sharded parameters. Collective.
void broadcast_full_state_dict(torch::nn::Module& module, const StateDict& state);

}  // namespace fsdp
