#pragma once
// Saving and loading of models and optimizers. Names are those of the unsharded model, in the order of
// parameters then buffers; tied parameters stand under each of their names. Saving is collective, except for
// local_state_dict.
//
// Loading checks every name, shape, layout and number of ranks before anything changes, and throws RuntimeError
// with all faults found. Values of another dtype are cast, as by torch.nn.Module.
#include <torch/nn/module.h>

#include <string>
#include <utility>
#include <vector>

#include "fsdp/optim_state.hpp"
#include "fsdp/sharded_tensor.hpp"
#include "fsdp/state_dict.hpp"

namespace fsdp::flat {

using fsdp::FullStateDictOptions;
using fsdp::ShardedStateDict;
using fsdp::StateDict;

/// Whole copies in original precision; buffers in original dtype.
StateDict full_state_dict(const torch::nn::Module& root, const FullStateDictOptions& options = {});
/// No communication: every rank cuts out its own part.
void load_full_state_dict(torch::nn::Module& root, const StateDict& state);

/// Each parameter as rows of dimension 0 over the unit's ranks, as fully_shard would cut it; copies. NO_SHARD
/// units: whole, with a warning.
ShardedStateDict sharded_state_dict(const torch::nn::Module& root);
void load_sharded_state_dict(torch::nn::Module& root, const ShardedStateDict& state);

/// This rank's part of each flat parameter, as it lies: "<unit>._flat_param". Parameters outside FSDP and
/// buffers whole. Good for the same wrapping and number of ranks only.
struct LocalFlatParameter {
  at::Tensor local;             ///< without the padding of the shard
  int64_t unsharded_numel = 0;  ///< of the flat parameter
  int64_t rank = 0;
  int64_t ranks = 1;
};
struct LocalStateDict {
  std::vector<std::pair<std::string, LocalFlatParameter>> flat_parameters;
  StateDict others;
};
LocalStateDict local_state_dict(const torch::nn::Module& root);
void load_local_state_dict(torch::nn::Module& root, const LocalStateDict& state);

/// Optimizer state by original parameter names. The optimizer's tensors are original parameters, or flat
/// parameters; values that are not shaped like the parameter (step counters) are the same on all ranks.
using fsdp::FullOptimizerState;
using fsdp::OptimizerState;
using fsdp::ShardedOptimizerState;

FullOptimizerState full_optimizer_state(const torch::nn::Module& root, const OptimizerState& state);
/// The other way round: what the optimizer of this rank has to be given. Parameters that a forward has left whole are
/// shown as shards first, as the optimizer knows them. Throws InvalidArgument where members of a flat parameter have
/// other step counters than their neighbours, or none; InvalidState in forward, backward or a summon scope. No
/// communication.
OptimizerState shard_full_optimizer_state(const torch::nn::Module& root, const FullOptimizerState& state);
ShardedOptimizerState sharded_optimizer_state(const torch::nn::Module& root, const OptimizerState& state);
OptimizerState flatten_sharded_optimizer_state(const torch::nn::Module& root,
                                               const ShardedOptimizerState& state);

}  // namespace fsdp::flat
