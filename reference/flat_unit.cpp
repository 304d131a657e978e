#include "reference/flat_unit.hpp"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "harness/sdk/cpp/errors.hpp"

namespace fsdp_cts::reference {
namespace {

FlatLayout layout_of(const std::vector<UnitParameter>& parameters, const FlatSettings& settings) {
  std::vector<std::int64_t> numels;
  for (const UnitParameter& p : parameters) numels.push_back(p.master.numel());
  std::int64_t alignment = 1;
  if (!parameters.empty()) {
    const at::ScalarType dtype =
        settings.mixed_precision.param_dtype.value_or(parameters.front().master.scalar_type());
    alignment = 16 / static_cast<std::int64_t>(c10::elementSize(dtype));
  }
  return {numels, alignment, settings.group.size, settings.use_orig_params};
}

}  // namespace

FlatUnit::FlatUnit(std::string path, sdk::Module& module, std::vector<UnitParameter> parameters,
                   FlatSettings settings)
    : Unit({{std::move(path), &module}}, std::move(parameters)),
      settings_(std::move(settings)),
      layout_(layout_of(parameters_, settings_)),
      hidden_(parameters_.size()),
      added_to_(parameters_.size()) {
  if (partly_frozen())
    throw sdk::Error("ValueError",
                     "Must flatten tensors with uniform `requires_grad` when `use_orig_params=False`");
  for (const UnitParameter& p : parameters_) flattened_.push_back(p.master.detach());
}

const UnitParameter* FlatUnit::partly_frozen() const {
  if (settings_.use_orig_params) return nullptr;
  for (const UnitParameter& p : parameters_)
    if (p.master.requires_grad() != parameters_.front().master.requires_grad()) return &p;
  return nullptr;
}

sdk::Unit FlatUnit::describe() const {
  sdk::Unit unit{path(), module().class_name(), settings_.shown, {}};
  for (const UnitParameter& p : parameters_) unit.parameters.push_back(p.name);
  return unit;
}

bool FlatUnit::forced_full_precision() const {
  return settings_.full_precision_in_eval && !module().is_training();
}

// A view of one flat parameter, which requires a gradient as soon as one member does.
bool FlatUnit::catches_gradient(const UnitParameter&) const {
  return std::any_of(parameters_.begin(), parameters_.end(), [](const UnitParameter& member) {
    return member.slots.front().tensor().requires_grad();
  });
}

at::ScalarType FlatUnit::compute_dtype(const UnitParameter& parameter) const {
  const at::ScalarType original = parameter.master.scalar_type();
  return forced_full_precision() ? original : settings_.mixed_precision.param_dtype.value_or(original);
}

// A testee could freeze its one flat parameter only as a whole, and would do what the program does not say.
void FlatUnit::refuse_partly_frozen() const {
  const UnitParameter* of_other_kind = partly_frozen();
  if (!of_other_kind) return;
  throw std::invalid_argument(
      "set_requires_grad leaves the unit \"" + path() + "\" with both " + parameters_.front().name + " and " +
      of_other_kind->name +
      ", of which one requires a gradient and one does not; without use_orig_params they are one "
      "flat parameter, so name all of a unit's parameters or none");
}

// The root casts by `cast_root_forward_inputs`; in the composable form so does every unit, by its own policy.
// A unit that owns parameters also casts by `cast_forward_inputs`.
sdk::Tensors FlatUnit::before_forward(sdk::Tensors inputs) {
  refuse_partly_frozen();
  write_back();
  const FlatMixedPrecision& mixed = settings_.mixed_precision;
  for (const Buffer& b : buffers) {
    const at::ScalarType wanted =
        forced_full_precision() ? b.original : mixed.buffer_dtype.value_or(b.original);
    const at::Tensor& buffer = b.owner->buffer(b.key);
    if (mixed.buffer_dtype && buffer.scalar_type() != wanted) b.owner->set_buffer(b.key, buffer.to(wanted));
  }
  const bool as_root = (is_root_ || settings_.composable) && mixed.cast_root_forward_inputs;
  const bool as_owner = !parameters_.empty() && mixed.cast_forward_inputs;
  if (forced_full_precision() || !(as_root || as_owner)) return inputs;
  return cast_floating(std::move(inputs), mixed.param_dtype);
}

sdk::Tensors FlatUnit::after_forward(sdk::Tensors outputs) {
  if (settings_.keeps_unsharded() && settings_.use_orig_params && c10::GradMode::is_enabled()) {
    for (const UnitParameter& p : parameters_)
      seen_.push_back({p.master.unsafeGetTensorImpl(), p.master.storage().data()});
  }
  return outputs;
}

void FlatUnit::write_back() {
  const std::vector<Seen> left_unsharded = std::move(seen_);
  seen_.clear();
  if (!settings_.use_orig_params) return;
  if (settings_.skip_writeback_check) return put_back();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const std::int64_t held = layout_.numel_in_shard(i, settings_.group.rank);
    if (held == 0) continue;
    const at::Tensor& now = parameters_[i].slots.front().tensor();
    if (!left_unsharded.empty()) {
      const bool same = now.unsafeGetTensorImpl() == left_unsharded[i].tensor &&
                        now.storage().data() == left_unsharded[i].storage;
      if (!same) {
        throw sdk::Error("AssertionError",
                         "FSDP does not support changing the parameters between forward and backward for "
                         "ShardingStrategy." +
                             settings_.sharding_strategy);
      }
    }
    const at::Tensor& before = parameters_[i].master;
    const std::int64_t grown =
        now.dim() > 0 && now.size(0) > before.size(0) ? now.size(0) - before.size(0) : 0;
    if (now.is_same(before) || grown == 0) continue;
    throw sdk::Error("RuntimeError",
                     "Cannot writeback when the parameter shape changes\nExpects torch.Size([" +
                         std::to_string(held) + "]) but got torch.Size([" + std::to_string(held + grown) +
                         "])");
  }
}

