#include "flat/gradient.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros_like.h>

#include <cstring>
#include <utility>

#include "base/storage.hpp"

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

FlatGradient::FlatGradient(const FlatShard& shard) : shard_(shard), is_none_(shard.members().size(), false) {}

bool FlatGradient::accumulate(const torch::autograd::variable_list& gradients, at::ScalarType dtype,
                              double divisor) {
  const at::NoGradGuard no_grad;
  const auto& settings = shard_.settings();
  const auto& layout = shard_.layout();
  const auto& members = shard_.members();
  const auto window_of = [&](const Stretch& stretch) {
    return alias(whole_, stretch.offset, {stretch.numel});
  };
  const bool first = !whole_.defined();
  const bool divides = first && divisor != 1;
  const auto scalar = divides ? at::scalar_tensor(divisor) : at::Tensor();
  if (first) {
    whole_ = empty_unsharded(layout.padded_numel,
                             shard_.tensor().options().dtype(dtype).device(settings.compute_device));
    for (const auto& gap : layout.gaps) clear(window_of(gap));
  }
  for (size_t i = 0; i < members.size(); ++i) {
    const auto& gradient = gradients[i];
    const auto& stretch = layout.members[i];
    if (!gradient.defined() || (settings.use_orig_params && !trainable(members[i].parameter))) {
      if (first) clear(window_of(stretch));
      continue;
    }
    auto window = alias(whole_, stretch.offset, members[i].shape);
    if (divides && gradient.scalar_type() == dtype) {
      at::div_out(window, gradient, scalar);  // one pass over the memory in place of two
    } else if (first) {
      copy_into(window, gradient);
      if (divides) window.div_(divisor);
    } else {
      window.add_(gradient.to(window.device()));
    }
  }
  members_received();
  return divides;
}

void FlatGradient::members_received() {
  for (size_t i = 0; i < is_none_.size(); ++i)
    is_none_[i] = is_none_[i] && !trainable(shard_.members()[i].parameter);
}

at::Tensor FlatGradient::take_whole(at::ScalarType dtype) {
  const at::NoGradGuard no_grad;
  auto gradient = std::exchange(whole_, {});
  return gradient.to(shard_.settings().compute_device, dtype);
}

void FlatGradient::accept_reduced(at::Tensor gradient) {
  const at::NoGradGuard no_grad;
  finish_arrival();
  gradient = gradient.to(shard_.original_dtype());
  if (!shard_.offloaded()) return add_reduced(std::move(gradient));
  arriving_ = at::empty(gradient.sizes(), gradient.options().device(at::kCPU).pinned_memory(true));
  arriving_.copy_(gradient, /*non_blocking=*/true);
  arrived_ = StreamEvent::record(gradient.device());
}

bool FlatGradient::finish_arrival() {
  if (!arriving_.defined()) return false;
  const at::NoGradGuard no_grad;
  std::exchange(arrived_, {}).synchronize();
  add_reduced(std::exchange(arriving_, {}));
  return true;
}

void FlatGradient::drop_arrival() {
  std::exchange(arrived_, {}).synchronize();
  arriving_.reset();
}

void FlatGradient::add_reduced(at::Tensor gradient) {
  if (!shard_.sharded()) {
    whole_ = std::move(gradient);
  } else if (sharded_.defined()) {
    sharded_.add_(gradient);
  } else {
    sharded_ = std::move(gradient);
  }
}

void FlatGradient::lower_precision() {
  auto& gradient = reduced();
  // Without shards PyTorch casts nothing after the all-reduce.
  const auto dtype = shard_.sharded() ? shard_.compute_dtype() : shard_.reduce_dtype();
  if (!gradient.defined() || gradient.scalar_type() == dtype) return;
  const at::NoGradGuard no_grad;
  gradient = gradient.to(dtype);
  expose();
}

void FlatGradient::expose() {
  if (!shard_.settings().use_orig_params) {
    shard_.flat_parameter().mutable_grad() =
        whole_.defined() ? alias(whole_, 0, {shard_.layout().unsharded_numel}) : sharded_;
    return;
  }
  for (size_t i = 0; i < is_none_.size(); ++i) {
    const auto& parameter = shard_.members()[i].parameter;
    const bool shown = trainable(parameter) && !is_none_[i];
    parameter.mutable_grad() = shown ? window(i) : at::Tensor();
  }
}

at::Tensor FlatGradient::window(size_t member) const {
  const auto& its = shard_.members()[member];
  if (whole_.defined()) return alias(whole_, shard_.layout().members[member].offset, its.shape);
  if (!sharded_.defined() || !its.part.in_shard()) return {};
  return alias(sharded_, its.part.offset, {its.part.length});
}

void FlatGradient::drop() {
  sharded_.reset();
  whole_.reset();
}

void FlatGradient::replace(const at::Tensor& flat) {
  reduced() = flat;
}

void FlatGradient::begin_with_zeros() {
  replace(at::zeros_like(shard_.tensor()));
}

void FlatGradient::put(size_t member, const at::Tensor& values) {
  auto target = window(member);
  target.copy_(values.reshape(target.sizes()));
  is_none_[member] = false;
}

void FlatGradient::take_away(size_t member) {
  window(member).zero_();
  is_none_[member] = true;
}

}  // namespace fsdp::flat
