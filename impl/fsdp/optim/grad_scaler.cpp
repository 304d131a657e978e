#include "fsdp/grad_scaler.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/zeros.h>

#include <utility>

#include "fsdp/comm/mesh.hpp"
#include "fsdp/errors.hpp"

namespace fsdp::optim {

GradScaler::GradScaler(GradScalerOptions options)
    : options_(std::move(options)), scale_(options_.init_scale) {
  if (!options_.group) options_.group = default_mesh().group(0);
}

at::Tensor GradScaler::scale(const at::Tensor& loss) const {
  return loss * scale_;
}

void GradScaler::unscale_(const std::vector<at::Tensor>& parameters) {
  if (stepped_) throw RuntimeError("unscale_() is being called after step().");
  if (unscaled_)
    throw RuntimeError("unscale_() has already been called on this optimizer since the last update().");
  const at::NoGradGuard no_grad;
  const auto found = at::zeros({1}, at::TensorOptions(options_.group->device()).dtype(at::kFloat));
  for (const auto& parameter : parameters) {
    auto gradient = parameter.mutable_grad();
    if (!gradient.defined()) continue;
    if (!at::isfinite(gradient).all().item<bool>()) found.fill_(1);
    gradient.mul_(1.0 / scale_);
  }
  if (options_.group->size() > 1)
    options_.group->all_reduce(found, {ReduceOp::max}, {"", false, Phase::other})->wait();
  found_inf_ = found.item<float>() > 0;
  unscaled_ = true;
}

bool GradScaler::step(const std::vector<at::Tensor>& parameters,
                      const std::function<void()>& optimizer_step) {
  if (stepped_) throw RuntimeError("step() has already been called since the last update().");
  if (!unscaled_) unscale_(parameters);
  if (!found_inf_) optimizer_step();
  stepped_ = true;
  return !found_inf_;
}

void GradScaler::update() {
  if (!unscaled_) throw InvalidState("No inf checks were recorded prior to update.");
  if (found_inf_) {
    scale_ *= options_.backoff_factor;
    finite_steps_ = 0;
  } else if (++finite_steps_ == options_.growth_interval) {
    scale_ *= options_.growth_factor;
    finite_steps_ = 0;
  }
  unscaled_ = stepped_ = found_inf_ = false;
}

}  // namespace fsdp::optim
