#include "flat/writeback.hpp"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <string>

#include "base/python_text.hpp"
#include "base/storage.hpp"
#include "base/unit_registry.hpp"
#include "fsdp/errors.hpp"

namespace fsdp::flat {
namespace {

const c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
}

void require_shape(const char* what, const at::Tensor& tensor, at::IntArrayRef given, int64_t expected) {
  if (given.size() == 1 && given[0] == expected) return;
  throw RuntimeError("Cannot writeback when the " + std::string(what) + " shape changes\nExpects " +
                     python_size({expected}) + " but got " + python_size(tensor.sizes()));
}

/// NO_SHARD shows parameters in their shape: only the number of elements counts there.
void require_length(const char* what, const at::Tensor& tensor, int64_t expected, bool sharded) {
  require_shape(what, tensor, sharded ? tensor.sizes() : at::IntArrayRef(tensor.numel()), expected);
}

}  // namespace

void Writeback::take_over() {
  const at::NoGradGuard no_grad;
  if (!shard_.settings().use_orig_params) return take_over_flat_parameter();
  const bool checks = !shard_.settings().skip_writeback_check;
  if (showing_.how != Shown::sharded && showing_.how != Shown::kept) return;
  if (checks) {
    take_over_parameters();
  } else {
    put_back_parameters();
  }
  take_over_gradients();
  if (checks) take_over_each_gradient();
}

// What stands in the module is ours again, and so are its data once they are shown.
void Writeback::put_back_parameters() {
  for (const auto& member : shard_.members()) {
    for (const auto& place : member.slots) {
      if (auto* slot = place.find(); slot && slot->defined()) *slot = member.parameter;
    }
  }
}

void Writeback::take_over_parameters() {
  const bool kept = showing_.how == Shown::kept;
  const auto* expected = storage_of(kept ? showing_.whole : shard_.tensor());
  const auto& members = shard_.members();
  for (size_t i = 0; i < members.size(); ++i) {
    const auto& member = members[i];
    auto* slot = member.slots.front().find();
    if (!slot || !slot->defined()) continue;  // taken out of the module
    const bool changed = slot->unsafeGetTensorImpl() != member.parameter.unsafeGetTensorImpl();
    if (!member.part.in_shard()) {
      // Nothing of it is this rank's: the module gets its own object back.
      if (changed) *slot = member.parameter;
      continue;
    }
    if (!changed && storage_of(*slot) == expected) continue;
    if (kept) {
      throw InvalidState(
          std::string("FSDP does not support changing the parameters between forward and backward for "
                      "HandleShardingStrategy.") +
          python_name(shard_.settings().strategy));
    }
    const at::Tensor source = *slot;
    require_length("parameter", source, member.part.length, shard_.sharded());
    alias(shard_.tensor(), member.part.offset, {member.part.length}).copy_(source.detach().reshape(-1));
    shard_.written();
    if (changed) {
      shard_.exchange(i, source);  // its gradient is not kept
      UnitRegistry::instance().add(Engine::flat, source, shard_.settings().unit, i);
    }
    member.parameter.set_data(member.sharded_data);
  }
  for (const auto& member : members) {
    for (size_t i = 1; i < member.slots.size(); ++i) {
      const auto* slot = member.slots[i].find();
      if (slot && slot->unsafeGetTensorImpl() != member.parameter.unsafeGetTensorImpl())
        throw NotImplemented("Changing shared parameters is not supported yet");
    }
  }
}

void Writeback::take_over_flat_parameter() {
  const auto& parameter = shard_.flat_parameter();
  if (storage_of(parameter) == storage_of(shard_.tensor())) return;
  require_length("parameter", parameter, shard_.tensor().numel(), true);
  at::Tensor shard = shard_.tensor();
  shard.copy_(parameter.detach());
  shard_.written();
  parameter.set_data(shard);
}

void Writeback::take_over_gradients() {
  const at::NoGradGuard no_grad;
  if (!shard_.settings().use_orig_params) return take_over_flat_gradient();
  if (std::ranges::none_of(shard_.members(), [](const FlatShard::Member& member) {
        return member.parameter.mutable_grad().defined();
      }))
    gradient_.drop();
}

void Writeback::take_over_flat_gradient() {
  const auto gradient = shard_.flat_parameter().mutable_grad();
  if (!gradient.defined()) {
    gradient_.drop();
  } else if (storage_of(gradient) != storage_of(gradient_.exposed())) {
    require_length("gradient", gradient, shard_.tensor().numel(), true);
    gradient_.replace(gradient.detach());
  }
}

void Writeback::take_over_each_gradient() {
  const auto& members = shard_.members();
  const auto exposed = [this]() -> const at::Tensor& { return gradient_.exposed(); };
  // While whole gradients wait, every rank has all of each, whatever its shard holds of the parameter.
  const auto is_ours = [&](size_t i) { return gradient_.whole().defined() || members[i].part.in_shard(); };
  for (size_t i = 0; i < members.size(); ++i) {
    const auto& gradient = members[i].parameter.mutable_grad();
    if (!is_ours(i) || !gradient.defined()) continue;
    if (exposed().defined() && storage_of(gradient) == storage_of(exposed())) continue;
    if (!exposed().defined()) gradient_.begin_with_zeros();
    require_length("gradient", gradient, gradient_.window(i).numel(),
                   shard_.sharded() && !gradient_.whole().defined());
    gradient_.put(i, gradient.detach());
  }
  if (!exposed().defined()) return;
  for (size_t i = 0; i < members.size(); ++i) {
    if (!is_ours(i) || members[i].parameter.mutable_grad().defined() || gradient_.is_none(i)) continue;
    gradient_.take_away(i);
  }
}

}  // namespace fsdp::flat
