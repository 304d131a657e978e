#pragma once
// The front door of FSDP1. A unit's parameters are flattened into one flat parameter and sharded over the
// ranks, in place: C++ modules cannot be exchanged for wrappers, so the module itself is hooked and stays the
// object it is, and names have no prefix.
//
//   fsdp::flat::FullyShardedDataParallel fsdp(model, {.auto_wrap_policy = policy, .use_orig_params = true});
//   torch::optim::SGD optimizer(model->parameters(), 0.1);
//
// use_orig_params = true: the parameters stay registered, the same objects as before. Outside forward and
// backward each is a 1-D piece of this rank's shard, or empty; inside it has its shape and is no leaf.
// use_orig_params = false: they leave the registration (the module's typed members keep them); one parameter
// "_flat_param" per unit takes their place.
//
// Threads: as in fsdp/fully_shard.hpp.
//
// Error texts are PyTorch's. A constructor that throws leaves the model unsharded; what was on the meta
// device may have got memory, and values of rank 0 may have come, by then.
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fsdp/errors.hpp"
#include "fsdp/flat/options.hpp"
#include "fsdp/flat/scope.hpp"

namespace fsdp::flat {

class FlatState;

struct SummonOptions {
  bool recurse = true;    ///< all units below, too
  bool writeback = true;  ///< at the end each rank takes over its own part of what was changed
  bool rank0_only = false;
  bool offload_to_cpu = false;
  bool with_grads = false;
};

/// How often, so far, in forwards and backwards of one unit.
struct HookCounters {
  int64_t pre_backward_registrations = 0;   ///< hooks hung on outputs
  int64_t post_backward_registrations = 0;  ///< forwards whose parameters lead to the unit's gradient
  int64_t unsharded_views_as_tensors = 0;   ///< parameters shown whole, as parts of the autograd graph
  int64_t unsharded_views_as_params = 0;    ///< parameters shown whole, as leaves
};

/// Control over one unit. A cheap handle; it does not own the module.
class FullyShardedDataParallel {
 public:
  /// Makes `module` a unit, and those below it that the policy names. Throws InvalidArgument, also for a
  /// module that is a unit already.
  explicit FullyShardedDataParallel(const std::shared_ptr<torch::nn::Module>& module,
                                    const FSDPOptions& options = {});
  template <class Contained>
  explicit FullyShardedDataParallel(const torch::nn::ModuleHolder<Contained>& holder,
                                    const FSDPOptions& options = {})
      : FullyShardedDataParallel(std::static_pointer_cast<torch::nn::Module>(holder.ptr()), options) {}

  /// Throws InvalidState for a module that is no unit.
  static FullyShardedDataParallel of(const torch::nn::Module& module);
  static bool is(const torch::nn::Module& module);

  /// Inside the scope backward keeps whole gradients, in the dtype of compute, and does not communicate.
  /// Throws RuntimeError for a unit that is not the root.
  Scope no_sync();
  /// Inside the scope parameters are whole and in full precision. Throws NotImplemented for combinations
  /// that do not exist, InvalidState during forward, backward or another such scope, RuntimeError for a
  /// parameter that cannot be written back. Units that are none under `module` are passed over. Leave it by
  /// `leave()` where an error of writing back matters. Collective.
  static Scope summon_full_params(const torch::nn::Module& module, const SummonOptions& options = {});

  /// From now on `hook` reduces the gradients of this unit and all below it, in place of the library. It gets
  /// the whole gradient of one unit, padded, in the dtype of the reduction and not divided by anything, and the
  /// tensor for this rank's shard, undefined with NO_SHARD, where the gradient itself is to be reduced. What it
  /// leaves there is taken for the result. Throws InvalidState for a unit that is not the root, for a hybrid
  /// strategy, and the second time.
  void register_comm_hook(std::function<void(at::Tensor gradient, at::Tensor shard)> hook);

  /// Scales gradients so that their norm over all ranks is at most `max_norm`; returns the norm before, in
  /// the promoted dtype of this rank's gradients (float32 with a warning where it has none). Throws
  /// RuntimeError for a unit that is not the root. Collective.
  at::Tensor clip_grad_norm_(double max_norm, double norm_type = 2.0);

  TrainingState training_state() const;
  bool is_root() const;  ///< known after the first forward
  bool is_composable() const;
  const MixedPrecision& mixed_precision() const;
  ShardingStrategy sharding_strategy() const;  ///< after the rule for groups of one rank
  BackwardPrefetch backward_prefetch() const;
  bool forward_prefetch() const;
  bool limit_all_gathers() const;
  bool cpu_offload() const;
  bool use_orig_params() const;
  int64_t rank() const;
  int64_t world_size() const;
  const std::shared_ptr<Communicator>& process_group() const;
  HookCounters counters() const;
  /// use_orig_params = false: what the optimizer updates. Undefined otherwise, and for a unit without
  /// parameters.
  at::Tensor flat_parameter() const;

  const std::shared_ptr<FlatState>& state() const { return state_; }

 private:
  explicit FullyShardedDataParallel(std::shared_ptr<FlatState> state) : state_(std::move(state)) {}
  std::shared_ptr<FlatState> state_;
};

/// What the composable form leaves open: no wrapper, use_orig_params, BACKWARD_PRE and limited gathers
/// always.
struct ComposableOptions {
  std::shared_ptr<Communicator> process_group = nullptr;
  std::shared_ptr<Communicator> replicate_group = nullptr;
  std::shared_ptr<const WrapPolicy> policy = nullptr;
  ShardingStrategy strategy = ShardingStrategy::full_shard;
  std::optional<MixedPrecision> mixed_precision = std::nullopt;
  bool cpu_offload = false;
  std::optional<ModuleList> ignored_modules = std::nullopt;
  std::optional<at::Device> device_id = std::nullopt;
  std::function<void(torch::nn::Module&)> param_init_fn = nullptr;
  bool sync_module_states = false;
  bool forward_prefetch = false;
  ModuleList ignored_state_modules = {};
  std::vector<at::Tensor> ignored_parameters = {};
};

/// The same engine without the wrapper's name. One difference in training: a unit below the root casts its
/// inputs by `cast_root_forward_inputs`, too. Throws InvalidState for a module that is a unit already.
FullyShardedDataParallel fully_shard(const std::shared_ptr<torch::nn::Module>& module,
                                     const ComposableOptions& options = {});

/// Every unit of the tree in pre-order, with its name; a module that stands at several places once.
std::vector<std::pair<std::string, FullyShardedDataParallel>> named_units(const torch::nn::Module& root);

}  // namespace fsdp::flat
