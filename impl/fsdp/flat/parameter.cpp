#include "flat/parameter.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>

#include "base/python_text.hpp"
#include "base/storage.hpp"
#include "fsdp/errors.hpp"

namespace fsdp::flat {
namespace {

/// Like set_data, which refuses to go from one kind of device to another.
void replace_data(const at::Tensor& tensor, const at::Tensor& data) {
  tensor.unsafeGetTensorImpl()->shallow_copy_from(data.getIntrusivePtr());
}

bool has_memory(const at::Tensor& tensor) {
  return tensor.numel() == 0 || tensor.storage().nbytes() > 0;
}

}  // namespace

bool trainable(const at::Tensor& parameter) {
  const auto* meta = torch::autograd::impl::get_autograd_meta(parameter);
  return meta && meta->requires_grad_;
}

void FlatParameter::validate(const std::vector<MemberPlan>& members, bool use_orig_params) {
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

FlatParameter::FlatParameter(const std::vector<MemberPlan>& members, Settings settings,
                             GradientSink::Receiver on_gradients)
    : settings_(std::move(settings)), on_gradients_(std::move(on_gradients)) {
  const at::NoGradGuard no_grad;
  settle_dtypes(members.front().parameter.scalar_type());

  LayoutRequest request;
  request.alignment =
      alignment(settings_.use_orig_params, static_cast<int64_t>(c10::elementSize(compute_dtype_)));
  request.tail_multiple = settings_.use_orig_params ? settings_.ranks : 1;
  request.shards = sharded_strategy() ? settings_.ranks : 1;
  for (const auto& member : members) request.numels.push_back(member.parameter.numel());
  layout_ = lay_out(request);

  const auto options = members.front().parameter.options().requires_grad(false);
  const auto shard = at::full({layout_.shard_numel}, filler(settings_.use_orig_params), options);
  for (size_t i = 0; i < members.size(); ++i) {
    const auto part = layout_.part(i, shard_index());
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
  adopt_shard(shard);
  if (!settings_.use_orig_params) {
    flat_parameter_ = alias(local_shard_, 0, {local_shard_.numel()});
    flat_parameter_.set_requires_grad(members.front().parameter.requires_grad());
    register_flat();
  }
  for (const auto& member : members_) member.parameter.mutable_grad().reset();
  show_sharded();
}

FlatParameter::~FlatParameter() {
  for (auto* part : {&compute_, &full_precision_}) {
    if (part->sink) part->sink->disconnect();
  }
}

void FlatParameter::settle_dtypes(at::ScalarType original) {
  const auto& policy = settings_.mixed_precision;
  compute_dtype_ = policy.param_dtype.value_or(original);
  reduce_dtype_ = policy.reduce_dtype.value_or(compute_dtype_);
}

void FlatParameter::adopt_shard(at::Tensor shard) {
  local_shard_ = std::move(shard);
  for (size_t i = 0; i < members_.size(); ++i)
    members_[i].sharded_data = shard_window(local_shard_, members_[i]);
  make_unsharded(compute_, compute_dtype_);
  if (low_precision_compute()) make_unsharded(full_precision_, original_dtype());
}

at::Tensor FlatParameter::shard_window(const at::Tensor& flat, const Member& member) const {
  if (!sharded_strategy()) return alias(flat, member.part.offset, member.shape);
  if (member.part.in_shard()) return alias(flat, member.part.offset, {member.part.length});
  return at::empty({0}, flat.options());
}

void FlatParameter::make_unsharded(Unsharded& unsharded, at::ScalarType dtype) {
  if (unsharded.sink) unsharded.sink->disconnect();
  unsharded = {};
  const auto device = settings_.compute_device;
  if (!sharded_strategy() && dtype == original_dtype() && local_shard_.device() == device) {
    unsharded.padded = local_shard_;
  } else {
    unsharded.padded =
        empty_unsharded(layout_.padded_numel, local_shard_.options().dtype(dtype).device(device));
    free_storage(unsharded.padded);
  }
  for (size_t i = 0; i < members_.size(); ++i)
    unsharded.windows.push_back(alias(unsharded.padded, layout_.members[i].offset, members_[i].shape));
  unsharded.sink = std::make_shared<GradientSink>(unsharded.windows, on_gradients_);
}

FlatParameter::Unsharded& FlatParameter::unsharded(bool full_precision) {
  return full_precision && low_precision_compute() ? full_precision_ : compute_;
}

const FlatParameter::Unsharded& FlatParameter::unsharded(bool full_precision) const {
  return full_precision && low_precision_compute() ? full_precision_ : compute_;
}

const at::Tensor& FlatParameter::whole(bool full_precision) const {
  return unsharded(full_precision).padded;
}

void FlatParameter::mark_gathered_ahead(bool full_precision) {
  unsharded(full_precision).gathered_ahead = true;
}

bool FlatParameter::gathered_ahead() const {
  return compute_.gathered_ahead || full_precision_.gathered_ahead;
}

bool FlatParameter::is_gathered() const {
  return !needs_unshard(/*full_precision=*/false) || !needs_unshard(/*full_precision=*/true);
}

bool FlatParameter::needs_unshard(bool full_precision) const {
  return !has_memory(unsharded(full_precision).padded);
}

void FlatParameter::unshard(bool full_precision, const CallSite& site) {
  const at::NoGradGuard no_grad;
  auto& target = unsharded(full_precision);
  // What is changed in one precision must not be hidden by an older copy in the other.
  const bool other = !full_precision;
  if (&unsharded(other) != &target && has_memory(unsharded(other).padded)) free_unsharded(other);
  if (has_memory(target.padded)) return;
  alloc_storage(target.padded);
  if (!sharded_strategy()) {
    at::Tensor copy = target.padded;
    copy.copy_(local_shard_);
    return;
  }
  auto input = local_shard_;
  if (target.padded.scalar_type() != local_shard_.scalar_type() ||
      target.padded.device() != local_shard_.device()) {
    input = alias(target.padded, settings_.rank * layout_.shard_numel, {layout_.shard_numel});
    input.copy_(local_shard_);
  }
  target.gathering = settings_.group->all_gather(target.padded, input, site);
}

void FlatParameter::wait_for_unshard(bool full_precision) {
  if (auto work = std::move(unsharded(full_precision).gathering)) work->wait();
}

void FlatParameter::show_unsharded(bool full_precision, Shown how) {
  auto& target = unsharded(full_precision);
  const bool in_graph = how == Shown::tensors && requires_grad();
  for (size_t i = 0; i < members_.size(); ++i) {
    const auto& parameter = members_[i].parameter;
    torch::autograd::impl::set_gradient_edge(parameter, {});
    if (!settings_.use_orig_params && trainable(parameter) != flat_parameter_.requires_grad())
      parameter.set_requires_grad(flat_parameter_.requires_grad());
    parameter.set_data(target.windows[i]);
    // Frozen members, too: the sink must not run, and the memory not go, before backward is through with
    // them.
    if (in_graph)
      torch::autograd::impl::set_gradient_edge(parameter, {target.sink, static_cast<uint32_t>(i)});
  }
  target.gathered_ahead = false;
  shown_unsharded_ = &target;
  shown_ = how;
  keeps_views_ = false;
}

void FlatParameter::show_sharded() {
  for (const auto& member : members_) {
    torch::autograd::impl::set_gradient_edge(member.parameter, {});
    member.parameter.set_data(member.sharded_data);
  }
  shown_unsharded_ = nullptr;
  shown_ = Shown::sharded;
  keeps_views_ = false;
  compute_.gathered_ahead = full_precision_.gathered_ahead = false;
}

void FlatParameter::free_unsharded(bool full_precision) {
  auto& target = unsharded(full_precision);
  if (target.padded.is_alias_of(local_shard_)) return;
  if (target.gathering) wait_for_unshard(full_precision);
  free_storage(target.padded);
  target.gathered_ahead = false;
}

void FlatParameter::shard_changed() {
  if (shown_ != Shown::sharded) show_sharded();
  free_unsharded(/*full_precision=*/false);
  free_unsharded(/*full_precision=*/true);
}

bool FlatParameter::catches_gradients() const {
  return shown_unsharded_ && std::ranges::any_of(members_, [&](const Member& member) {
           return member.parameter.grad_fn() == shown_unsharded_->sink;
         });
}

bool FlatParameter::requires_grad() const {
  if (!settings_.use_orig_params) return flat_parameter_.requires_grad();
  for (const auto& member : members_) {
    if (trainable(member.parameter)) return true;
  }
  return false;
}

void FlatParameter::write_shard_back(const at::Tensor& padded_whole) {
  if (padded_whole.is_alias_of(local_shard_)) return;
  const at::NoGradGuard no_grad;
  const auto begin = shard_index() * layout_.shard_numel;
  at::Tensor shard = local_shard_;
  shard.copy_(alias(padded_whole, begin, {layout_.shard_numel}));
}

void FlatParameter::register_flat() {
  for (const auto& member : members_) {
    for (const auto& slot : member.slots) slot.take_out();
  }
  const auto module = settings_.module.lock();
  if (module)
    ParameterSlot{module, module.get(), kFlatParameterName, own_parameters(*module).size()}.put(
        flat_parameter_);
}

void FlatParameter::register_originals() {
  const auto module = settings_.module.lock();
  if (module) ParameterSlot{module, module.get(), kFlatParameterName, 0}.take_out();
  for (const auto& member : members_) {
    for (const auto& slot : member.slots) slot.put(member.parameter);
  }
}

void FlatParameter::follow_moves() {
  const auto& witness = settings_.use_orig_params ? members_.front().parameter : flat_parameter_;
  if (witness.device() == local_shard_.device() && witness.scalar_type() == local_shard_.scalar_type())
    return;
  const at::NoGradGuard no_grad;
  const auto shard = local_shard_.to(witness.options().requires_grad(false));
  if (settings_.use_orig_params) {
    for (const auto& member : members_) {
      if (member.part.in_shard())
        alias(shard, member.part.offset, {member.part.length}).copy_(member.parameter.detach().reshape(-1));
    }
  } else {
    at::Tensor copy = shard;
    copy.copy_(flat_parameter_.detach());
  }
  if (settings_.compute_device == local_shard_.device()) settings_.compute_device = shard.device();
  settle_dtypes(shard.scalar_type());
  adopt_shard(shard);
  if (!settings_.use_orig_params) flat_parameter_.set_data(local_shard_);
  for (const auto& member : members_) replace_data(member.parameter, member.sharded_data);
}

}  // namespace fsdp::flat
