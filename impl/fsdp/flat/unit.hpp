#pragma once
// What FullyShardedDataParallel attaches to a module: the hooks around forward and backward.
//
// Forward:  before  lazy init, cast inputs, write back, unshard, prefetch the next unit
//           after   reshard, put pre_backward on the outputs' gradients
// Backward: first gradient of an output     unshard, prefetch the previous unit
//           all gradients of the unit done  reshard, prefetch (BACKWARD_POST), reduce
//           end of the graph task           wait for reductions, reshard what is left; then all are idle
//
// On an accelerator units are gathered and reduced on streams of their own (flat/streams.hpp). A root's forward lets these
// wait for what was done before it, the end of its backward lets the current stream wait for them.
#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "flat/parameter.hpp"
#include "flat/streams.hpp"
#include "fsdp/flat/fully_sharded_data_parallel.hpp"
#include "fsdp/hooks.hpp"

namespace fsdp::flat {

class FlatState;
class ExecutionOrderCheck;

struct UnitContext {
  std::string name;  ///< from the root, once lazily initialised
  ShardingStrategy strategy = ShardingStrategy::full_shard;
  int64_t rank = 0;      ///< in the shard group
  int64_t ranks = 1;     ///< of the shard group
  int64_t replicas = 1;  ///< of the hybrid strategies
  bool is_root = false;
  bool is_composable = false;
};

/// How gradients become a mean over the ranks: divide, sum, divide.
struct Division {
  double before = 1.0;  ///< the smallest power of two f with f >= ranks / f, as long as f divides `ranks`
  double after = 1.0;
};
Division division_for(int64_t ranks);

/// What is being done with a unit's flat parameter.
enum class HandleState { idle, forward, backward_pre, backward_post, summon_full_params };

/// Shared by all units under one root.
struct StateContext {
  std::vector<std::weak_ptr<FlatState>> all_states;  ///< in module order
  std::vector<FlatState*> pre_forward_order;         ///< of the first iteration, each unit once
  std::vector<FlatState*> post_forward_order;        ///< of this iteration, with multiplicity
  bool first_iteration = true;
  bool root_in_forward = false;
  bool final_callback_queued = false;
  FlatState* reducing = nullptr;  ///< whose gradient is on its way: one at a time bounds the memory in flight

  // On an accelerator; see flat/streams.hpp. There `reducing` stays null.
  FlatStreams streams;
  FreeEvents free_events;
  KeptTensors copy_in_inputs;  ///< gradients of the current stream; before the next copy-in it waits
  KeptTensors reduce_inputs;   ///< the whole gradient of pre_reduce, which waits behind the next copy-in
  /// What reductions use on another stream than its own also after that; until the end of backward.
  std::vector<at::Tensor> used_by_reductions;
  std::shared_ptr<ExecutionOrderCheck> order_check;  ///< null: not checked
};

struct BufferDtype {
  at::Tensor buffer;
  at::ScalarType original;
};

class FlatState : public std::enable_shared_from_this<FlatState> {
 public:
  struct Ranks {
    std::shared_ptr<Communicator> shard;
    std::shared_ptr<Communicator> replicate;  ///< hybrid strategies only
  };

  FlatState(const std::shared_ptr<torch::nn::Module>& module, FSDPOptions options, Ranks ranks,
            bool composable);
  ~FlatState();

  /// Null for a module that is no unit.
  static std::shared_ptr<FlatState> of(const torch::nn::Module& module);
  /// The parameter's unit and its index there; null if no unit holds it.
  static std::pair<std::shared_ptr<FlatState>, size_t> of_parameter(const at::Tensor& parameter);
  static std::vector<std::shared_ptr<FlatState>> all_under(const torch::nn::Module& root);

  /// Hooks the module; throws what install_forward_hooks throws. The hooks do nothing until `activate`.
  void install_hooks();
  /// From now on the module is a unit; `members` are sharded. Empty: a unit without parameters.
  void activate(const std::vector<MemberPlan>& members);

  void lazy_init();

  std::shared_ptr<torch::nn::Module> module() const { return module_.lock(); }
  /// For calls through a handle, which does not own the module. Throws InvalidState if it is gone.
  std::shared_ptr<torch::nn::Module> require_module() const;
  FlatParameter* flat() const { return flat_.get(); }
  /// As given, without the ignored modules.
  const FSDPOptions& options() const { return options_; }
  /// Those that are left of what it was told to ignore.
  ModuleList ignored_modules() const;
  const MixedPrecision& mixed_precision() const { return mixed_precision_; }
  const Ranks& ranks() const { return ranks_; }
  const UnitContext& unit() const { return unit_; }
  StateContext& context() { return *context_; }
  TrainingState training_state() const { return training_state_; }
  void set_training_state(TrainingState state) { training_state_ = state; }
  HandleState handle_state() const { return handle_state_; }
  void set_handle_state(HandleState state) { handle_state_ = state; }
  bool is_root() const { return is_root_.value_or(false); }
  bool full_precision() const;  ///< whether mixed precision is off at this moment
  const std::vector<BufferDtype>& cast_buffers() const { return cast_buffers_; }
  CallSite call_site(Phase phase) const { return {unit_.name, true, phase}; }

