// What user code did to parameters between passes gets back into the flat parameter.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>

#include <utility>

#include "base/python_text.hpp"
#include "base/storage.hpp"
#include "base/unit_registry.hpp"
#include "flat/parameter.hpp"
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

void FlatParameter::writeback() {
  const at::NoGradGuard no_grad;
  if (!settings_.use_orig_params) {
    adopt_flat_parameter_changes();
    collect_gradients(false);
    return;
  }
  const bool checks = !settings_.skip_writeback_check;
  if (shown_ != Shown::sharded && !keeps_views_) return;
  if (checks) {
    writeback_parameters();
  } else {
    put_back_parameters();
  }
  collect_gradients(checks);
}

// Nobody looks for changes: what stands in the module is ours again, and so are its data once they are shown.
void FlatParameter::put_back_parameters() {
  for (auto& member : members_) {
    for (const auto& place : member.slots) {
      if (auto* slot = place.find(); slot && slot->defined()) *slot = member.parameter;
    }
  }
}

void FlatParameter::writeback_parameters() {
  const auto* expected = storage_of(keeps_views_ ? shown_unsharded_->padded : local_shard_);
  for (auto& member : members_) {
    auto* slot = member.slots.front().find();
    if (!slot || !slot->defined()) continue;  // taken out of the module
    const bool changed = slot->unsafeGetTensorImpl() != member.parameter.unsafeGetTensorImpl();
    if (!member.part.in_shard()) {
      // Nothing of it is this rank's: the module gets its own object back.
      if (changed) *slot = member.parameter;
      continue;
    }
    if (!changed && storage_of(*slot) == expected) continue;
    if (keeps_views_) {
      throw InvalidState(
          std::string("FSDP does not support changing the parameters between forward and backward for "
                      "HandleShardingStrategy.") +
          python_name(settings_.strategy));
    }
    const at::Tensor source = *slot;
    require_length("parameter", source, member.part.length, sharded_strategy());
    alias(local_shard_, member.part.offset, {member.part.length}).copy_(source.detach().reshape(-1));
    if (changed) {
      member.parameter = source;  // its gradient is not kept
      UnitRegistry::instance().add(Engine::flat, source, settings_.unit,
                                   static_cast<size_t>(&member - members_.data()));
    }
    member.parameter.set_data(member.sharded_data);
  }
  for (const auto& member : members_) {
    for (size_t i = 1; i < member.slots.size(); ++i) {
      const auto* slot = member.slots[i].find();
      if (slot && slot->unsafeGetTensorImpl() != member.parameter.unsafeGetTensorImpl())
        throw NotImplemented("Changing shared parameters is not supported yet");
    }
  }
}

void FlatParameter::adopt_flat_parameter_changes() {
  if (storage_of(flat_parameter_) == storage_of(local_shard_)) return;
  require_length("parameter", flat_parameter_, local_shard_.numel(), true);
  local_shard_.copy_(flat_parameter_.detach());
  flat_parameter_.set_data(local_shard_);
}

void FlatParameter::take_user_gradient(size_t index) {
  auto& member = members_[index];
  const auto window = gradient_window(index);
  const auto& gradient = member.parameter.mutable_grad();
  require_length("gradient", gradient, window.numel(), sharded_strategy() && !whole_gradient_.defined());
  at::Tensor target = window;
  target.copy_(gradient.detach().reshape(window.sizes()));
  member.gradient_is_none = false;
}

void FlatParameter::collect_gradients(bool check_each) {
  const at::NoGradGuard no_grad;
  const auto drop = [this] {
    sharded_gradient_.reset();
    whole_gradient_.reset();
  };
  const auto exposed = [this]() -> at::Tensor& {
    return whole_gradient_.defined() ? whole_gradient_ : sharded_gradient_;
  };
  if (!settings_.use_orig_params) {
    const auto gradient = flat_parameter_.mutable_grad();
    if (!gradient.defined()) {
      drop();
    } else if (storage_of(gradient) != storage_of(exposed())) {
      require_length("gradient", gradient, local_shard_.numel(), true);
      (sharded_strategy() ? sharded_gradient_ : whole_gradient_) = gradient.detach();
    }
    return;
  }
  bool all_none = true;
  for (const auto& member : members_) all_none = all_none && !member.parameter.mutable_grad().defined();
  if (all_none) return drop();
  if (!check_each) return;
  for (size_t i = 0; i < members_.size(); ++i) {
    auto& member = members_[i];
    const auto& gradient = member.parameter.mutable_grad();
    if (!member.part.in_shard() || !gradient.defined()) continue;
    if (exposed().defined() && storage_of(gradient) == storage_of(exposed())) continue;
    if (!exposed().defined()) {
      (sharded_strategy() ? sharded_gradient_ : whole_gradient_) = at::zeros_like(local_shard_);
      // The others have none, and go on having none.
      for (auto& other : members_) other.gradient_is_none = !other.parameter.mutable_grad().defined();
    }
    take_user_gradient(i);
  }
  if (!exposed().defined()) return;
  for (size_t i = 0; i < members_.size(); ++i) {
    auto& member = members_[i];
    if (!member.part.in_shard() || member.parameter.mutable_grad().defined() || member.gradient_is_none)
      continue;
    gradient_window(i).zero_();
    member.gradient_is_none = true;
  }
}

}  // namespace fsdp::flat
