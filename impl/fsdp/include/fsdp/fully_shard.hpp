#pragma once
// The front door. `fully_shard` shards the parameters under a module over the ranks of a mesh, in place: each
// parameter object stays the same, its data become this rank's shard, and the module's forward gathers and
// frees what it needs.
//
//   auto model = make_model();
//   for (auto& layer : layers(model)) fsdp::fully_shard(layer, {.mesh = mesh});
//   fsdp::fully_shard(model, {.mesh = mesh});       // children first: the root gets the rest
//   torch::optim::SGD optimizer(model->parameters(), 0.1);   // optimizers see shards
//
// Threads: a model is used by one thread at a time, which may be another one each time; autograd may run its
// backward on threads of its own. Different models may be used by different threads at once. Every rank of a
// mesh makes the same calls in the same order: forward and backward gather and reduce, and so are collective.
//
// Rules follow torch.distributed.fsdp.fully_shard of PyTorch 2.11, error texts included.
#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "fsdp/comm/mesh.hpp"
#include "fsdp/errors.hpp"
#include "fsdp/sharded_tensor.hpp"

namespace fsdp {

class FSDPState;

struct MixedPrecisionPolicy {
  /// Of unsharded parameters, hence of compute. None: the original dtype.
  std::optional<at::ScalarType> param_dtype = std::nullopt;
  /// Of the gradient reduction. None: the dtype of the gradient.
  std::optional<at::ScalarType> reduce_dtype = std::nullopt;
  /// Floating-point outputs of forward are cast to it.
  std::optional<at::ScalarType> output_dtype = std::nullopt;
  /// Floating-point inputs are cast to param_dtype.
  bool cast_forward_inputs = true;
};

/// Shards and their gradients lie in host memory: each gather copies shards to the mesh's device, each reduction copies
/// gradients back, and the optimizer runs on the CPU. At the end of the last backward the host waits for the gradients.
/// On a CPU mesh it changes nothing.
struct CPUOffloadPolicy {
  /// In memory that the system does not swap out: copies then run beside compute.
  bool pin_memory = true;
};

/// none: true for all but the root. bool: as it says. int: the number of ranks to reshard to, a divisor of
/// the number of shards.
using ReshardAfterForward = std::variant<std::monostate, bool, int64_t>;

/// Dimension to shard a parameter on; none for dimension 0.
using ShardPlacementFn = std::function<std::optional<int64_t>(const at::Tensor& parameter)>;

enum class TrainingState { idle, forward, pre_backward, post_backward };

/// sharded_post_forward: over the smaller group of an int `reshard_after_forward`.
enum class ShardedState { sharded, sharded_post_forward, unsharded };

struct FullyShardOptions {
  std::optional<DeviceMesh> mesh = std::nullopt;  ///< none: default_mesh()
  ReshardAfterForward reshard_after_forward = std::monostate{};
  MixedPrecisionPolicy mp_policy = {};
  std::optional<CPUOffloadPolicy> offload_policy = std::nullopt;
  std::vector<at::Tensor> ignored_params = {};  ///< neither sharded nor reduced
  ShardPlacementFn shard_placement_fn = nullptr;
};

/// The gather that `unshard(true)` began.
class UnshardHandle {
 public:
  explicit UnshardHandle(std::shared_ptr<FSDPState> state) : state_(std::move(state)) {}
  void wait();

 private:
  std::shared_ptr<FSDPState> state_;
};

/// A parameter of a unit, as this rank sees it now.
struct UnitParameter {
  std::string name;                   ///< from the module that was asked
  at::Tensor parameter;               ///< the registered parameter: shard or unsharded, by state
  std::optional<ShardLayout> layout;  ///< of the shard; none: not managed by FSDP
  /// Of `parameter` as it is now: as `layout`, or over the smaller group of an int reshard_after_forward (cut
  /// on dimension 0; what is sharded on another is shown flat there). None: whole.
  std::optional<ShardLayout> shown;
  ShardedState state = ShardedState::sharded;
  at::Tensor
      gradient;  ///< sharded; or unsharded and waiting, where `gradient_sharded` is false; or undefined
  bool gradient_sharded = true;
  std::shared_ptr<Communicator> group;  ///< shard group, null where layout is none
};

/// Control over one sharded module. A cheap handle; it does not own the module. Methods with `recurse` act on
/// all sharded modules below, too.
class FSDPModule {
 public:
  explicit FSDPModule(std::shared_ptr<FSDPState> state) : state_(std::move(state)) {}

  /// Throws InvalidState for a module that was not sharded. Of a unit of several modules, settings that recurse reach
  /// the units below this module; those of the handle that fully_shard gives, the units below each of them.
  static FSDPModule of(const torch::nn::Module& module);
  static bool is(const torch::nn::Module& module);

  void reshard();
  /// Acts on this unit only; needs no forward before. A handle is returned for `async_op` only.
  std::optional<UnshardHandle> unshard(bool async_op = false);

