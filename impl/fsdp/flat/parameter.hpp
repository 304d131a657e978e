#pragma once
// The flat parameter of one unit: the shard that lives for ever, the whole that comes and goes, and the
// original parameters as windows onto one or the other.
//
// An original parameter P is always the same object. Sharded, its data are a 1-D piece of the shard (or
// nothing) and it is a leaf. Whole inside forward and backward, its data are a window onto the gathered
// memory and its gradient edge leads to the unit's GradientSink. Whole in a summon scope, or always with
// NO_SHARD, it is a leaf. Gathered memory is freed and refilled in place, so tensors that autograd saved are
// valid again once it is.
#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <vector>

#include "flat/gradient_sink.hpp"
#include "flat/layout.hpp"
#include "flat/parameter_slots.hpp"
#include "fsdp/flat/options.hpp"

namespace fsdp::flat {

inline constexpr auto kFlatParameterName = "_flat_param";

/// A parameter to be flattened, with every place it is registered at; the first is the primary one.
struct MemberPlan {
  at::Tensor parameter;
  std::string name;  ///< from the unit's module
  std::vector<ParameterSlot> slots;
};

/// What the user wants of a parameter, also while it is a part of the graph and therefore requires a
/// gradient.
bool trainable(const at::Tensor& parameter);

enum class Shown { sharded, tensors, params };

class FlatParameter {
 public:
  struct Settings {
    ShardingStrategy strategy = ShardingStrategy::full_shard;
    int64_t rank = 0;   ///< in the group
    int64_t ranks = 1;  ///< of the group
    bool use_orig_params = false;
    MixedPrecision mixed_precision;
    std::shared_ptr<Communicator> group;
    std::weak_ptr<void> unit;                 ///< the state that the registry knows the parameters by
    std::weak_ptr<torch::nn::Module> module;  ///< the unit's, which "_flat_param" is registered with
    bool skip_writeback_check = false;
    at::Device compute_device = at::kCPU;  ///< of everything whole; shards may stay in host memory
  };
  struct Member {
    at::Tensor parameter;  // P
    std::string name;
    std::vector<ParameterSlot> slots;
    std::vector<int64_t> shape;
    ShardPart part;
    at::Tensor sharded_data;
    bool gradient_is_none = false;  ///< the user took it away; what the flat gradient has there is not shown
  };

  /// Checks that the tensors can be flattened together, changes nothing. Throws InvalidArgument.
  static void validate(const std::vector<MemberPlan>& members, bool use_orig_params);

  /// Shards. `members` are validated, whole and on a device with memory.
  FlatParameter(const std::vector<MemberPlan>& members, Settings settings,
                GradientSink::Receiver on_gradients);
  ~FlatParameter();
  FlatParameter(const FlatParameter&) = delete;
  FlatParameter& operator=(const FlatParameter&) = delete;

  // Gathering.
  /// What the user did to parameters and gradients since is taken over (see writeback.cpp); idempotent.
  void writeback();
  /// Begins to gather, unless the whole is there. In full precision it lies in memory of its own where
  /// compute is in low precision.
  void unshard(bool full_precision, const CallSite& site);
  bool needs_unshard(bool full_precision) const;
  void wait_for_unshard(bool full_precision);
  /// `unshard` was called ahead of use: it holds until the parameters are shown whole or their memory is
  /// freed.
  void mark_gathered_ahead(bool full_precision);
  bool gathered_ahead() const;
  bool is_gathered() const;  // also when the shards are shown
  void show_unsharded(bool full_precision, Shown how);
  void show_sharded();
  /// After forward with grad mode: parameters stay whole to the eye though the shard rules again.
  void keep_unsharded_views() { keeps_views_ = true; }
  bool keeps_views() const { return keeps_views_; }
  void free_unsharded(bool full_precision);
  /// The shard was written to from outside: what was gathered before is no longer true.
  void shard_changed();

