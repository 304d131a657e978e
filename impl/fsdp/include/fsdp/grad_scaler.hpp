#pragma once
// Gradient scaling for low precision, where gradients are sharded: a gradient that is not finite on one rank
// concerns the step of all.
//
//   fsdp::optim::GradScaler scaler({.group = world});
//   scaler.scale(loss).backward();
//   scaler.step(model->parameters(), [&] { optimizer.step(); });   // FSDP1 too: what the optimizer updates
//   scaler.update();
//
// Names, defaults and rules are those of torch.amp.GradScaler and ShardedGradScaler. A scaler belongs to one
// thread.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "fsdp/comm/communicator.hpp"

namespace fsdp::optim {

struct GradScalerOptions {
  /// All ranks that train the model together. Null: the default communicator.
  std::shared_ptr<Communicator> group = nullptr;
  double init_scale = 65536.0;
  double growth_factor = 2.0;   ///< of the scale, after `growth_interval` steps that were finite
  double backoff_factor = 0.5;  ///< after one that was not
  int64_t growth_interval = 2000;
};

class GradScaler {
 public:
  /// Throws InvalidArgument where neither a group is given nor a default one is set.
  explicit GradScaler(GradScalerOptions options = {});

  /// The loss times the scale, in the loss's dtype.
  at::Tensor scale(const at::Tensor& loss) const;

  /// Divides this rank's gradients by the scale, and finds out whether one of any rank is infinite or NaN: one
  /// all-reduce, also by a rank that has none. For those who look at gradients before the step, as clipping
  /// does. Throws RuntimeError the second time before `update`.
  void unscale_(const std::vector<at::Tensor>& parameters);

  /// Unscales, unless that has been done, then steps, unless a gradient of any rank is not finite. Returns
  /// whether it stepped, which is the same on all ranks. Throws RuntimeError the second time before `update`.
  bool step(const std::vector<at::Tensor>& parameters, const std::function<void()>& optimizer_step);

  /// The scale of the next step. Throws InvalidState where nothing was unscaled since the last one.
  void update();

  double get_scale() const { return scale_; }

 private:
  GradScalerOptions options_;
  double scale_;
  int64_t finite_steps_ = 0;  ///< since the scale changed
  bool unscaled_ = false, stepped_ = false, found_inf_ = false;
};

}  // namespace fsdp::optim
