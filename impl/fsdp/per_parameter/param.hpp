#pragma once
// One parameter over its whole life: shard, unsharded, shard of a smaller group, and back.
//
// The registered parameter P is always the same object; only its data change. While unsharded, P *aliases* a
// leaf U that owns the gathered memory: P's data are U's and P's gradient edge is U's accumulator, so
// autograd puts gradients on U, and P keeps the sharded gradient for the optimizer. U's memory is freed and
// refilled in place; tensors that autograd saved stay valid as soon as it is refilled.
#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "fsdp/fully_shard.hpp"
#include "fsdp/sharded_tensor.hpp"

namespace fsdp {

class FSDPParam {
 public:
  /// Checks that the parameter can be sharded, changes nothing. Throws NotImplemented for non-contiguous
  /// memory or an uneven cut on a dimension other than 0, InvalidState for a dimension that does not exist.
  FSDPParam(at::Tensor parameter, std::string name, int64_t shard_dim, int64_t rank, int64_t ranks);

  const at::Tensor& parameter() const { return parameter_; }
  const ShardLayout& layout() const { return layout_; }
  const std::string& name() const {
    return name_;
  }  ///< from the sharded module; from the root after lazy init
  void set_name(std::string name) { name_ = std::move(name); }

  int64_t padded_shard_numel() const { return padded_shard_numel_; }
  /// Elements of the gathered buffer: ranks * padded_shard_numel() at least, so that every rank's piece has
  /// its place.
  int64_t full_numel() const { return full_numel_; }

  /// Cuts this rank's part out of the full data and lets P be a view of it. `piece` has padded_shard_numel()
  /// elements.
  void shard_into(const at::Tensor& piece);
  /// P holds a shard (perhaps elsewhere, in another dtype or on the meta device): move it to `piece`.
  void move_into(const at::Tensor& piece);
  /// Whether somebody gave P other memory than its piece while it was sharded.
  bool was_replaced() const;
  const at::Tensor& piece() const { return piece_; }

  /// The dtypes in effect, and where to gather. Gathering in another dtype than before makes a new U.
  void init_dtype_attrs(const MixedPrecisionPolicy& policy, at::Device compute_device);
  at::ScalarType orig_dtype() const { return piece_.scalar_type(); }
  at::ScalarType gather_dtype() const { return gather_dtype_; }
  std::optional<at::ScalarType> reduce_dtype() const { return reduce_dtype_; }

  /// The gathered buffer with memory under it, contents undefined. One-dimensional.
  const at::Tensor& alloc_full();
  const at::Tensor& full() const { return full_; }
  bool has_unsharded() const { return unsharded_.defined(); }

  void to_unsharded();
  void to_sharded();
  /// `piece`: this rank's part of full() in the smaller group. P shows the first of its elements, as many
  /// rows as a cut over that group would give it; where the rows do not divide by the big group's size these
  /// are not the rows of such a cut, since full() is padded for the big one. So it is in PyTorch 2.11; the
  /// next gather is right all the same.
  void to_sharded_post_forward(const at::Tensor& piece, int64_t rank, int64_t ranks);

  /// The gradient autograd left on U, or the one that waits in the dtype of the reduction.
  at::Tensor& unsharded_grad() { return unsharded_.mutable_grad(); }
  const at::Tensor& waiting_grad() const { return waiting_grad_; }
  void accumulate_unsharded_grad_if_needed();
  /// Without communication: from here on the gradient waits in the dtype of the reduction.
  void to_accumulated_grad_if_needed();
  /// Hands the gradient over; undefined if there is none.
  at::Tensor take_unsharded_grad();
  void drop_unsharded_grad();
  /// Whether `accept_sharded_grad` reads the gradient, to add it to another one or for a hook. Otherwise it may
  /// be given memory into which a copy is still under way.
  bool reads_sharded_grad_at_once() const;
  /// Sets or adds to the sharded gradient, which the optimizer sees.
  void accept_sharded_grad(const at::Tensor& gradient) const;

 private:
  void show(const at::Tensor& data);

  at::Tensor parameter_;  // P
  std::string name_;
  ShardLayout layout_;
  int64_t padded_shard_numel_ = 0;
  int64_t full_numel_ = 0;

  at::Tensor piece_;  // padded shard, one-dimensional
  at::Tensor local_;  // what P shows of it

  at::Device compute_device_ = at::kCPU;
  at::ScalarType gather_dtype_ = at::kFloat;
  std::optional<at::ScalarType> reduce_dtype_;
  at::Tensor full_;       // gathered memory, one-dimensional
  at::Tensor unsharded_;  // U, a leaf over full_
  at::Tensor unsharded_data_;
  at::Tensor waiting_grad_;
};

}  // namespace fsdp
