#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_addcdiv.h>
#include <ATen/ops/_foreach_addcmul.h>
#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_sqrt.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>

#include "fsdp/optim.hpp"

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

// The same, an operation at a time over all of them.
void update_all(const std::vector<at::Tensor>& parameters, const std::vector<AdamState*>& states,
                const AdamOptions& options) {
  std::vector<at::Tensor> gradients, averages, squares;
  std::vector<at::Scalar> step_sizes, corrections;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto step = static_cast<double>(++states[i]->step);
    gradients.push_back(parameters[i].grad());
    averages.push_back(states[i]->exp_avg);
    squares.push_back(states[i]->exp_avg_sq);
    step_sizes.emplace_back(-options.lr / (1 - std::pow(options.beta1, step)));
    corrections.emplace_back(std::sqrt(1 - std::pow(options.beta2, step)));
  }
  if (options.weight_decay != 0.0) {
    if (options.decoupled_weight_decay) {
      at::_foreach_mul_(parameters, 1 - options.lr * options.weight_decay);
    } else {
      gradients = at::_foreach_add(gradients, parameters, options.weight_decay);
    }
  }
  at::_foreach_lerp_(averages, gradients, 1 - options.beta1);
  at::_foreach_mul_(squares, options.beta2);
  at::_foreach_addcmul_(squares, gradients, gradients, 1 - options.beta2);
  auto denominators = at::_foreach_sqrt(squares);
  at::_foreach_div_(denominators, corrections);
  at::_foreach_add_(denominators, options.eps);
  at::_foreach_addcdiv_(parameters, averages, denominators, step_sizes);
}

}  // namespace

void Adam::step() {
  const at::NoGradGuard no_grad;
  for (const auto& group : groups_) {
    std::vector<at::Tensor> parameters;
    std::vector<AdamState*> states;
    for (const auto& parameter : group.parameters) {
      if (!parameter.grad().defined()) continue;
      auto& state = states_[parameter.unsafeGetTensorImpl()];
      if (!state.exp_avg.defined()) state = {0, at::zeros_like(parameter), at::zeros_like(parameter)};
      if (!group.options.foreach) {
        update(parameter, state, group.options);
        continue;
      }
      parameters.push_back(parameter);
      states.push_back(&state);
    }
    if (!parameters.empty()) update_all(parameters, states, group.options);
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

const AdamState* Adam::state(const at::Tensor& parameter) const {
  const auto state = states_.find(parameter.unsafeGetTensorImpl());
  return state == states_.end() ? nullptr : &state->second;
}

}  // namespace fsdp::optim