  void set_is_last_backward(bool is_last_backward);
  void set_requires_gradient_sync(bool requires_gradient_sync, bool recurse = true);
  void set_requires_all_reduce(bool requires_all_reduce, bool recurse = true);
  void set_reshard_after_forward(bool reshard_after_forward, bool recurse = true);
  void set_reshard_after_backward(bool reshard_after_backward, bool recurse = true);
  /// Each throws InvalidArgument for a module that is not sharded.
  void set_modules_to_forward_prefetch(const std::vector<std::shared_ptr<torch::nn::Module>>& modules);
  void set_modules_to_backward_prefetch(const std::vector<std::shared_ptr<torch::nn::Module>>& modules);
  /// Called with each reduced gradient of this unit, all its parameters' parts of this rank one after the
  /// other, in the dtype of the reduction: after the reduce-scatter, or after the all-reduce of a mesh of two
  /// dimensions, and before what is left to divide by and the cast to the original dtype. It changes the
  /// tensor in place and may communicate. Null: none.
  void set_all_reduce_hook(std::function<void(at::Tensor)> hook);
  /// On an accelerator, of a root whose optimizer's step is followed by other work: its next forward gathers as soon as
  /// `event`, recorded behind that step, is reached, and does not wait for what is on the current stream by then. For
  /// that one forward; parameters that are written later than this call are waited for all the same. Nothing on a CPU.
  void set_post_optim_event(std::shared_ptr<c10::Event> event);
  void set_gradient_divide_factor(double factor);
  void set_force_sum_reduction_for_comms(bool enable);
  void set_unshard_in_backward(bool unshard_in_backward);
  /// On an accelerator, for the units of the subtree: whether the gathers that forward and backward begin are put on
  /// the current stream, whose memory they then take, rather than on streams of their own. That keeps no buffer for the
  /// sake of another stream; in exchange they stand in line behind what is computed. Values are the same.
  void set_unshard_async_op(bool async_op);

  TrainingState training_state() const;
  ShardedState sharded_state() const;
  bool is_root() const;  ///< known after the first forward
  const MixedPrecisionPolicy& mp_policy() const;
  /// What was asked for, after the root's own rule and the special cases 1 and "all ranks": false, true or a
  /// group size.
  ReshardAfterForward reshard_after_forward() const;
  /// The parameters that this unit gathers together, in buffer order. Names are relative to the unit's first
  /// module.
  std::vector<UnitParameter> parameters() const;
  const std::shared_ptr<FSDPState>& state() const { return state_; }

 private:
  FSDPModule(std::shared_ptr<FSDPState> state, std::weak_ptr<torch::nn::Module> module)
      : state_(std::move(state)), module_(std::move(module)) {}
  /// Those below which settings recurse.
  std::vector<std::shared_ptr<torch::nn::Module>> modules() const;

  std::shared_ptr<FSDPState> state_;
  std::weak_ptr<torch::nn::Module> module_;  ///< the one that was asked for; of none, all of the unit
};

/// Several modules make one group: gathered before the first of them runs, resharded after the last. A container
/// that nobody calls (ModuleList, ModuleDict) is an InvalidArgument when given by itself.
FSDPModule fully_shard(const std::vector<std::shared_ptr<torch::nn::Module>>& modules,
                       const FullyShardOptions& options = {});
FSDPModule fully_shard(const std::shared_ptr<torch::nn::Module>& module,
                       const FullyShardOptions& options = {});
template <class Contained>
FSDPModule fully_shard(const torch::nn::ModuleHolder<Contained>& holder,
                       const FullyShardOptions& options = {}) {
  return fully_shard(std::static_pointer_cast<torch::nn::Module>(holder.ptr()), options);
}

/// From now on `hook` is called with the parameter, after the hooks that it has, whenever its gradient has been
/// set or added to: for one that is sharded after each reduction, with this rank's shard and the shard's
/// gradient, which hooks may use up (an optimizer in backward) and reset; for another after autograd's
/// accumulation. The parameter must be sharded then, so hooks do not go together with
/// set_reshard_after_backward(false). Throws InvalidArgument for a parameter that requires no gradient.
void register_post_accumulate_grad_hook(const at::Tensor& parameter, std::function<void(at::Tensor)> hook);

/// Every parameter of the tree in named_parameters order, managed or not.
std::vector<UnitParameter> named_parameters(const torch::nn::Module& root);

/// Every unit of the tree in pre-order, with the name of its module, or of the first that it was made of.
std::vector<std::pair<std::string, FSDPModule>> named_units(const torch::nn::Module& root);

/// Moves every parameter and buffer to the meta device: shapes and dtypes without memory. Objects stay the
/// same, values are lost. For a model that is too large to be whole on a rank: call it on each block as soon
/// as the block is made, shard, then give the shards memory by `to_empty` and values by a state dict or a
/// checkpoint. (Module::to(at::kMeta) of LibTorch throws.) Throws InvalidState for a sharded parameter.
void to_meta(torch::nn::Module& module);

/// Gives every parameter and buffer on the meta device memory on `device`, parameters shard by shard, values
/// undefined except for padding. Objects stay the same.
void to_empty(torch::nn::Module& module, at::Device device);

/// Number of pre- and post-backward hooks registered so far by this module's forwards.
struct HookCounters {
  int64_t pre_backward = 0;
  int64_t post_backward = 0;
};
HookCounters hook_counters(const torch::nn::Module& module);

}  // namespace fsdp
