// Optimizers work on pieces of parameters; their state is saved and loaded by whole parameters.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <map>
#include <optional>
#include <utility>

#include "base/optimizer_values.hpp"
#include "base/python_text.hpp"
#include "base/state_dict_validation.hpp"
#include "base/storage.hpp"
#include "flat/original_slots.hpp"
#include "flat/whole_parameters.hpp"
#include "fsdp/errors.hpp"
#include "fsdp/flat/state_dict.hpp"

namespace fsdp::flat {
namespace {

const at::Tensor& updated_tensor(const OriginalSlot& slot) {
  if (!slot.state) return slot.unmanaged;
  const auto& shard = slot.state->flat()->shard();
  return shard.settings().use_orig_params ? slot.info().parameter : shard.flat_parameter();
}

/// Shaped like what the optimizer updates between passes: a forward may have left it whole.
std::vector<int64_t> updated_shape(const OriginalSlot& slot) {
  const auto& shard = slot.state->flat()->shard();
  if (!shard.settings().use_orig_params) return {shard.layout().shard_numel};
  return shard.sharded() ? std::vector<int64_t>{slot.info().part.length} : slot.info().shape;
}

/// The whole values of all parameters that one unit holds.
void gather_unit(FlatState& state, const std::vector<OriginalSlot>& slots,
                 const OptimizerValuesByTensor& given, FullOptimizerState& result) {
  const auto& flat_shard = state.flat()->shard();
  OptimizerValueKinds kinds;
  const auto values_of = [&](size_t i) -> const OptimizerValues* {
    if (flat_shard.settings().use_orig_params && !slots[i].info().part.in_shard()) return nullptr;
    const auto entry = given.find(updated_tensor(slots[i]).unsafeGetTensorImpl());
    return entry == given.end() ? nullptr : entry->second;
  };
  for (size_t i = 0; i < slots.size(); ++i) {
    if (slots[i].state.get() != &state) continue;
    if (const auto* values = values_of(i)) {
      for (const auto& [name, value] : *values)
        kinds[{i, name}] = kind_of(name, value, updated_shape(slots[i]));
    }
  }
  agree(kinds, *state.ranks().shard, state.call_site(Phase::state_dict));
  std::map<std::pair<std::string, at::ScalarType>, std::vector<size_t>> shaped;  // one gather each
  for (const auto& [key, kind] : kinds) {
    if (kind.scalar) {
      result[key.first].second[key.second] = scalar_tensor(kind, flat_shard.tensor().device());
    } else {
      shaped[{key.second, kind.dtype}].push_back(key.first);
    }
  }
  for (const auto& [what, indices] : shaped) {
    const auto shard =
        at::zeros({flat_shard.layout().shard_numel}, flat_shard.tensor().options().dtype(what.second));
    for (const auto i : indices) {
      const auto& part = slots[i].info().part;
      const auto* values = values_of(i);
      if (!part.in_shard() || !values || !values->contains(what.first)) continue;
      const auto value = values->at(what.first).detach().reshape(-1);
      const bool flattened = !flat_shard.settings().use_orig_params;
      alias(shard, part.offset, {part.length})
          .copy_(flattened ? value.narrow(0, part.offset, part.length) : value);
    }
    const auto windows = gather_windows(state, shard);
    for (const auto i : indices) result[i].second[what.first] = windows[slots[i].member].clone();
  }
}

void drop_empty(FullOptimizerState& state) {
  std::erase_if(state, [](const auto& entry) { return entry.second.empty(); });
}

/// Everything that is wrong with names and shapes.
void validate_slots(const torch::nn::Module& root, const std::vector<OriginalSlot>& slots,
                    const FullOptimizerState& state) {
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const auto& slot : slots)
    shapes[slot.name] = slot.state ? slot.info().shape : slot.unmanaged.sizes().vec();
  validate_optimizer_state(root, state, [&](const std::string& name) {
    const auto shape = shapes.find(name);
    return shape == shapes.end() ? std::nullopt : std::optional(shape->second);
  });
}

/// As the optimizer keeps it, in no parameter's shape.
bool is_scalar(const OriginalSlot& slot, const at::Tensor& value) {
  return value.dim() != static_cast<int64_t>(slot.info().shape.size());
}

/// An optimizer has one step counter for a flat parameter, so that all its members must have the same one.
/// Throws InvalidArgument.
void validate_scalars(const std::vector<OriginalSlot>& slots,
                      const std::map<std::string, const OptimizerValues*>& given) {
  struct Scalar {
    std::vector<std::string> holders;
    bool agree = true;
    at::Tensor first;
  };
  struct Flat {
    std::vector<std::string> members;
    std::map<std::string, Scalar> scalars;
  };
  std::map<const c10::TensorImpl*, size_t> places;
  std::vector<Flat> flats;
  for (const auto& slot : slots) {
    if (!slot.state || slot.state->flat()->shard().settings().use_orig_params) continue;
    const auto place = places.try_emplace(updated_tensor(slot).unsafeGetTensorImpl(), flats.size());
    if (place.second) flats.emplace_back();
    auto& flat = flats[place.first->second];
    flat.members.push_back(slot.name);
    const auto found = given.find(slot.name);
    if (found == given.end()) continue;
    for (const auto& [name, value] : *found->second) {
      if (!is_scalar(slot, value)) continue;
      auto& scalar = flat.scalars[name];
      if (!scalar.first.defined()) scalar.first = value;
      scalar.agree = scalar.agree && value.scalar_type() == scalar.first.scalar_type() &&
                     value.item<double>() == scalar.first.item<double>();
      scalar.holders.push_back(slot.name);
    }
  }
  for (const auto& flat : flats) {
    for (const auto& [name, scalar] : flat.scalars) {
      if (scalar.agree && scalar.holders.size() == flat.members.size()) continue;
      throw InvalidArgument(
          "All unflattened parameters comprising a single flat parameter must have scalar state with the "
          "same "
          "value and dtype; '" +
          name + "' of " + python_list(flat.members) +
          (scalar.agree ? " is given for " + python_list(scalar.holders) + " alone." : " differs."));
    }
  }
}

/// A forward may have left parameters whole; optimizers hold what they are given against the shapes they see.
void show_what_optimizers_update(FlatState& state) {
  if (!state.flat()) return;
  require_idle(state);
  if (state.flat()->shown() != Shown::sharded) state.show_sharded();
}

}  // namespace

