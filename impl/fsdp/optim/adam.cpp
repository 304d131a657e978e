#include "fsdp/optim/adam.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>

namespace fsdp::optim {
namespace {

// One line per line of Python's single-tensor step; the order of operations is the contract.
void update(const at::Tensor& parameter, AdamState& state, const AdamOptions& options) {
  auto gradient = parameter.grad();
  ++state.step;
  if (options.weight_decay != 0.0) {
    if (options.decoupled_weight_decay) {
      parameter.mul_(1 - options.lr * options.weight_decay);
    } else {
      gradient = gradient.add(parameter, options.weight_decay);
    }
  }
  state.exp_avg.lerp_(gradient, 1 - options.beta1);
  state.exp_avg_sq.mul_(options.beta2).addcmul_(gradient, gradient, 1 - options.beta2);
  const auto step = static_cast<double>(state.step);
  const auto step_size = options.lr / (1 - std::pow(options.beta1, step));
  const auto bias_correction2_sqrt = std::sqrt(1 - std::pow(options.beta2, step));
  const auto denominator = (state.exp_avg_sq.sqrt() / bias_correction2_sqrt).add_(options.eps);
  parameter.addcdiv_(state.exp_avg, denominator, -step_size);
}

}  // namespace

void Adam::step() {
  const at::NoGradGuard no_grad;
  for (const auto& group : groups_) {
    for (const auto& parameter : group.parameters) {
      if (!parameter.grad().defined()) continue;
      auto& state = states_[parameter.unsafeGetTensorImpl()];
      if (!state.exp_avg.defined()) state = {0, at::zeros_like(parameter), at::zeros_like(parameter)};
      update(parameter, state, group.options);
    }
  }
}

void Adam::zero_grad(bool set_to_none) {
  for (const auto& group : groups_) {
    for (const auto& parameter : group.parameters) {
      auto& gradient = parameter.mutable_grad();
      if (!gradient.defined()) continue;
      set_to_none ? gradient.reset() : static_cast<void>(gradient.zero_());
    }
  }
}

AdamState* Adam::state(const at::Tensor& parameter) {
  const auto state = states_.find(parameter.unsafeGetTensorImpl());
  return state == states_.end() ? nullptr : &state->second;
}

}  // namespace fsdp::optim
