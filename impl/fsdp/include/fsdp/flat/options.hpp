#pragma once
// The values a user hands to FullyShardedDataParallel. Names, defaults and rules are those of PyTorch 2.11's
// torch.distributed.fsdp (FSDP1). Everything of FSDP1 lives in namespace fsdp::flat: a unit's parameters lie
// in one flat parameter, where fully_shard (namespace fsdp) shards each for itself.
#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fsdp/comm/communicator.hpp"
#include "fsdp/comm/mesh.hpp"

namespace fsdp::flat {

class WrapPolicy;

enum class ShardingStrategy { full_shard, shard_grad_op, no_shard, hybrid_shard, hybrid_shard_zero2 };
const char* python_name(ShardingStrategy strategy);  ///< FULL_SHARD, …, _HYBRID_SHARD_ZERO2
bool is_hybrid(ShardingStrategy strategy);

enum class BackwardPrefetch { none, backward_pre, backward_post };

/// What is being done with a unit.
enum class TrainingState { idle, forward_backward, summon_full_params };

struct MixedPrecision {
  /// Of unsharded parameters, hence of compute. None: the original dtype.
  std::optional<at::ScalarType> param_dtype = std::nullopt;
  /// Of the gradient reduction. None: param_dtype, or else the original dtype.
  std::optional<at::ScalarType> reduce_dtype = std::nullopt;
  /// Floating-point buffers are cast to it once, at the first forward. None: not cast.
  std::optional<at::ScalarType> buffer_dtype = std::nullopt;
  /// Gradients are handed to the optimizer in the dtype of compute.
  bool keep_low_precision_grads = false;
  /// Every unit with parameters casts its floating-point inputs to param_dtype.
  bool cast_forward_inputs = false;
  /// The root casts its floating-point inputs to param_dtype; a composable unit does so at every place.
  bool cast_root_forward_inputs = true;
  /// Modules that an auto-wrap policy makes units of their own in full precision. Null: batch norms.
  std::function<bool(const torch::nn::Module&)> module_classes_to_ignore = nullptr;

  /// Dtypes and flags; the function does not take part.
  bool operator==(const MixedPrecision& other) const;
};

using ModuleList = std::vector<std::shared_ptr<torch::nn::Module>>;

struct FSDPOptions {
  /// Ranks to shard over. Null: the default communicator (set_default_communicator). A group that can only
  /// say rank and size will do for looking at how a model is wrapped.
  std::shared_ptr<Communicator> process_group = nullptr;
  /// Hybrid strategies: ranks that hold the same shard. They need this group or a 2-D `device_mesh`.
  std::shared_ptr<Communicator> replicate_group = nullptr;
  /// In place of the groups: 1-D, or 2-D (replicate, shard) for the hybrid strategies.
  std::optional<DeviceMesh> device_mesh = std::nullopt;
  ShardingStrategy sharding_strategy = ShardingStrategy::full_shard;
  /// Shards and reduced gradients lie in host memory from construction on, wherever the module was; pinned, where compute
  /// is on an accelerator. The host has waited for them when a forward or a backward of the root returns.
  bool cpu_offload = false;
  std::shared_ptr<const WrapPolicy> auto_wrap_policy = nullptr;
  BackwardPrefetch backward_prefetch = BackwardPrefetch::backward_pre;
  /// None is not the same as MixedPrecision{}: any value has batch norms wrapped individually by a policy.
  std::optional<MixedPrecision> mixed_precision = std::nullopt;
  /// Neither sharded nor reduced: modules with all below them, except units. Not together with
  /// ignored_states.
  std::optional<ModuleList> ignored_modules = std::nullopt;
  /// Either modules or parameters.
  ModuleList ignored_state_modules = {};
  std::vector<at::Tensor> ignored_parameters = {};
  /// Called for each module with parameters or buffers of its own on the meta device, once they have memory.
  std::function<void(torch::nn::Module&)> param_init_fn = nullptr;
  std::optional<at::Device> device_id = std::nullopt;  ///< none: the group's device
  bool sync_module_states = false;                     ///< rank 0's parameters and buffers for all
  bool forward_prefetch = false;
  /// On an accelerator: the host waits, before it gathers a unit, until of those that were freed one at most is still in
  /// use.
  bool limit_all_gathers = true;
  bool use_orig_params = false;
};

}  // namespace fsdp::flat
