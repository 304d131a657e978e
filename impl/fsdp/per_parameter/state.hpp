#pragma once
// What fully_shard attaches to a module: the hooks around forward and backward, and who is root.
//
// Forward:  before  lazy init, cast inputs, unshard, put post_backward on the inputs' gradients, explicit
// prefetches
//           after   reshard, put pre_backward on the outputs' gradients, cast outputs
// Backward: first gradient of an output   unshard, prefetch the next unit
//           gradients of all inputs done  reshard, reduce
//           end of the graph task         what is missing, for every unit; then all are idle
#include <torch/nn/module.h>

#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "fsdp/fully_shard.hpp"
#include "fsdp/hooks.hpp"
#include "per_parameter/param_group.hpp"

namespace fsdp {

class FSDPState;

/// Shared by all states under one root.
struct StateContext {
  std::vector<std::weak_ptr<FSDPState>> all_states;  ///< in module order
  const FSDPState* iter_forward_root = nullptr;
  bool post_backward_final_callback_queued = false;
  bool is_last_backward = true;
  std::optional<StreamEvent> post_optim_event;  ///< of the next forward alone
  std::shared_ptr<CommContext> comm = std::make_shared<CommContext>();
};

class FSDPState : public std::enable_shared_from_this<FSDPState> {
 public:
  FSDPState(const std::vector<std::shared_ptr<torch::nn::Module>>& modules, MixedPrecisionPolicy policy,
            bool auto_reshard_after_forward);
  ~FSDPState();

  /// Null for a module without state.
  static std::shared_ptr<FSDPState> of(const torch::nn::Module& module);
  /// The parameter's state and its index in the group; null if FSDP does not manage it.
  static std::pair<std::shared_ptr<FSDPState>, size_t> of_parameter(const at::Tensor& parameter);

  /// Hooks the modules; throws what install_forward_hooks throws. The hooks do nothing until `activate`.
  void install_hooks();
  /// From now on the modules belong to this state. `group` is null for a unit without parameters of its own.
  void activate(std::unique_ptr<FSDPParamGroup> group, at::Device device);

  FSDPParamGroup* group() const { return group_.get(); }
  std::vector<std::shared_ptr<torch::nn::Module>> modules() const;
  const MixedPrecisionPolicy& policy() const { return policy_; }
  TrainingState training_state() const { return training_state_; }
  bool is_root() const { return is_root_.value_or(false); }
  StateContext& context() { return *context_; }

  void set_post_optim_event(std::shared_ptr<c10::Event> event);

  TensorList pre_forward(TensorList inputs);
  TensorList post_forward(TensorList outputs);
  void pre_backward();
  void post_backward();
  /// After an exception that ended a backward, whose final callback then never comes: what the units had begun is
  /// dropped. Otherwise, and within a backward, nothing.
  void leave_failed_backward();

  std::vector<std::weak_ptr<FSDPState>> states_to_forward_prefetch;
  std::vector<std::weak_ptr<FSDPState>> states_to_backward_prefetch;
  /// Whether the root may turn resharding after forward off: nobody asked for a particular value.
  bool auto_reshard_after_forward;
  HookCounters counters;

 private:
  friend struct FinalCallback;
  /// Whether forward runs again in backward, for activation checkpointing.
  bool recomputes() const;
  TensorList run_before(TensorList inputs);
  TensorList run_after(size_t module, TensorList outputs);
  void lazy_init();
  void init_names(const torch::nn::Module& root);
  void root_pre_forward(TensorList& inputs);
  void failed_forward();
  void wait_for_shards();
  void wait_for_copies_from_host();
  void note_shards_awaited() const;
  void register_pre_backward_hooks(const TensorList& outputs);
  void register_post_backward_hook(TensorList& inputs);
  void queue_final_callback();
  void finalize_backward();

  std::vector<std::weak_ptr<torch::nn::Module>> modules_;
  std::unordered_set<size_t> modules_to_run_forward_;
  MixedPrecisionPolicy policy_;
  at::Device device_ = at::kCPU;
  std::unique_ptr<FSDPParamGroup> group_;
  std::optional<bool> is_root_;
  TrainingState training_state_ = TrainingState::idle;
  std::shared_ptr<StateContext> context_ = std::make_shared<StateContext>();
  bool active_ = false;
};

}  // namespace fsdp
