// The gradient of a flat parameter: whole while backward makes it, a shard once it is reduced.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/div.h>
#include <ATen/ops/scalar_tensor.h>

#include <cstring>
#include <utility>

#include "base/storage.hpp"
#include "flat/parameter.hpp"

namespace fsdp::flat {
namespace {

/// A few hundred elements cost less to copy than the tensor library takes to find out how.
void copy_into(const at::Tensor& to, const at::Tensor& from) {
  if (to.is_cpu() && from.is_cpu() && from.is_contiguous() && from.scalar_type() == to.scalar_type()) {
    std::memcpy(to.mutable_data_ptr(), from.const_data_ptr(), from.nbytes());
  } else {
    at::Tensor target = to;
    target.copy_(from);
  }
}

/// A few elements cost less to set than the tensor library takes to find out how.
void clear(const at::Tensor& window) {
  if (window.is_cpu()) {
    std::memset(window.mutable_data_ptr(), 0, window.nbytes());
  } else {
    at::Tensor target = window;
    target.zero_();
  }
}

}  // namespace

bool FlatParameter::accumulate_whole_gradient(const torch::autograd::variable_list& gradients,
                                              at::ScalarType dtype, double divisor) {
  const at::NoGradGuard no_grad;
  const auto window_of = [&](const Stretch& stretch) {
    return alias(whole_gradient_, stretch.offset, {stretch.numel});
  };
  const bool first = !whole_gradient_.defined();
  const bool divides = first && divisor != 1;
  const auto scalar = divides ? at::scalar_tensor(divisor) : at::Tensor();
  if (first) {
    whole_gradient_ = empty_unsharded(layout_.padded_numel,
                                      local_shard_.options().dtype(dtype).device(settings_.compute_device));
    for (const auto& gap : layout_.gaps) clear(window_of(gap));
  }
  for (size_t i = 0; i < members_.size(); ++i) {
    const auto& gradient = gradients[i];
    const auto& stretch = layout_.members[i];
    if (!gradient.defined() || (settings_.use_orig_params && !trainable(members_[i].parameter))) {
      if (first) clear(window_of(stretch));
      continue;
    }
    auto window = alias(whole_gradient_, stretch.offset, members_[i].shape);
    if (divides && gradient.scalar_type() == dtype) {
      at::div_out(window, gradient, scalar);  // one pass over the memory in place of two
    } else if (first) {
      copy_into(window, gradient);
      if (divides) window.div_(divisor);
    } else {
      window.add_(gradient.to(window.device()));
    }
  }
  for (auto& member : members_)
    member.gradient_is_none = member.gradient_is_none && !trainable(member.parameter);
  return divides;
}

at::Tensor FlatParameter::take_whole_gradient(at::ScalarType dtype) {
  const at::NoGradGuard no_grad;
  auto gradient = std::exchange(whole_gradient_, {});
  return gradient.to(settings_.compute_device, dtype);
}

void FlatParameter::accept_reduced_gradient(at::Tensor gradient) {
  const at::NoGradGuard no_grad;
  gradient = gradient.to(local_shard_.device(), original_dtype());
  if (!sharded_strategy()) {
    whole_gradient_ = std::move(gradient);
  } else if (sharded_gradient_.defined()) {
    sharded_gradient_.add_(gradient);
  } else {
    sharded_gradient_ = std::move(gradient);
  }
  // Whoever requires a gradient has received one.
  for (auto& member : members_)
    member.gradient_is_none = member.gradient_is_none && !trainable(member.parameter);
}

at::Tensor FlatParameter::gradient_window(size_t index) const {
  const auto& member = members_[index];
  if (whole_gradient_.defined()) return alias(whole_gradient_, layout_.members[index].offset, member.shape);
  if (!sharded_gradient_.defined() || !member.part.in_shard()) return {};
  return alias(sharded_gradient_, member.part.offset, {member.part.length});
}

void FlatParameter::expose_gradients() {
  if (!settings_.use_orig_params) {
    const auto& gradient = whole_gradient_.defined() ? whole_gradient_ : sharded_gradient_;
    flat_parameter_.mutable_grad() =
        whole_gradient_.defined() ? alias(gradient, 0, {layout_.unsharded_numel}) : gradient;
    return;
  }
  for (size_t i = 0; i < members_.size(); ++i) {
    const auto& member = members_[i];
    const bool shown = trainable(member.parameter) && !member.gradient_is_none;
    member.parameter.mutable_grad() = shown ? gradient_window(i) : at::Tensor();
  }
}

void FlatParameter::lower_gradient_precision() {
  auto& gradient = sharded_strategy() ? sharded_gradient_ : whole_gradient_;
  // Without shards PyTorch casts nothing after the all-reduce.
  const auto dtype = sharded_strategy() ? compute_dtype_ : reduce_dtype_;
  if (!gradient.defined() || gradient.scalar_type() == dtype) return;
  const at::NoGradGuard no_grad;
  gradient = gradient.to(dtype);
  expose_gradients();
}

void FlatParameter::restore_gradient_precision() {
  if (!sharded_gradient_.defined() || sharded_gradient_.scalar_type() == original_dtype()) return;
  const at::NoGradGuard no_grad;
  sharded_gradient_ = sharded_gradient_.to(original_dtype());
}

}  // namespace fsdp::flat
