#include "per_parameter/param.hpp"

#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>

#include "base/python_text.hpp"
#include "base/storage.hpp"
#include "fsdp/errors.hpp"

namespace fsdp {
namespace {

int64_t numel_of(const std::vector<int64_t>& sizes) {
  return c10::multiply_integers(sizes);
}

std::vector<int64_t> with_size(std::vector<int64_t> sizes, int64_t dim, int64_t size) {
  sizes[static_cast<size_t>(dim)] = size;
  return sizes;
}

}  // namespace

FSDPParam::FSDPParam(at::Tensor parameter, std::string name, int64_t shard_dim, int64_t rank, int64_t ranks)
    : parameter_(std::move(parameter)), name_(std::move(name)) {
  const auto sizes = parameter_.sizes();
  if (!parameter_.is_contiguous()) {
    throw NotImplemented("FSDP does not support non-contiguous parameters yet: param.shape=" +
                         python_size(sizes) + " param.stride()=" + python_tuple(parameter_.strides()));
  }
  if (shard_dim < 0) shard_dim += parameter_.dim();
  if (shard_dim < 0 || shard_dim >= parameter_.dim()) {
    throw InvalidState("Shard dim " + std::to_string(shard_dim) + " is invalid for " +
                       std::to_string(parameter_.dim()) + "D tensor: " + python_size(sizes));
  }
  const auto size = sizes[static_cast<size_t>(shard_dim)];
  if (shard_dim > 0 && size % ranks != 0) {
    throw NotImplemented("FSDP does not support uneven sharding on dim " + std::to_string(shard_dim) + ": " +
                         python_size(sizes) + " (world size: " + std::to_string(ranks) + ")");
  }
  const auto rows = chunk_rows(size, ranks, rank);
  layout_ = {sizes.vec(), shard_dim, rows.begin, rows.end - rows.begin, chunk_size(size, ranks)};
  padded_shard_numel_ = numel_of(with_size(layout_.global_shape, shard_dim, layout_.chunk));
  full_numel_ = std::max(ranks * padded_shard_numel_, parameter_.numel());
}

void FSDPParam::shard_into(const at::Tensor& piece) {
  const auto part = parameter_.detach().narrow(layout_.dim, layout_.start, layout_.length);
  const auto local = alias(piece, 0, layout_.local_shape());
  piece.zero_();  // the padding; what is the parameter's own follows
  if (!piece.is_meta()) local.copy_(part);
  piece_ = piece;
  local_ = local;
  replace_data(parameter_, local_);
  parameter_.mutable_grad().reset();
}

void FSDPParam::move_into(const at::Tensor& piece) {
  const auto shape = layout_.local_shape();
  if (parameter_.sizes() != at::IntArrayRef(shape)) {
    throw RuntimeError("The sharded parameter " + name_ + " was replaced by a tensor of shape " +
                       python_size(parameter_.sizes()) + "; this rank's shard has shape " +
                       python_size(shape) + ".");
  }
  const auto local = alias(piece, 0, shape);
  piece.zero_();  // the padding; what is the parameter's own follows
  if (!parameter_.is_meta() && !piece.is_meta()) local.copy_(parameter_.detach());
  piece_ = piece;
  local_ = local;
  replace_data(parameter_, local_);
}

bool FSDPParam::was_replaced() const {
  return !same_data(parameter_, local_);
}

void FSDPParam::init_dtype_attrs(const MixedPrecisionPolicy& policy, at::Device compute_device) {
  compute_device_ = compute_device;
  gather_dtype_ = policy.param_dtype.value_or(orig_dtype());
  // The gradient has param_dtype already: nothing to cast.
  reduce_dtype_ = policy.reduce_dtype == policy.param_dtype ? std::nullopt : policy.reduce_dtype;
  if (full_.defined() && (full_.scalar_type() != gather_dtype_ || full_.device() != compute_device_)) {
    full_ = unsharded_ = unsharded_data_ = at::Tensor();
  }
}

const at::Tensor& FSDPParam::alloc_full() {
  if (full_.defined()) {
    alloc_storage(full_);
  } else {
    full_ = empty_unsharded(full_numel_, at::TensorOptions(compute_device_).dtype(gather_dtype_));
    unsharded_ = alias(full_, 0, layout_.global_shape);
    unsharded_data_ = alias(full_, 0, layout_.global_shape);
  }
  return full_;
}

void FSDPParam::to_unsharded() {
  const bool requires_grad = parameter_.requires_grad();
  if (unsharded_.requires_grad() != requires_grad) unsharded_.set_requires_grad(requires_grad);
  show(unsharded_data_);
  if (requires_grad) {
    torch::autograd::impl::set_gradient_edge(parameter_, torch::autograd::impl::gradient_edge(unsharded_));
  }
}

void FSDPParam::to_sharded() {
  torch::autograd::impl::set_gradient_edge(parameter_, {});
  show(local_);
}

void FSDPParam::show(const at::Tensor& data) {
  data.device().type() == parameter_.device().type() ? parameter_.set_data(data)
                                                     : replace_data(parameter_, data);
}

void FSDPParam::to_sharded_post_forward(const at::Tensor& piece, int64_t rank, int64_t ranks) {
  torch::autograd::impl::set_gradient_edge(parameter_, {});
  // A tensor cut on another dimension has no rows that this contiguous part would hold: it is shown flat.
  if (layout_.dim == 0) {
    const auto rows = chunk_rows(layout_.global_shape[0], ranks, rank);
    show(alias(piece, 0, with_size(layout_.global_shape, 0, rows.end - rows.begin)));
  } else {
    show(alias(piece, 0, {piece.numel()}));
  }
}

void FSDPParam::accumulate_unsharded_grad_if_needed() {
  if (!waiting_grad_.defined() || !unsharded_grad().defined()) return;
  waiting_grad_.add_(unsharded_grad());
  unsharded_grad().reset();
}

void FSDPParam::to_accumulated_grad_if_needed() {
  if (!has_unsharded() || !unsharded_grad().defined()) return;
  const auto gradient = unsharded_grad();
  const auto dtype = reduce_dtype_.value_or(gradient.scalar_type());
  if (dtype == gradient.scalar_type()) return;  // autograd itself goes on accumulating
  unsharded_grad().reset();
  waiting_grad_ = gradient.to(dtype);
}

at::Tensor FSDPParam::take_unsharded_grad() {
  if (!has_unsharded()) return {};
  if (waiting_grad_.defined()) return std::exchange(waiting_grad_, {});
  return std::exchange(unsharded_grad(), {});
}

void FSDPParam::drop_unsharded_grad() {
  waiting_grad_.reset();
  if (has_unsharded()) unsharded_grad().reset();
}

bool FSDPParam::reads_sharded_grad_at_once() const {
  return parameter_.mutable_grad().defined() || torch::autograd::impl::post_acc_grad_hooks(parameter_);
}

void FSDPParam::accept_sharded_grad(const at::Tensor& gradient) const {
  auto& existing = parameter_.mutable_grad();
  if (existing.defined()) {
    existing.add_(gradient);
  } else {
    existing = gradient;
  }
  if (const auto& hook = torch::autograd::impl::post_acc_grad_hooks(parameter_)) (*hook)(parameter_);
}

}  // namespace fsdp
