#include "fsdp/flat/inspection.hpp"

#include <ATen/ops/empty.h>

#include <utility>

#include "base/storage.hpp"
#include "flat/original_slots.hpp"
#include "fsdp/errors.hpp"

namespace fsdp::flat {
namespace {

FlatPiece piece_of(const FlatShard::Member& member, bool whole) {
  if (whole) return {member.shape, 0, c10::multiply_integers(member.shape), true};
  return {member.shape, member.part.start, member.part.length, false};
}

/// A parameter's elements in a tensor shaped like the flat parameter's shard or the whole.
at::Tensor cut(const FlatShard& shard, size_t index, const at::Tensor& tensor, bool whole) {
  const auto& member = shard.members()[index];
  if (whole) return alias(tensor, shard.layout().members[index].offset, member.shape);
  if (!member.part.in_shard()) return at::empty({0}, tensor.options().requires_grad(false));
  return alias(tensor, member.part.offset, {member.part.length});
}

OriginalParameter managed(const OriginalSlot& place) {
  const auto& flat = *place.state->flat();
  const auto& shard = flat.shard();
  const auto& member = place.info();
  OriginalParameter result;
  result.name = place.name;
  result.managed = true;
  result.use_orig_params = shard.settings().use_orig_params;
  const auto* in_slot = place.place->find();
  result.slot = in_slot ? *in_slot : member.parameter;
  const bool never_sharded = !shard.sharded();
  const bool shown_whole = never_sharded || flat.shown() != Shown::sharded;
  result.value_piece = piece_of(member, shown_whole);
  result.shard_piece = piece_of(member, never_sharded);
  const bool gradient_whole = never_sharded || flat.gradient().whole().defined();
  result.gradient_piece = piece_of(member, gradient_whole);
  if (result.use_orig_params) {
    result.requires_grad = trainable(member.parameter);
    result.value = result.slot;
    result.updated = member.parameter;
    const bool in_graph = flat.shown() == Shown::tensors || flat.shown() == Shown::kept;
    if (!in_graph) result.gradient = result.slot.mutable_grad();
    return result;
  }
  const auto& parameter = shard.flat_parameter();
  result.requires_grad = parameter.requires_grad();
  // What is never sharded is whole in the flat parameter itself, unless that lies in host memory and a copy is shown.
  const bool shown_elsewhere = flat.shown() != Shown::sharded && (!never_sharded || shard.offloaded());
  result.value = shown_elsewhere ? member.parameter.detach()
                                 : cut(shard, place.member, parameter.detach(), never_sharded);
  result.updated = parameter;
  result.state_offset = member.part.offset;
  if (const auto& gradient = parameter.mutable_grad(); gradient.defined())
    result.gradient = cut(shard, place.member, gradient, gradient_whole);
  return result;
}

OriginalParameter unmanaged(const std::string& name, const at::Tensor& tensor) {
  OriginalParameter result;
  result.name = name;
  result.requires_grad = tensor.requires_grad();
  result.slot = result.value = result.updated = tensor;
  result.gradient = tensor.mutable_grad();
  result.value_piece = result.gradient_piece =
      result.shard_piece = {tensor.sizes().vec(), 0, tensor.numel(), true};
  return result;
}

}  // namespace

std::vector<OriginalParameter> named_original_parameters(const torch::nn::Module& root) {
  std::vector<OriginalParameter> result;
  for (const auto& slot : original_slots(root, Ties::once))
    result.push_back(slot.state ? managed(slot) : unmanaged(slot.name, slot.unmanaged));
  return result;
}

FlatParameterInfo flat_parameter_info(const torch::nn::Module& unit) {
  const auto state = FlatState::of(unit);
  if (!state) throw InvalidState("No FSDP state found on " + c10::str(unit));
  if (!state->flat()) return {};
  const auto& shard = state->flat()->shard();
  FlatParameterInfo info;
  for (size_t i = 0; i < shard.members().size(); ++i) {
    const auto& member = shard.members()[i];
    const auto& stretch = shard.layout().members[i];
    info.members.push_back({member.name, member.shape, stretch.offset, stretch.numel});
  }
  return info;
}

}  // namespace fsdp::flat
