#pragma once
// What of a unit's flat parameter is always there: this rank's shard, the original parameters ("members")
// that it is made of, where each lies in it, and in which dtypes and on which device the unit computes. What
// comes and goes stands on it: gathered copies (flat/parameter.hpp) and gradients (flat/gradient.hpp).
#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "flat/layout.hpp"
#include "flat/parameter_slots.hpp"
#include "fsdp/flat/options.hpp"

namespace fsdp::flat {

/// A parameter to be flattened, with every place it is registered at; the first is the primary one.
struct MemberPlan {
  at::Tensor parameter;
  std::string name;  ///< from the unit's module
  std::vector<ParameterSlot> slots;
};

/// What the user wants of a parameter, also while it is a part of the graph and therefore requires a
/// gradient.
bool trainable(const at::Tensor& parameter);

/// What the data of a unit's members are now. All members show the same.
enum class Shown {
  sharded,  ///< 1-D pieces of the shard, perhaps empty; leaves
  tensors,  ///< whole, parts of the graph: in forward and backward
  kept,     ///< as `tensors`, left in place from forward to backward, while the shard holds the values
  params,   ///< whole, leaves: in a summon scope
};
struct Showing {
  Shown how = Shown::sharded;
  at::Tensor whole;  ///< onto which members are windows; undefined with Shown::sharded
};

class FlatShard {
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
    at::Device compute_device = at::kCPU;  ///< of everything whole
    bool cpu_offload = false;              ///< the shard lies in host memory, and so do reduced gradients
  };
  struct Member {
    at::Tensor parameter;  ///< P
    std::string name;
    std::vector<ParameterSlot> slots;
    std::vector<int64_t> shape;  ///< of the whole
    ShardPart part;
    at::Tensor sharded_data;  ///< P's data while shards are shown: a window onto the shard
  };

  /// Checks that the tensors can be flattened together, changes nothing. Throws InvalidArgument.
  static void validate(const std::vector<MemberPlan>& members, bool use_orig_params);

  /// Copies this rank's part, to host memory with cpu_offload. `members` are validated, whole and on a device with
  /// memory; their gradients are dropped, their data stay as they are.
  FlatShard(const std::vector<MemberPlan>& members, Settings settings);

  const Settings& settings() const { return settings_; }
  const FlatLayout& layout() const { return layout_; }
  const std::vector<Member>& members() const { return members_; }
  /// 1-D, `layout().shard_numel` elements of the original dtype. NO_SHARD: the whole.
  const at::Tensor& tensor() const { return tensor_; }
  /// use_orig_params = false: the leaf over `tensor()` that the optimizer updates; undefined otherwise.
  const at::Tensor& flat_parameter() const { return flat_parameter_; }

  bool sharded() const { return settings_.strategy != ShardingStrategy::no_shard; }
  int64_t index() const { return sharded() ? settings_.rank : 0; }  ///< which shard this one is
  bool requires_grad() const;  ///< what the user wants, of at least one member
  at::ScalarType original_dtype() const { return tensor_.scalar_type(); }
  at::ScalarType compute_dtype() const { return compute_dtype_; }
  at::ScalarType reduce_dtype() const { return reduce_dtype_; }
  bool low_precision_compute() const { return compute_dtype_ != original_dtype(); }
  /// Whether the shard lies in host memory, pinned, and compute is on an accelerator.
  bool offloaded() const { return settings_.cpu_offload && !settings_.compute_device.is_cpu(); }

  /// Changes whenever somebody writes to the shard: through the parameters, which autograd's version counters tell, or
  /// past these, which who writes tells.
  using Version = std::pair<uint64_t, uint64_t>;
  Version version() const;
  void written() { ++writes_; }

  /// After module.to(): shard, dtypes and compute device follow the parameters, whose data are the new
  /// shard's then. False: nothing had moved. Shards must be shown.
  bool follow_moves();
  /// The user put another tensor in the member's place.
  void exchange(size_t member, const at::Tensor& parameter) { members_[member].parameter = parameter; }

 private:
  void settle_dtypes(at::ScalarType original);
  void adopt(at::Tensor tensor);
  at::TensorOptions home(const at::TensorOptions& options) const;  ///< where shards lie
  at::Tensor window(const Member& member) const;

  Settings settings_;
  FlatLayout layout_;
  std::vector<Member> members_;
  at::ScalarType compute_dtype_ = at::kFloat, reduce_dtype_ = at::kFloat;
  at::Tensor tensor_, flat_parameter_;
  uint64_t writes_ = 0;
};

}  // namespace fsdp::flat
