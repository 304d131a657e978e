#pragma once
// Decisions that an implementation can get wrong, each behind a small class whose methods *are* the correct
// rule. A faulty implementation, or an experiment, overrides one method and hands its object in through
// FullyShardOptions::seams; the training logic never asks which rule it runs with. Objects are shared between
// units and must not keep state per call other than their own. Faults of transport are decorators of
// Communicator: see Seams::communicator.
#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fsdp/api.hpp"
#include "fsdp/comm/communicator.hpp"
#include "fsdp/sharded_parameter.hpp"

namespace fsdp {

/// Which unit a rule is asked about.
struct UnitContext {
  std::string name;      ///< fully qualified name once lazily initialised
  int64_t rank = 0;      ///< in the shard group
  int64_t ranks = 1;     ///< of the shard group
  int64_t replicas = 1;  ///< of the replicate group, 1 without one
  bool is_root = false;
  TrainingState training_state = TrainingState::idle;
};

struct Rows {
  int64_t begin = 0;
  int64_t end = 0;  ///< exclusive; equal to begin for a rank that holds nothing
};

/// How one dimension of `size` rows is cut over `ranks`: pieces of ceil(size / ranks), the last ones short or
/// empty.
class ShardRule {
 public:
  virtual ~ShardRule() = default;
  virtual int64_t chunk(int64_t size, int64_t ranks) const;  ///< rows of every rank's padded piece
  virtual Rows rows(int64_t size, int64_t ranks, int64_t rank) const;
  virtual double padding_value() const { return 0.0; }
};

/// Which dtypes are used where.
class CastRule {
 public:
  virtual ~CastRule() = default;
  virtual at::ScalarType shard_dtype(const MixedPrecisionPolicy& policy, at::ScalarType original) const;
  virtual at::ScalarType gather_dtype(const MixedPrecisionPolicy& policy, at::ScalarType original) const;
  /// None: reduce in the gradient's dtype.
  virtual std::optional<at::ScalarType> reduce_dtype(const MixedPrecisionPolicy& policy,
                                                     at::ScalarType original) const;
  virtual at::Tensor input(const MixedPrecisionPolicy& policy, const at::Tensor& tensor) const;
  virtual at::Tensor output(const MixedPrecisionPolicy& policy, const at::Tensor& tensor) const;
};

/// One parameter's place in the flat buffers of its group.
struct Slot {
  int64_t offset;  ///< within one rank's part of the buffer, in elements of the buffer
  int64_t numel;   ///< of the padded shard, in elements of the buffer
  int64_t shard_dim;
  at::IntArrayRef sizes;  ///< of the unsharded parameter
};

/// Copies around the all-gather. `full` are padded unsharded buffers of ranks * numel elements for shard_dim
/// 0, and exactly the unsharded tensors otherwise. `pieces` are padded shards of any dtype.
class GatherRule {
 public:
  virtual ~GatherRule() = default;
  virtual void copy_in(const UnitContext& unit, const std::vector<Slot>& slots,
                       const std::vector<at::Tensor>& pieces, const at::Tensor& input) const;
  virtual void copy_out(const UnitContext& unit, const std::vector<Slot>& slots, const at::Tensor& output,
                        const std::vector<at::Tensor>& full) const;
  /// Whether a parameter that is cut evenly on dimension 0 goes past both copies. What Seams fills in says so
  /// of large ones; a rule with copies of its own has them called for every parameter.
  virtual bool in_place(const UnitContext&, const Slot&, at::ScalarType) const { return false; }
};

struct ReduceContext {
  UnitContext unit;
  at::ScalarType dtype;                 ///< of the reduction
  std::optional<double> divide_factor;  ///< set_gradient_divide_factor
  bool force_sum = false;               ///< set_force_sum_reduction_for_comms
};

struct ReducePlan {
  std::optional<double> pre_divide;
  Reduction reduce_scatter;
  Reduction all_reduce;  ///< over the replicas
  std::optional<double> post_divide;
};

/// How gradients become a mean over the ranks.
class ReduceRule {
 public:
  virtual ~ReduceRule() = default;
  virtual ReducePlan plan(const ReduceContext& context) const;
  /// Whether this backward reduces, given set_requires_gradient_sync; and all-reduces, given
  /// set_requires_all_reduce.
  virtual bool reduces(const UnitContext& unit, bool requires_gradient_sync) const;
  virtual bool all_reduces(const UnitContext& unit, bool requires_all_reduce) const;
  /// Fills the flat input [ranks, sum of numel] with the gradients' pieces, cast to its dtype and padded with
  /// zeros.
  virtual void copy_in(const UnitContext& unit, const std::vector<Slot>& slots,
                       const std::vector<at::Tensor>& gradients, const at::Tensor& input) const;
  /// The gradient of a parameter that backward did not reach: none, so that it takes no part in the
  /// reduction.
  virtual at::Tensor unreached(const at::Tensor& parameter, at::IntArrayRef sizes) const;
  /// As GatherRule::in_place, of a gradient that has the dtype of the reduction.
  virtual bool in_place(const UnitContext&, const Slot&, at::ScalarType) const { return false; }
};

/// How a new gradient joins an old one.
class AccumulateRule {
 public:
  virtual ~AccumulateRule() = default;
  /// Unsharded, without communication: dtype in which a gradient waits for the next reduction.
  virtual at::ScalarType waiting_dtype(at::ScalarType gradient,
                                       std::optional<at::ScalarType> reduce_dtype) const;
  virtual void add_unsharded(at::Tensor& accumulated, const at::Tensor& gradient) const;
  /// Sharded: sets or adds to `parameter.grad`.
  virtual void add_sharded(const at::Tensor& parameter, const at::Tensor& gradient) const;
};

/// What happens to unsharded parameters when a pass is over.
class ReshardRule {
 public:
  virtual ~ReshardRule() = default;
  virtual ShardedState after_forward(const UnitContext& unit, ShardedState configured) const;
  virtual bool after_backward(const UnitContext& unit, bool configured) const;
  /// Gives the memory of unsharded parameters back.
  virtual void free(const UnitContext& unit, const at::Tensor& unsharded) const;
  virtual TrainingState once_done() const { return TrainingState::idle; }
};

/// Which unit is gathered ahead in backward, as index into the order in which forwards ended.
class PrefetchRule {
 public:
  virtual ~PrefetchRule() = default;
  virtual std::optional<int64_t> in_backward(const UnitContext& unit, int64_t post_forward_index) const;
};

/// What a full state dict holds, and what of one a rank takes.
class StateDictRule {
 public:
  virtual ~StateDictRule() = default;
  virtual at::Tensor whole(const ShardedTensor& entry) const { return entry.full_tensor(); }
  virtual Rows rows(const ShardLayout& layout) const { return {layout.start, layout.start + layout.length}; }
};

/// A member left empty stands for the correct rule.
struct Seams {
  std::shared_ptr<const ShardRule> shard = nullptr;
  std::shared_ptr<const CastRule> cast = nullptr;
  std::shared_ptr<const GatherRule> gather = nullptr;
  std::shared_ptr<const ReduceRule> reduce = nullptr;
  std::shared_ptr<const AccumulateRule> accumulate = nullptr;
  std::shared_ptr<const ReshardRule> reshard = nullptr;
  std::shared_ptr<const PrefetchRule> prefetch = nullptr;
  std::shared_ptr<const StateDictRule> state_dict = nullptr;
  /// Wraps the shard group and the replicate group of every unit.
  std::function<std::shared_ptr<Communicator>(std::shared_ptr<Communicator>)> communicator = nullptr;
};

/// Fills empty members.
Seams complete(Seams seams);

}  // namespace fsdp
