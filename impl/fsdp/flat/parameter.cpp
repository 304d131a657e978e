#include "flat/parameter.hpp"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>

#include "base/storage.hpp"

namespace fsdp::flat {

FlatParameter::FlatParameter(const std::vector<MemberPlan>& members, FlatShard::Settings settings,
                             GradientSink::Receiver on_gradients)
    : shard_(members, std::move(settings)),
      gradient_(shard_),
      writeback_(shard_, gradient_, showing_),
      on_gradients_(std::move(on_gradients)) {
  const at::NoGradGuard no_grad;
  make_all_unsharded();
  if (!shard_.settings().use_orig_params) register_flat();
  show_shards_of_members();
}

FlatParameter::~FlatParameter() {
  for (auto* part : {&compute_, &full_precision_}) {
    if (part->sink) part->sink->disconnect();
    // Unless a graph keeps it, the memory goes now; perhaps while a gather for a unit that did not run still writes it.
    part->gathered.block_current();
    if (part->from_side) used_on_current(part->padded);
  }
}

void FlatParameter::make_all_unsharded() {
  make_unsharded(compute_, shard_.compute_dtype());
  if (shard_.low_precision_compute()) make_unsharded(full_precision_, shard_.original_dtype());
}

void FlatParameter::make_unsharded(Unsharded& unsharded, at::ScalarType dtype) {
  if (unsharded.sink) unsharded.sink->disconnect();
  unsharded = {};
  const auto device = shard_.settings().compute_device;
  const auto& shard = shard_.tensor();
  if (!shard_.sharded() && dtype == shard_.original_dtype() && shard.device() == device) {
    unsharded.padded = shard;
    unsharded.life = Life::gathered;
  } else {
    unsharded.padded =
        empty_unsharded(shard_.layout().padded_numel, shard.options().dtype(dtype).device(device));
    free(unsharded);
  }
  const auto& members = shard_.members();
  for (size_t i = 0; i < members.size(); ++i)
    unsharded.windows.push_back(alias(unsharded.padded, shard_.layout().members[i].offset, members[i].shape));
  unsharded.sink = std::make_shared<GradientSink>(unsharded.windows, on_gradients_);
}

FlatParameter::Unsharded& FlatParameter::unsharded(bool full_precision) {
  return full_precision && shard_.low_precision_compute() ? full_precision_ : compute_;
}

const FlatParameter::Unsharded& FlatParameter::unsharded(bool full_precision) const {
  return full_precision && shard_.low_precision_compute() ? full_precision_ : compute_;
}

void FlatParameter::mark_gathered_ahead() {
  current().life = Life::ahead;
}

bool FlatParameter::gathered_ahead() const {
  return compute_.life == Life::ahead || full_precision_.life == Life::ahead;
}

void FlatParameter::unshard(bool full_precision, const CallSite& site, const FlatStreams& streams) {
  const at::NoGradGuard no_grad;
  auto& target = unsharded(full_precision);
  in_full_precision_ = full_precision;
  // What is changed in one precision must not be hidden by an older copy in the other.
  auto& other = unsharded(!full_precision);
  if (&other != &target) free(other);
  if (target.life != Life::freed) return;
  target.life = Life::gathered;
  target.from_side = static_cast<bool>(streams.unshard);
  const auto& shard = shard_.tensor();
  const bool converts =
      target.padded.scalar_type() != shard.scalar_type() || target.padded.device() != shard.device();
  const auto beside = (converts ? streams.pre_unshard : streams.unshard).use();
  alloc_storage(target.padded);
  auto input = shard;
  if (converts) {
    const auto numel = shard_.layout().shard_numel;
    input = alias(target.padded, shard_.index() * numel, {numel});
    input.copy_(shard, /*non_blocking=*/target.from_side);
    if (shard_.offloaded()) copied_from_host_ = StreamEvent::record(target.padded.device());
    streams.unshard.wait_current();
  }
  const auto gathers = streams.unshard.use();
  if (shard_.sharded()) {
    target.gathering = shard_.settings().group->all_gather(target.padded, input, site);
    if (target.from_side) std::exchange(target.gathering, {})->wait();
  }
  if (target.from_side) target.gathered = StreamEvent::record(target.padded.device());
}

void FlatParameter::wait_for_unshard() {
  wait_for(current());
}

void FlatParameter::wait_for(Unsharded& unsharded) {
  if (auto work = std::move(unsharded.gathering)) work->wait();
  std::exchange(unsharded.gathered, {}).block_current();
}

void FlatParameter::wait_for_copies_from_host() {
  std::exchange(copied_from_host_, {}).synchronize();
}

bool FlatParameter::free_unsharded() {
  const bool from_side = current().from_side;
  free(current());
  return from_side;
}

void FlatParameter::free_unsharded(bool full_precision) {
  free(unsharded(full_precision));
}

void FlatParameter::free(Unsharded& unsharded) {
  if (unsharded.padded.is_alias_of(shard_.tensor())) return;
  wait_for(unsharded);
  if (std::exchange(unsharded.from_side, false)) used_on_current(unsharded.padded);
  free_storage(unsharded.padded);
  // Where there are no elements nothing is to be gathered.
  unsharded.life = unsharded.padded.numel() > 0 ? Life::freed : Life::gathered;
}

void FlatParameter::shard_changed() {
  if (shown() != Shown::sharded) show_sharded();
  free(compute_);
  if (shard_.low_precision_compute()) free(full_precision_);
  wait_for_copies_from_host();  // of a gather for a unit that has not run: the others have waited in reshard
  shard_.written();
}

void FlatParameter::show_unsharded(Shown how) {
  auto& target = current();
  const bool in_graph = how == Shown::tensors && shard_.requires_grad();
  const auto& flat_parameter = shard_.flat_parameter();
  for (size_t i = 0; i < shard_.members().size(); ++i) {
    const auto& parameter = shard_.members()[i].parameter;
    torch::autograd::impl::set_gradient_edge(parameter, {});
    if (!shard_.settings().use_orig_params && trainable(parameter) != flat_parameter.requires_grad())
      parameter.set_requires_grad(flat_parameter.requires_grad());
    parameter.set_data(target.windows[i]);
    // Frozen members, too: the sink must not run, and the memory not go, before backward is through with
    // them.
    if (in_graph)
      torch::autograd::impl::set_gradient_edge(parameter, {target.sink, static_cast<uint32_t>(i)});
  }
  if (target.life == Life::ahead) target.life = Life::gathered;
  showing_ = {how, target.padded};
}

void FlatParameter::show_sharded() {
  // Where shards are shown already, what a user has put in their place waits to be taken over.
  if (shown() != Shown::sharded) show_shards_of_members();
  showing_ = {};
  for (auto* part : {&compute_, &full_precision_}) {
    if (part->life == Life::ahead) part->life = Life::gathered;
  }
}

void FlatParameter::show_shards_of_members() {
  for (const auto& member : shard_.members()) {
    torch::autograd::impl::set_gradient_edge(member.parameter, {});
    member.parameter.set_data(member.sharded_data);
  }
}

bool FlatParameter::catches_gradients() const {
  return shown() != Shown::sharded &&
         std::ranges::any_of(shard_.members(), [&](const FlatShard::Member& member) {
           return member.parameter.grad_fn() == unsharded(in_full_precision_).sink;
         });
}

void FlatParameter::write_shard_back(const at::Tensor& padded_whole) {
  at::Tensor shard = shard_.tensor();
  if (padded_whole.is_alias_of(shard)) return;
  const at::NoGradGuard no_grad;
  const auto numel = shard_.layout().shard_numel;
  shard.copy_(alias(padded_whole, shard_.index() * numel, {numel}));
  shard_.written();
}

void FlatParameter::register_flat() {
  for (const auto& member : shard_.members()) {
    for (const auto& slot : member.slots) slot.take_out();
  }
  const auto module = shard_.settings().module.lock();
  if (module)
    ParameterSlot{module, module.get(), kFlatParameterName, own_parameters(*module).size()}.put(
        shard_.flat_parameter());
}

void FlatParameter::register_originals() {
  const auto module = shard_.settings().module.lock();
  if (module) ParameterSlot{module, module.get(), kFlatParameterName, 0}.take_out();
  for (const auto& member : shard_.members()) {
    for (const auto& slot : member.slots) slot.put(member.parameter);
  }
}

void FlatParameter::follow_moves() {
  if (shard_.follow_moves()) make_all_unsharded();
}

}  // namespace fsdp::flat
