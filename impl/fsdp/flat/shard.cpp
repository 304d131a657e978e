#include "flat/shard.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>

#include "base/python_text.hpp"
#include "base/storage.hpp"
#include "fsdp/errors.hpp"

namespace fsdp::flat {

bool trainable(const at::Tensor& parameter) {
  const auto* meta = torch::autograd::impl::get_autograd_meta(parameter);
  return meta && meta->requires_grad_;
}

void FlatShard::validate(const std::vector<MemberPlan>& members, bool use_orig_params) {
  const auto& first = members.front().parameter;
  for (const auto& [parameter, name, slots] : members) {
    if (!parameter.is_floating_point()) throw InvalidArgument("Cannot flatten integer dtype tensors");
    if (parameter.dim() == 0) {
      throw InvalidArgument("FSDP doesn't support scalar parameters. Change " + name +
                            " to a 1D tensor with numel equal to 1.");
    }
    if (parameter.scalar_type() != first.scalar_type()) {
      throw InvalidArgument("Must flatten tensors with uniform dtype but got " +
                            python_text(first.scalar_type()) + " and " +
                            python_text(parameter.scalar_type()));
    }
    if (!use_orig_params && parameter.requires_grad() != first.requires_grad()) {
      throw InvalidArgument("Must flatten tensors with uniform `requires_grad` when `use_orig_params=False`");
    }
    if (parameter.device() != first.device()) {
      throw InvalidArgument("Must flatten tensors on the same device but got both " + first.device().str() +
                            " and " + parameter.device().str());
    }
  }
}

FlatShard::FlatShard(const std::vector<MemberPlan>& members, Settings settings)
    : settings_(std::move(settings)) {
  const at::NoGradGuard no_grad;
  settle_dtypes(members.front().parameter.scalar_type());

  LayoutRequest request;
  request.alignment =
      alignment(settings_.use_orig_params, static_cast<int64_t>(c10::elementSize(compute_dtype_)));
  request.tail_multiple = settings_.use_orig_params ? settings_.ranks : 1;
  request.shards = sharded() ? settings_.ranks : 1;
  for (const auto& member : members) request.numels.push_back(member.parameter.numel());
  layout_ = lay_out(request);

  const auto options = home(members.front().parameter.options());
  const auto shard = at::empty({layout_.shard_numel}, options).fill_(filler(settings_.use_orig_params));
  for (size_t i = 0; i < members.size(); ++i) {
    const auto part = layout_.part(i, index());
    if (part.in_shard()) {
      const auto flattened = members[i].parameter.detach().contiguous();
      alias(shard, part.offset, {part.length}).copy_(alias(flattened, part.start, {part.length}));
    }
    members_.push_back({members[i].parameter,
                        members[i].name,
                        members[i].slots,
                        members[i].parameter.sizes().vec(),
                        part,
                        {}});
  }
  adopt(shard);
  if (!settings_.use_orig_params) {
    flat_parameter_ = alias(tensor_, 0, {tensor_.numel()});
    flat_parameter_.set_requires_grad(members.front().parameter.requires_grad());
  }
  for (const auto& member : members_) member.parameter.mutable_grad().reset();
}

void FlatShard::settle_dtypes(at::ScalarType original) {
  const auto& policy = settings_.mixed_precision;
  compute_dtype_ = policy.param_dtype.value_or(original);
  reduce_dtype_ = policy.reduce_dtype.value_or(compute_dtype_);
}

at::TensorOptions FlatShard::home(const at::TensorOptions& options) const {
  const auto plain = options.requires_grad(false);
  if (!settings_.cpu_offload) return plain;
  // Pinned, so that copies to and from a device run beside the host.
  return plain.device(at::kCPU).pinned_memory(offloaded());
}

FlatShard::Version FlatShard::version() const {
  uint64_t writes = 0;
  if (settings_.use_orig_params) {
    for (const auto& member : members_) writes += member.parameter._version();
  } else {
    writes = flat_parameter_._version();
  }
  return {writes_, writes};
}

void FlatShard::adopt(at::Tensor tensor) {
  tensor_ = std::move(tensor);
  for (auto& member : members_) member.sharded_data = window(member);
}

at::Tensor FlatShard::window(const Member& member) const {
  if (!sharded()) return alias(tensor_, member.part.offset, member.shape);
  if (member.part.in_shard()) return alias(tensor_, member.part.offset, {member.part.length});
  return at::empty({0}, tensor_.options());
}

bool FlatShard::requires_grad() const {
  if (!settings_.use_orig_params) return flat_parameter_.requires_grad();
  return std::ranges::any_of(members_, [](const Member& member) { return trainable(member.parameter); });
}

bool FlatShard::follow_moves() {
  const auto& witness = settings_.use_orig_params ? members_.front().parameter : flat_parameter_;
  if (witness.device() == tensor_.device() && witness.scalar_type() == tensor_.scalar_type()) return false;
  const at::NoGradGuard no_grad;
  auto moved = tensor_.to(witness.options().requires_grad(false));
  if (offloaded() && moved.is_cpu()) moved = moved.pin_memory();
  if (settings_.use_orig_params) {
    for (const auto& member : members_) {
      if (member.part.in_shard())
        alias(moved, member.part.offset, {member.part.length}).copy_(member.parameter.detach().reshape(-1));
    }
  } else {
    at::Tensor copy = moved;
    copy.copy_(flat_parameter_.detach());
  }
  if (settings_.compute_device == tensor_.device()) settings_.compute_device = moved.device();
  settle_dtypes(moved.scalar_type());
  adopt(moved);
  if (!settings_.use_orig_params) flat_parameter_.set_data(tensor_);
  for (const auto& member : members_) replace_data(member.parameter, member.sharded_data);
  return true;
}

}  // namespace fsdp::flat