FullOptimizerState full_optimizer_state(const torch::nn::Module& root, const OptimizerState& state) {
  const at::NoGradGuard no_grad;
  const auto units = FlatState::all_under(root);
  for (const auto& unit : units) unit->leave_failed_backward();
  const auto slots = original_slots(root, Ties::once);
  const auto given = by_tensor(state);
  FullOptimizerState result;
  for (const auto& slot : slots) result.emplace_back(slot.name, OptimizerValues{});
  for (const auto& unit : units) {
    if (unit->flat()) gather_unit(*unit, slots, given, result);
  }
  for (size_t i = 0; i < slots.size(); ++i) {
    if (slots[i].state) continue;
    const auto entry = given.find(slots[i].unmanaged.unsafeGetTensorImpl());
    if (entry == given.end()) continue;
    for (const auto& [name, value] : *entry->second) result[i].second[name] = value.detach().clone();
  }
  drop_empty(result);
  return result;
}

OptimizerState shard_full_optimizer_state(const torch::nn::Module& root, const FullOptimizerState& state) {
  const at::NoGradGuard no_grad;
  const auto slots = original_slots(root, Ties::once);
  validate_slots(root, slots, state);
  std::map<std::string, const OptimizerValues*> by_name;
  for (const auto& [name, values] : state) by_name[name] = &values;
  validate_scalars(slots, by_name);
  for (const auto& unit : FlatState::all_under(root)) show_what_optimizers_update(*unit);
  OptimizerState result;
  std::map<const c10::TensorImpl*, size_t> places;
  for (const auto& slot : slots) {
    const auto given = by_name.find(slot.name);
    if (given == by_name.end()) continue;
    const auto& updated = updated_tensor(slot);
    const auto [place, first] = places.try_emplace(updated.unsafeGetTensorImpl(), result.size());
    if (first) result.emplace_back(updated, OptimizerValues{});
    auto& target = result[place->second].second;
    for (const auto& [name, value] : *given->second) {
      if (!slot.state || is_scalar(slot, value)) {
        target[name] = value.clone();
        continue;
      }
      const auto& shard = slot.state->flat()->shard();
      const auto& part = slot.info().part;
      const auto piece = value.reshape(-1).narrow(0, part.start, part.length);
      if (shard.settings().use_orig_params) {
        target[name] = shard.sharded() ? piece.clone() : value.clone();
        continue;
      }
      auto& whole = target[name];
      if (!whole.defined()) whole = at::zeros({shard.tensor().numel()}, value.options());
      alias(whole, part.offset, {part.length}).copy_(piece);
    }
  }
  return result;
}

ShardedOptimizerState sharded_optimizer_state(const torch::nn::Module& root, const OptimizerState& state) {
  const at::NoGradGuard no_grad;
  std::map<std::string, OriginalSlot> by_name;
  for (auto& slot : original_slots(root, Ties::once)) by_name.emplace(slot.name, slot);
  ShardedOptimizerState result;
  for (const auto& [name, values] : full_optimizer_state(root, state)) {
    const auto& slot = by_name.at(name);
    result.emplace_back(name, std::map<std::string, ShardedTensor>{});
    for (const auto& [key, value] : values) {
      const bool shaped = slot.state && value.sizes() == at::IntArrayRef(slot.info().shape);
      result.back().second[key] = shaped ? as_rows(*slot.state, value) : unsharded(value);
    }
  }
  return result;
}

OptimizerState flatten_sharded_optimizer_state(const torch::nn::Module& root,
                                               const ShardedOptimizerState& state) {
  const at::NoGradGuard no_grad;
  FullOptimizerState full;
  StateDictValidation validation(root);
  std::map<std::string, OriginalSlot> by_name;
  for (auto& slot : original_slots(root, Ties::once)) by_name.emplace(slot.name, slot);
  for (const auto& [name, values] : state) {
    const auto slot = by_name.find(name);
    if (slot == by_name.end() || !slot->second.state) continue;
    for (const auto& [key, value] : values) {
      if (value.group && value.layout.global_shape == slot->second.info().shape)
        validation.same_layout(name + "/" + key, value.layout,
                               rows_of(*slot->second.state, slot->second.info().shape));
    }
  }
  validation.finish();
  for (const auto& [name, values] : state) {
    full.emplace_back(name, OptimizerValues{});
    for (const auto& [key, value] : values) full.back().second[key] = value.full_tensor();
  }
  return shard_full_optimizer_state(root, full);
}

}  // namespace fsdp::flat
