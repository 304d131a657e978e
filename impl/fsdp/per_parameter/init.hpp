#pragma once
// From the arguments of fully_shard to a parameter group: what is managed, and by which ranks.
#include <torch/nn/module.h>

#include <memory>
#include <vector>

#include "fsdp/comm/mesh.hpp"
#include "fsdp/fully_shard.hpp"
#include "per_parameter/param_group.hpp"

namespace fsdp {

using ModuleList = std::vector<std::shared_ptr<torch::nn::Module>>;

/// Throws InvalidArgument for a mesh that is neither 1-D nor 2-D, InvalidState for a 2-D one without names.
void validate_mesh(const DeviceMesh& mesh);

/// Where a unit's parameters go after forward: unsharded (stay), sharded, or sharded_post_forward to a
/// smaller group.
struct PostForward {
  ShardedState state;
  int64_t ranks;
};
/// Throws InvalidArgument for an int that does not divide the shard group. Warns for 1.
PostForward post_forward_of(const ReshardAfterForward& reshard_after_forward, int64_t shard_ranks);

/// Without those that lie below another of the list.
ModuleList root_modules(const ModuleList& modules);

/// The modules under `roots` that no other fully_shard call manages, children first. Modules all of whose
/// parameters are ignored are left out.
ModuleList managed_modules(const ModuleList& roots, const std::vector<at::Tensor>& ignored_params);

/// Their parameters, each once, in order. Throws InvalidArgument for one without dimensions.
std::vector<ManagedParameter> managed_parameters(const ModuleList& modules,
                                                 const std::vector<at::Tensor>& ignored_params);

/// Parameters and buffers that are neither there nor on the meta device.
void move_states_to_device(const ModuleList& modules, const std::vector<ManagedParameter>& parameters,
                           at::Device device);

}  // namespace fsdp