  // The parts that a summon scope and a state dict need one by one.
  /// Takes over what users changed and begins to gather.
  void unshard(const CallSite& site);
  void wait_and_show();
  void show_sharded();
  /// After an exception that ended a backward, whose final callback then never comes: what the units had begun is
  /// dropped. Otherwise, and within a backward, nothing.
  void leave_failed_backward();

  bool sync_gradients = true;
  std::function<void(at::Tensor gradient, at::Tensor shard)> comm_hook;  ///< reduces in place of this class
  HookCounters counters;

 private:
  TensorList pre_forward(TensorList inputs);
  TensorList post_forward(TensorList outputs);
  void failed_forward();
  void abandon_forward();
  void root_pre_forward(TensorList& inputs);
  void cast_inputs(TensorList& inputs, bool wanted) const;
  void record_pre_forward();
  void record_post_forward();
  void register_pre_backward_hooks(const TensorList& outputs);
  void register_reshard_only_hook(TensorList& inputs);
  void pre_backward();
  void post_backward(torch::autograd::variable_list gradients);
  void post_backward_reshard();
  void wait_for_writes();
  /// The gradient of the whole unit as it is to be reduced, divided; post_backward comes after it.
  at::Tensor copy_in(torch::autograd::variable_list gradients);
  void reduce(at::Tensor whole);
  void wait_for_reduction();
  void queue_final_callback();
  static void finish_backward(StateContext& context);
  void finalize();
  bool frees_after_forward() const;
  bool frees_after_backward() const;
  bool keeps_views_after_forward() const;
  Division division() const;
  void prefetch(HandleState pass);
  void reshard(bool free);
  void init_buffers(const std::vector<std::shared_ptr<FlatState>>& states);
  void switch_buffers();
  bool in_pass() const { return training_state_ == TrainingState::forward_backward; }

  /// A unit's backward, as the latest forward with grad mode left it.
  enum class Backward {
    not_expected,  ///< no forward, or none of its outputs requires a gradient
    expected,      ///< hooks hang on outputs: parameters must be gathered first, and may be ahead of that
    begun,         ///< the first gradient of an output came; those of other outputs change nothing
  };
  /// What is remembered from the first forward to the end of the backward that follows.
  struct Round {
    Backward backward = Backward::not_expected;
    std::optional<int64_t> post_forward_index;
    /// Not phases of `backward`: both outlast a further forward of the unit, as in recomputation.
    bool gradients_came = false;
    bool reshard_only_hooked = false;  ///< on the inputs of the first forward, which in backward is the last
  };
  struct Reduction {
    at::Tensor input, output;
    WorkPtr work;
  };

  std::weak_ptr<torch::nn::Module> module_;
  FSDPOptions options_;
  std::vector<std::weak_ptr<torch::nn::Module>> ignored_modules_;
  MixedPrecision mixed_precision_;
  Ranks ranks_;
  UnitContext unit_;
  at::Device device_ = at::kCPU;
  bool full_precision_in_eval_, skip_writeback_check_;
  std::unique_ptr<FlatParameter> flat_;
  std::shared_ptr<StateContext> context_ = std::make_shared<StateContext>();
  bool active_ = false;
  std::optional<bool> is_root_;
  TrainingState training_state_ = TrainingState::idle;
  HandleState handle_state_ = HandleState::idle;
  /// The root runs, and this unit has not yet: it may be gathered ahead. No phase of `Backward`, since a
  /// forward may begin while earlier ones wait for their backward.
  bool forward_expected_ = false;
  std::optional<int64_t> pre_forward_index_;
  Round round_;
  std::optional<Reduction> reducing_;
  std::optional<FlatShard::Version> awaited_version_;  ///< what the streams of gathers have waited for
  std::vector<BufferDtype> cast_buffers_;  ///< of the root: every buffer whose dtype compute changes
  std::vector<at::ScalarType> low_buffer_dtypes_;
  bool buffers_restored_ = false;  ///< to their own dtypes; goes with train and eval, not with rounds
};

}  // namespace fsdp::flat
