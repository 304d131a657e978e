#pragma once
// The parameters of one fully_shard call: gathered together, reduced together.
#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/streams.hpp"
#include "fsdp/hooks.hpp"
#include "per_parameter/collectives.hpp"
#include "per_parameter/param.hpp"

namespace fsdp {

class FSDPParamGroup;

/// On an accelerator communication runs beside compute. Gathers of forward and pre-backward read what an optimizer
/// wrote on the current stream: each pass begins with `wait_current`.
struct CommStreams {
  SideStream copy_in, all_gather, reduce_scatter, all_reduce;

  CommStreams() = default;  ///< everything on the current stream
  explicit CommStreams(at::Device device);
  void gathers_wait_current() const;
  void gathers_wait_event(const StreamEvent& event) const;
};

/// What a forward gathered and copied out. Freed one gather later, so that the next gather need not wait for the
/// copy-out on the host's behalf.
struct CopiedOut {
  AllGatherResult result;
  StreamEvent copied;
};

/// Shared by all groups under one root.
struct CommContext {
  CommStreams streams;
  std::optional<CopiedOut> copied_out;
  /// The last reduction on an accelerator, whose input is freed when the next one begins. One at a time, which
  /// bounds the memory in flight.
  StreamEvent scattered;
  at::Tensor scatter_input;

  void free_copied_out();
  void free_scatter_input();

  /// Groups in the order in which their forwards ended, with multiplicity.
  std::vector<FSDPParamGroup*> post_forward_order;
  /// On a CPU: the group whose gradients are on their way; also one at a time.
  FSDPParamGroup* reducing = nullptr;
};

/// The groups of ranks a parameter group talks to.
struct GroupRanks {
  std::shared_ptr<Communicator> shard;
  std::shared_ptr<Communicator> replicate;  ///< null without HSDP
  std::shared_ptr<Communicator>
      post_forward;  ///< the smaller group of an int reshard_after_forward, else null
};

struct ManagedParameter {
  at::Tensor parameter;
  std::string name;
};

class FSDPParamGroup {
 public:
  /// Checks all parameters, then shards them. Throws what FSDPParam throws, before anything changed.
  FSDPParamGroup(const std::vector<ManagedParameter>& parameters, GroupRanks ranks,
                 ShardedState after_forward, MixedPrecisionPolicy policy,
                 std::optional<CPUOffloadPolicy> offload, ShardPlacementFn placement);
  ~FSDPParamGroup();
  FSDPParamGroup(const FSDPParamGroup&) = delete;
  FSDPParamGroup& operator=(const FSDPParamGroup&) = delete;

  /// Idempotent. Adopts parameters that were given other memory, settles dtypes. Throws RuntimeError for
  /// parameters on the meta device, or not in host memory where they are offloaded, InvalidState for trainable parameters of several dtypes.
  void lazy_init();
  void materialize(at::Device device);  ///< gives meta parameters memory

  /// Begins the gather unless there is one or nothing to gather. `wait_for_unshard` ends it.
  void unshard();
  void wait_for_unshard();
  void reshard();
  void to_sharded();

  void pre_forward();
  void post_forward(bool record);
  void pre_backward(bool default_prefetch);
  void post_backward();
  void finalize_backward();
  /// After a forward that an exception ended: sharded again, and what was gathered ahead is dropped.
  void abandon_forward();
  /// After a backward that an exception ended: nothing of it is awaited or reduced any more, and gradients
  /// that wait for a reduction are dropped, since what the failed backward left of its own is among them.
  void abandon_backward();
  /// Gathers ahead of use, for the given pass.
  void prefetch(TrainingState pass);
  void wait_for_reduction();
  /// With offload: the host waits until no gather reads its memory any more, so that whoever steps or loads next may write there. A
  /// backward that hands gradients over has waited for more.
  void wait_for_copies_from_host();
  bool offloads() const { return offload_.has_value(); }
  /// On an accelerator: the streams of gathers have waited for what was written to shards until now.
  void shards_awaited() { awaited_version_ = shards_version(); }
  /// Somebody has written to them past autograd's notice, on the current stream.
  void shards_written() { awaited_version_.reset(); }

  TrainingState training_state() const { return training_state_; }
  void set_training_state(TrainingState state) { training_state_ = state; }
  ShardedState sharded_state() const { return sharded_state_; }
  const std::vector<std::unique_ptr<FSDPParam>>& params() const { return params_; }
  const GroupRanks& ranks() const { return ranks_; }
  void set_context(std::shared_ptr<CommContext> context) { context_ = std::move(context); }
  void set_name(const std::string& name);

  // What users switch; see FSDPModule.
  bool reduce_grads = true;
  bool all_reduce_grads = true;
  bool reshard_after_backward = true;
  bool unshard_in_backward = true;
  bool unshard_async_op = false;
  ShardedState after_forward;  ///< unsharded: no reshard; sharded_post_forward: to the smaller group
  std::optional<double> gradient_divide_factor;
  bool force_sum_reduction_for_comms = false;
  std::function<void(at::Tensor)> all_reduce_hook;

 private:
  void lay_out(at::Device device, bool first);
  void adopt_replaced_parameters();
  void require_parameters_on_cpu() const;
  AllGatherInput gather_input() const;
  Communicator& gather_group() const;
  void to_unsharded();
  void to_sharded_post_forward();
  void free_unsharded();
  void drop_gather();
  void backward_prefetch();
  void reduce_gradients();
  Reduced finish_reduction();
  CallSite call_site() const;
  uint64_t shards_version() const;     ///< grows whenever somebody writes to a parameter
  int64_t data_parallel_size() const;  ///< ranks whose gradients are averaged

  std::vector<std::unique_ptr<FSDPParam>> params_;
  GroupRanks ranks_;
  MixedPrecisionPolicy policy_;
  std::optional<CPUOffloadPolicy> offload_;  ///< none on a CPU
  CallSite site_;
  TrainingState training_state_ = TrainingState::idle;
  std::shared_ptr<CommContext> context_ = std::make_shared<CommContext>();
  ShardedState sharded_state_ = ShardedState::sharded;

  std::optional<AllGatherResult> gathering_;
  StreamEvent copied_from_host_;  ///< behind the last gather's copy-in, where parameters are offloaded
  std::optional<uint64_t> awaited_version_;
  StreamEvent resharded_;                        ///< behind the copies of post_forward_pieces_
  std::vector<at::Tensor> post_forward_pieces_;  ///< while sharded over the smaller group
  std::optional<ReduceResult> reducing_;
  Reduced reduced_;                   ///< on an accelerator: until the end of the backward
  bool all_reduces_ = true;           ///< of the reduction under way
  at::Tensor partial_reduce_output_;  ///< HSDP: reduce-scattered, not yet all-reduced
  std::vector<int64_t> post_forward_indices_;
  bool lazily_initialized_ = false;
};

}  // namespace fsdp