  // Gradients.
  /// Sums into the whole gradient. One that begins now has this dtype and is divided on the way in; true if
  /// so.
  bool accumulate_whole_gradient(const torch::autograd::variable_list& gradients, at::ScalarType dtype,
                                 double divisor);
  /// Hands the whole, padded gradient over in `dtype`, for reduction.
  at::Tensor take_whole_gradient(at::ScalarType dtype);
  bool has_whole_gradient() const { return whole_gradient_.defined(); }
  /// A reduced gradient, in any dtype: the shard's, or with NO_SHARD the whole one.
  void accept_reduced_gradient(at::Tensor gradient);
  /// Gradients in the slots become windows onto the whole or the sharded one, whichever there is.
  void expose_gradients();
  /// Drops gradients that the user dropped, takes over those the user put in.
  void collect_gradients(bool check_each);
  /// keep_low_precision_grads: the optimizer's gradient in the dtype of compute; and back before
  /// accumulation.
  void lower_gradient_precision();
  void restore_gradient_precision();

  // Summon scope.
  /// The whole in full precision, padded; with memory only while summoned. 1-D.
  const at::Tensor& whole(bool full_precision) const;
  void write_shard_back(const at::Tensor& padded_whole);
  /// use_orig_params = false: original parameters stand in the registration, or the flat parameter does.
  void register_originals();
  void register_flat();

  // State.
  const Settings& settings() const { return settings_; }
  const FlatLayout& layout() const { return layout_; }
  std::vector<Member>& members() { return members_; }
  const std::vector<Member>& members() const { return members_; }
  const at::Tensor& local_shard() const { return local_shard_; }
  const at::Tensor& flat_parameter() const { return flat_parameter_; }  ///< with use_orig_params undefined
  const at::Tensor& sharded_gradient() const { return sharded_gradient_; }
  const at::Tensor& whole_gradient() const { return whole_gradient_; }
  void set_whole_gradient(at::Tensor padded) { whole_gradient_ = std::move(padded); }
  Shown shown() const { return shown_; }
  bool sharded_strategy() const { return settings_.strategy != ShardingStrategy::no_shard; }
  bool requires_grad() const;
  /// Whether a gradient edge leads to the unit's sink now: this forward has its post-backward hook.
  bool catches_gradients() const;
  at::ScalarType original_dtype() const { return local_shard_.scalar_type(); }
  at::ScalarType compute_dtype() const { return compute_dtype_; }
  at::ScalarType reduce_dtype() const { return reduce_dtype_; }
  bool low_precision_compute() const { return compute_dtype_ != original_dtype(); }
  int64_t shard_index() const { return sharded_strategy() ? settings_.rank : 0; }
  /// After module.to(): the shard follows its parameters to their device and dtype.
  void follow_moves();

 private:
  struct Unsharded {
    at::Tensor padded;  // memory comes and goes, except NO_SHARD in full precision, where it is the shard
    std::vector<at::Tensor> windows;
    std::shared_ptr<GradientSink> sink;
    WorkPtr gathering;
    bool gathered_ahead = false;  // for a pass that has not come to this unit yet
  };
  void settle_dtypes(at::ScalarType original);
  void adopt_shard(at::Tensor shard);
  void make_unsharded(Unsharded& unsharded, at::ScalarType dtype);
  Unsharded& unsharded(bool full_precision);
  const Unsharded& unsharded(bool full_precision) const;
  void writeback_parameters();
  void put_back_parameters();
  at::Tensor shard_window(const at::Tensor& flat, const Member& member) const;
  /// The part of the gradient that user code sees; undefined for what this rank's shard has nothing of.
  at::Tensor gradient_window(size_t index) const;
  void take_user_gradient(size_t index);
  void adopt_flat_parameter_changes();

  Settings settings_;
  FlatLayout layout_;
  std::vector<Member> members_;
  at::ScalarType compute_dtype_ = at::kFloat, reduce_dtype_ = at::kFloat;
  GradientSink::Receiver on_gradients_;
  at::Tensor local_shard_;     // 1-D, original dtype; NO_SHARD: the whole
  at::Tensor flat_parameter_;  // a leaf over local_shard_, without use_orig_params
  Unsharded compute_, full_precision_;
  const Unsharded* shown_unsharded_ = nullptr;
  Shown shown_ = Shown::sharded;
  bool keeps_views_ = false;
  at::Tensor sharded_gradient_;  // 1-D, of the shard; none with NO_SHARD
  at::Tensor whole_gradient_;    // 1-D, padded: from no_sync, or NO_SHARD's
};

}  // namespace fsdp::flat