// Nobody looks for changes: what user code put in place of a parameter, or of its data, is lost.
void FlatUnit::put_back() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    UnitParameter& p = parameters_[i];
    p.master.set_data(flattened_[i]);
    for (const sdk::Slot& slot : p.slots) {
      if (!slot.tensor().is_same(p.compute)) slot.owner->set_parameter(slot.key, p.master);
    }
  }
}

void FlatUnit::exchange_shards(const std::vector<Unit*>& peers) {
  if (!settings_.shards() || !settings_.group.communicates) return;
  const c10::AutoGradMode no_grad(false);
  const auto size = static_cast<std::size_t>(settings_.group.size);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const auto master = [&](std::size_t rank) { return peers[rank]->parameters()[i].master.detach(); };
    std::vector<at::Tensor> written;
    for (std::size_t r = 0; r < peers.size(); ++r) written.push_back(master(r).flatten().clone());
    for (std::size_t r = 0; r < peers.size(); ++r) {
      const std::size_t first = r / size * size;  // of the ranks that shard with this one
      std::vector<at::Tensor> parts;
      for (std::size_t owner = 0; owner < size; ++owner) {
        const FlatLayout::Part part = layout_.part_in_shard(i, static_cast<std::int64_t>(owner));
        parts.push_back(written[first + owner].narrow(0, part.begin, part.numel()));
      }
      master(r).copy_(at::cat(parts).view(master(r).sizes()));
    }
  }
}

void FlatUnit::take_first_ranks_states(const std::vector<Unit*>& peers) {
  if (!settings_.sync_module_states || !settings_.group.communicates) return;
  const c10::AutoGradMode no_grad(false);
  const auto set = static_cast<std::size_t>(settings_.group.size * settings_.group.replicas);
  for (std::size_t r = 0; r < peers.size(); ++r) {
    Unit& first = *peers[r / set * set];
    for (std::size_t i = 0; i < parameters_.size(); ++i)
      peers[r]->parameters()[i].master.detach().copy_(first.parameters()[i].master.detach());
    const auto from = sdk::named_buffers(first.module()), to = sdk::named_buffers(peers[r]->module());
    for (std::size_t i = 0; i < to.size(); ++i) at::Tensor(to[i].second).copy_(from[i].second);
  }
}

void FlatUnit::before_backward() {
  if (!seen_.empty()) write_back();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    UnitParameter& p = parameters_[i];
    if (!p.compute.defined()) continue;
    if (unreduced_is_exposed_) {
      // Autograd goes on adding to what no_sync left.
      p.compute.mutable_grad() = p.master.grad();
      p.master.mutable_grad() = std::exchange(hidden_[i], at::Tensor());
    } else if (!settings_.shards()) {
      // Nothing is sharded, so autograd adds to the reduced gradient and all of it is reduced again.
      added_to_[i] = {p.master.grad(), p.master.grad().defined() ? p.master.grad()._version() : 0};
      p.compute.mutable_grad() = p.master.grad();
      p.master.mutable_grad().reset();
    }
  }
  unreduced_is_exposed_ = false;
}

}  // namespace fsdp_cts::reference
