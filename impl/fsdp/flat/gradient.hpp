#pragma once
// The gradient of one unit's flat parameter.
//
// Two tensors, both 1-D and laid out as the parameter is: `whole`, padded_numel elements, which backward
// fills, and `sharded`, this rank's shard_numel elements of the mean over all ranks. A backward that
// synchronises hands the whole one over (`take_whole`) and gets its shard back (`accept_reduced`); in
// no_sync() the whole one stays and the next backward adds to it. With NO_SHARD there is never a sharded one.
//
// Users see the gradient in the `grad` of members, or of the flat parameter, as windows onto the whole one if
// there is one and else onto the sharded one. A member's "none" cannot be told from zeros there, so it is
// remembered beside them: a user took that member's gradient away, and it is not shown until backward brings
// a new one. A member that is frozen shows none either.
//
// Nothing here communicates or throws errors of its own: who calls knows the shapes. Not thread-safe, as
// everything of a unit.
#include <torch/csrc/autograd/function.h>

#include <vector>

#include "base/streams.hpp"
#include "flat/shard.hpp"

namespace fsdp::flat {

class FlatGradient {
 public:
  /// `shard` must live longer.
  explicit FlatGradient(const FlatShard& shard);

  // Backward.
  /// Adds `gradients`, one per member in its whole shape, undefined for none, to the whole gradient. One that
  /// begins now is on the compute device, has this dtype, zeros where there is none and in gaps, and is
  /// divided by `divisor` on the way in; true if so. The divisor does not count for later ones.
  bool accumulate(const torch::autograd::variable_list& gradients, at::ScalarType dtype, double divisor);
  /// Hands the whole, padded gradient over in `dtype`, for reduction. There is one.
  at::Tensor take_whole(at::ScalarType dtype);
  /// A reduced gradient, in any dtype, is added to the shard's. With NO_SHARD it is the whole one, which `take_whole`
  /// took. Where the shard is offloaded it is on its way to the host only, and counts from `finish_arrival` on, or from
  /// the next one in the same backward, which waits for it.
  void accept_reduced(at::Tensor gradient);
  /// The host waits for what is on its way. False: nothing was.
  bool finish_arrival();
  void drop_arrival();  ///< the host waits for it, and it counts for nothing
  /// keep_low_precision_grads: the optimizer's gradient in the dtype of compute.
  void lower_precision();

  // What users see.
  /// `grad` of members or flat parameter become windows onto `exposed`.
  void expose();
  const at::Tensor& exposed() const { return whole_.defined() ? whole_ : sharded_; }
  const at::Tensor& whole() const { return whole_; }      ///< undefined: there is none
  const at::Tensor& sharded() const { return sharded_; }  ///< likewise
  /// A member's part of `exposed`: its shape, or 1-D where sharded. Undefined where there is no gradient or
  /// the shard has nothing of it.
  at::Tensor window(size_t member) const;
  bool is_none(size_t member) const { return is_none_[member]; }

  // What users did (flat/writeback.hpp). None of these touches a `grad`.
  void drop();
  /// `flat` takes the place of the gradient; `shard_numel` elements.
  void replace(const at::Tensor& flat);
  /// Zeros for all members. Who has no `grad` is to be taken away next.
  void begin_with_zeros();
  /// Copies into the member's window, which has as many elements.
  void put(size_t member, const at::Tensor& values);
  /// The member has none from now on; its window is zero.
  void take_away(size_t member);

  /// A summon scope with gradients: `padded` is exposed in place of the shard, which stays. Undefined ends
  /// that.
  void set_whole(at::Tensor padded) { whole_ = std::move(padded); }

 private:
  /// What NO_SHARD's optimizer uses is whole.
  at::Tensor& reduced() { return shard_.sharded() ? sharded_ : whole_; }
  void add_reduced(at::Tensor gradient);  ///< where the shard is, in its dtype
  /// Whoever requires a gradient has received one.
  void members_received();

  const FlatShard& shard_;
  at::Tensor whole_, sharded_;
  at::Tensor arriving_;  // in host memory
  StreamEvent arrived_;
  std::vector<bool> is_none_;  // by member
};

}  // namespace fsdp::flat
