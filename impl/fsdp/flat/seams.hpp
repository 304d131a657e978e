#pragma once
// Decisions that an implementation of FSDP1 can get wrong, each behind a small class whose methods *are* the
// correct rule; see fsdp/seams.hpp for the idea. Handed in through FSDPOptions::seams.
#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "fsdp/comm/communicator.hpp"
#include "fsdp/flat/api.hpp"
#include "fsdp/seams.hpp"

namespace fsdp::flat {

/// Which unit a rule is asked about.
struct UnitContext {
  std::string name;  ///< from the root, once lazily initialised
  ShardingStrategy strategy = ShardingStrategy::full_shard;
  int64_t rank = 0;      ///< in the shard group
  int64_t ranks = 1;     ///< of the shard group
  int64_t replicas = 1;  ///< of the hybrid strategies
  bool is_root = false;
  bool is_composable = false;
};

/// How parameters lie in the flat parameter. In elements.
class LayoutRule {
 public:
  virtual ~LayoutRule() = default;
  /// Parameters start at multiples of this. 16 bytes of the compute dtype with use_orig_params, else 1.
  virtual int64_t alignment(bool use_orig_params, at::ScalarType compute_dtype) const;
  /// What fills the gaps: 42 with use_orig_params, else 0.
  virtual double filler(bool use_orig_params) const;
  /// Elements of every rank's shard: ceil(numel / ranks).
  virtual int64_t shard_numel(int64_t unsharded_numel, int64_t ranks) const;
};

class CastRule {
 public:
  virtual ~CastRule() = default;
  virtual at::ScalarType compute_dtype(const MixedPrecision& policy, at::ScalarType original) const;
  virtual at::ScalarType reduce_dtype(const MixedPrecision& policy, at::ScalarType original) const;
  /// Whether a unit casts its inputs as a root does: the root itself and, in the composable form, every unit.
  virtual bool casts_as_root(const UnitContext& unit, const MixedPrecision& policy) const;
  /// Whether a unit with parameters casts its inputs.
  virtual bool casts_inputs(const UnitContext& unit, const MixedPrecision& policy) const;
  /// Whether eval mode computes in full precision, given that FSDP_USE_FULL_PREC_IN_EVAL was on at
  /// construction.
  virtual bool full_precision_in_eval(bool switched_on) const { return switched_on; }
  virtual at::Tensor input(const at::Tensor& tensor, at::ScalarType dtype) const;
};

struct Division {
  double before = 1.0;
  double after = 1.0;
};

/// How gradients become a mean over the ranks: divide, sum, divide.
class ReduceRule {
 public:
  virtual ~ReduceRule() = default;
  /// `before` is the smallest power of two f with f >= ranks / f, as long as f divides the number of ranks.
  virtual Division division(int64_t ranks) const;
  /// Whether this backward reduces, given that it is (not) inside no_sync.
  virtual bool reduces(const UnitContext& unit, bool sync_gradients) const;
  /// A new shard of the gradient joins an earlier one.
  virtual void accumulate(at::Tensor& accumulated, const at::Tensor& gradient) const;
};

/// What stands in a flat gradient beside what backward made, and who gets to see it.
class GradientRule {
 public:
  virtual ~GradientRule() = default;
  /// Both fill with zeros what had another use before: the place of a member that backward did not reach, and
  /// gaps and padding.
  virtual void unreached(const at::Tensor& window) const;
  virtual void gap(const at::Tensor& window) const;
  virtual bool exposes(bool requires_grad, bool is_none) const { return requires_grad && !is_none; }
};

/// What happens to unsharded parameters when a pass is over.
class ReshardRule {
 public:
  virtual ~ReshardRule() = default;
  virtual bool frees_after_forward(const UnitContext& unit) const;
  virtual bool frees_after_backward(const UnitContext& unit, bool sync_gradients) const;
  /// Whether parameters stay whole to the eye between forward and backward.
  virtual bool keeps_views_after_forward(const UnitContext& unit) const;
  virtual void free(const UnitContext& unit, const at::Tensor& unsharded) const;
  virtual TrainingState after_backward() const { return TrainingState::idle; }
};

/// Which unit is gathered ahead, as index into the order in which forwards ended (backward) or, in the first
/// iteration, began (forward).
class PrefetchRule {
 public:
  virtual ~PrefetchRule() = default;
  virtual std::optional<int64_t> in_backward(const UnitContext& unit, int64_t post_forward_index) const;
  virtual std::optional<int64_t> in_forward(const UnitContext& unit, int64_t pre_forward_index) const;
  /// When a unit gathers ahead in backward, if at all: as its options say.
  virtual BackwardPrefetch moment(const UnitContext&, BackwardPrefetch configured) const {
    return configured;
  }
};

/// How changes that users made to parameters and gradients get back into the flat parameter.
class WritebackRule {
 public:
  virtual ~WritebackRule() = default;
  virtual bool checks(const UnitContext& unit, bool skip_writeback_check) const;
  virtual void write(const at::Tensor& destination, const at::Tensor& source) const;
};

/// What a unit shows to autograd.
class HookRule {
 public:
  virtual ~HookRule() = default;
  /// Backward hooks on each output of a unit: one, which gathers the unit's parameters again.
  virtual int64_t on_output(const UnitContext&) const { return 1; }
  /// Whether whole parameters are parts of the graph: yes in forward and backward, so that gradients reach
  /// the flat parameter; no while they are summoned.
  virtual bool shows_tensors(const UnitContext&, bool in_pass) const { return in_pass; }
  /// Whether such a parameter, by its index in the unit, is given its edge to the unit's gradient: yes.
  virtual bool catches_gradient(const UnitContext&, size_t /*member*/) const { return true; }
};

/// What a state dict holds.
class StateDictRule {
 public:
  virtual ~StateDictRule() = default;
  /// The rows of a whole parameter that become a rank's entry of a sharded state dict.
  virtual Rows rows(const ShardLayout& layout) const { return {layout.start, layout.start + layout.length}; }
  /// A unit that is not sharded has whole parameters in a sharded state dict, and says so.
  virtual void warn_of_whole(const UnitContext& unit) const;
};

class WrapRule;  // fsdp/wrap/wrap_rule.hpp

/// A member left empty stands for the correct rule.
struct Seams {
  std::shared_ptr<const LayoutRule> layout = nullptr;
  std::shared_ptr<const CastRule> cast = nullptr;
  std::shared_ptr<const ReduceRule> reduce = nullptr;
  std::shared_ptr<const GradientRule> gradient = nullptr;
  std::shared_ptr<const ReshardRule> reshard = nullptr;
  std::shared_ptr<const PrefetchRule> prefetch = nullptr;
  std::shared_ptr<const WritebackRule> writeback = nullptr;
  std::shared_ptr<const HookRule> hook = nullptr;
  std::shared_ptr<const StateDictRule> state_dict = nullptr;
  std::shared_ptr<const WrapRule> wrap = nullptr;
  /// Wraps the shard group and the replicate group of every unit.
  std::function<std::shared_ptr<Communicator>(std::shared_ptr<Communicator>)> communicator = nullptr;
  /// Called before a unit frees its unsharded parameters in forward, and before it reduces gradients.
  std::function<void(const UnitContext&)> before_free = nullptr;
  std::function<void(const UnitContext&)> before_reduce = nullptr;
};

/// Fills empty members, hooks excepted.
Seams complete(Seams seams);

}  // namespace fsdp::flat
