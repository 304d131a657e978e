#pragma once
// A model and its optimizer on disk. What was saved by one number of ranks can be loaded by another, whatever
// the sharding: from fully_shard to FSDP1 and back, with or without replicas, and into an unsharded module.
//
//   fsdp::save_checkpoint("run/checkpoint", world, fsdp::sharded_state_dict(*model),
//                         fsdp::sharded_optimizer_state(*model, fsdp::optim::state_of(optimizer)));
//   fsdp::optim::load_state(optimizer, fsdp::load_checkpoint("run/checkpoint", world, *model));
//
// The folder must be one that all ranks see. It holds
//   <generation>.<rank>-of-<ranks>.safetensors   what that rank had, each part of a tensor once;
//                                                any safetensors reader opens it
//   manifest                                     text: which rows of which tensor lie where, and checksums
// A checkpoint counts once its manifest is there: that is renamed into place when the files of all ranks are
// on disk. Saving into a folder that has a checkpoint replaces it in the same way, and removes the old files
// after that; whoever is killed meanwhile leaves the old checkpoint or the new one whole.
//
// The format of torch.distributed.checkpoint is written on demand, and read wherever a folder holds it. What
// PyTorch saved as {"model": model_state_dict, "optimizer": optimizer_state_dict}, both from get_state_dict(),
// is loaded here, and dcp.load() loads such a dict from here. Settings of an optimizer (its "param_groups") are
// neither read nor written: dcp.load() needs DefaultLoadPlanner(allow_partial_load=True) if it is to load
// an optimizer. Such files have no checksums but those of the zip format inside.
//
// Both functions are collective over `world`, the communicator whose ranks hold the model. What goes wrong on
// one rank throws RuntimeError on all of them, with the rank, the file and the parameter. One thread at a
// time; nobody may load from a folder while others save into it.
#include <torch/nn/module.h>

#include <filesystem>
#include <memory>
#include <string>

#include "fsdp/comm/communicator.hpp"
#include "fsdp/optim_state.hpp"
#include "fsdp/state_dict.hpp"

namespace fsdp {

enum class CheckpointFormat {
  own,               ///< the files above
  torch_distributed  ///< of torch.distributed.checkpoint: `.metadata` and `__<rank>_<generation>.distcp`
};
struct SaveCheckpointOptions {
  CheckpointFormat format = CheckpointFormat::own;
};

/// Makes the folder, if need be. FSDP1: give it flat::sharded_state_dict and flat::sharded_optimizer_state.
/// Tensors that are whole everywhere are written once. Dtypes: floating point of 16 to 64 bits, bfloat16,
/// integers of 8 to 64 bits, bool.
void save_checkpoint(const std::filesystem::path& folder, const std::shared_ptr<Communicator>& world,
                     const ShardedStateDict& model, const ShardedOptimizerState& optimizer = {},
                     const SaveCheckpointOptions& options = {});

struct LoadCheckpointOptions {
  bool optimizer_state = true;  ///< false: it is not read, nor returned
  /// Where a checkpoint of torch.distributed.checkpoint has the two in the dict that was saved.
  std::string model_key = "model", optimizer_key = "optimizer";
};

/// Loads the model and returns what the optimizer of this rank has to be given; empty if none was saved. Each
/// rank reads only what it needs. Everything that is read is checked first, names, shapes, dtypes and
/// checksums, on all ranks: a checkpoint that does not fit, is damaged or not complete is refused, and
/// nothing has changed.
OptimizerState load_checkpoint(const std::filesystem::path& folder,
                               const std::shared_ptr<Communicator>& world, torch::nn::Module& module,
                               const LoadCheckpointOptions& options = {});

}  // namespace fsdp
