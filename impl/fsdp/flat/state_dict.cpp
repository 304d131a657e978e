#include "fsdp/flat/state_dict.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <map>
#include <unordered_map>
#include <utility>

#include "base/state_dict_validation.hpp"
#include "base/storage.hpp"
#include "flat/original_slots.hpp"
#include "flat/whole_parameters.hpp"
#include "fsdp/errors.hpp"
#include "fsdp/wrap/module_tree.hpp"

namespace fsdp::flat {
namespace {

struct Buffer {
  std::string name;
  at::Tensor tensor;
  at::ScalarType dtype;  // of the state dict
};

std::vector<Buffer> buffers_of(const torch::nn::Module& root) {
  std::unordered_map<const c10::TensorImpl*, at::ScalarType> originals;
  for (const auto& state : FlatState::all_under(root)) {
    for (const auto& weak : state->context().all_states) {
      const auto other = weak.lock();
      if (!other) continue;
      for (const auto& [buffer, dtype] : other->cast_buffers())
        originals[buffer.unsafeGetTensorImpl()] = dtype;
    }
  }
  std::vector<Buffer> buffers;
  for (const auto& entry : root.named_buffers()) {
    const auto& tensor = entry.value();
    if (!tensor.defined()) continue;
    const auto original = originals.find(tensor.unsafeGetTensorImpl());
    buffers.push_back(
        {entry.key(), tensor, original == originals.end() ? tensor.scalar_type() : original->second});
  }
  return buffers;
}

std::vector<std::string> names_of(const std::vector<OriginalSlot>& slots,
                                  const std::vector<Buffer>& buffers) {
  std::vector<std::string> names;
  for (const auto& slot : slots) names.push_back(slot.name);
  for (const auto& buffer : buffers) names.push_back(buffer.name);
  return names;
}

/// A faulty or foreign entry must be found before the first one is loaded.
template <class Value, class Compare>
std::map<std::string, const Value*> validated(const torch::nn::Module& root,
                                              const std::vector<OriginalSlot>& slots,
                                              const std::vector<Buffer>& buffers,
                                              const std::vector<std::pair<std::string, Value>>& state,
                                              Compare compare) {
  StateDictValidation validation(root);
  const auto given = validation.by_name(names_of(slots, buffers), state);
  const auto check = [&](const std::string& name, at::IntArrayRef shape, const OriginalSlot* slot) {
    const auto value = given.find(name);
    if (value != given.end()) compare(validation, name, *value->second, shape, slot);
  };
  for (const auto& slot : slots) {
    if (slot.state) {
      check(slot.name, slot.info().shape, &slot);
    } else {
      check(slot.name, slot.unmanaged.sizes(), nullptr);
    }
  }
  for (const auto& buffer : buffers) check(buffer.name, buffer.tensor.sizes(), nullptr);
  validation.finish();
  return given;
}

void load_outside_units(const std::vector<OriginalSlot>& slots, const std::vector<Buffer>& buffers,
                        const std::function<at::Tensor(const std::string&)>& value) {
  for (const auto& slot : slots) {
    if (!slot.state) slot.unmanaged.detach().copy_(value(slot.name));
  }
  for (const auto& buffer : buffers) buffer.tensor.detach().copy_(value(buffer.name));
}

}  // namespace

StateDict full_state_dict(const torch::nn::Module& root, const FullStateDictOptions& options) {
  const at::NoGradGuard no_grad;
  const auto slots = original_slots(root, Ties::every_place);
  const auto states = FlatState::all_under(root);
  const bool keeps = !options.rank0_only || states.empty() || states.front()->unit().rank == 0;
  const auto kept = [&](const at::Tensor& tensor) {
    auto copy = tensor.detach().clone();
    return options.offload_to_cpu ? copy.to(at::kCPU) : copy;
  };
  StateDict result;
  if (keeps) {
    for (const auto& slot : slots)
      result.emplace_back(slot.name, slot.state ? at::Tensor() : kept(slot.unmanaged));
  }
  for (const auto& state : states) {
    if (!state->flat()) continue;
    const WholeParameters whole(*state);
    for (size_t i = 0; keeps && i < slots.size(); ++i) {
      if (slots[i].state == state) result[i].second = kept(whole[slots[i].member]);
    }
  }
  if (!keeps) return result;
  for (const auto& buffer : buffers_of(root))
    result.emplace_back(buffer.name, kept(buffer.tensor.to(buffer.dtype)));
  return result;
}

void load_full_state_dict(torch::nn::Module& root, const StateDict& state) {
  const at::NoGradGuard no_grad;
  const auto slots = original_slots(root, Ties::every_place);
  const auto buffers = buffers_of(root);
  const auto given = validated(
      root, slots, buffers, state,
      [](StateDictValidation& validation, const std::string& name, const at::Tensor& value,
         at::IntArrayRef shape, const OriginalSlot*) { validation.same_shape(name, value.sizes(), shape); });
  for (const auto& unit : FlatState::all_under(root)) prepare_for_loading(*unit);
  for (const auto& slot : slots) {
    if (slot.state) load_whole(*slot.state, slot.member, *given.at(slot.name));
  }
  load_outside_units(slots, buffers, [&](const std::string& name) { return *given.at(name); });
}

ShardedStateDict sharded_state_dict(const torch::nn::Module& root) {
  const at::NoGradGuard no_grad;
  const auto slots = original_slots(root, Ties::every_place);
  ShardedStateDict result;
  for (const auto& slot : slots)
    result.emplace_back(slot.name, slot.state ? ShardedTensor{} : unsharded(slot.unmanaged.detach().clone()));
  for (const auto& state : FlatState::all_under(root)) {
    if (!state->flat()) continue;
    if (!state->flat()->shard().sharded())
      TORCH_WARN("When using ``NO_SHARD`` for ``ShardingStrategy``, full_state_dict will be returned.");
    const WholeParameters whole(*state);
    for (size_t i = 0; i < slots.size(); ++i) {
      if (slots[i].state == state) result[i].second = as_rows(*state, whole[slots[i].member]);
    }
  }
  for (const auto& buffer : buffers_of(root))
    result.emplace_back(buffer.name, unsharded(buffer.tensor.detach().to(buffer.dtype).clone()));
  return result;
}

ShardedStateDict sharded_layouts(const torch::nn::Module& root) {
  const auto meta = [](at::IntArrayRef shape, at::ScalarType dtype) {
    return at::empty(shape, at::TensorOptions(at::kMeta).dtype(dtype));
  };
  ShardedStateDict result;
  for (const auto& slot : original_slots(root, Ties::every_place)) {
    if (!slot.state) {
      result.emplace_back(slot.name, unsharded(meta(slot.unmanaged.sizes(), slot.unmanaged.scalar_type())));
      continue;
    }
    const auto& shard = slot.state->flat()->shard();
    const auto layout = rows_of(*slot.state, slot.info().shape);
    result.emplace_back(slot.name, ShardedTensor{meta(layout.local_shape(), shard.original_dtype()), layout,
                                                 shard.sharded() ? slot.state->ranks().shard : nullptr});
  }
  for (const auto& buffer : buffers_of(root))
    result.emplace_back(buffer.name, unsharded(meta(buffer.tensor.sizes(), buffer.dtype)));
  return result;
}

void load_sharded_state_dict(torch::nn::Module& root, const ShardedStateDict& state) {
  const at::NoGradGuard no_grad;
  const auto slots = original_slots(root, Ties::every_place);
  const auto buffers = buffers_of(root);
  const auto given =
      validated(root, slots, buffers, state,
                [](StateDictValidation& validation, const std::string& name, const ShardedTensor& value,
                   at::IntArrayRef shape, const OriginalSlot* slot) {
                  if (!slot) return validation.same_shape(name, value.layout.global_shape, shape);
                  validation.same_shard(name, value, rows_of(*slot->state, shape));
                });
  for (const auto& unit : FlatState::all_under(root)) prepare_for_loading(*unit);
  for (const auto& slot : slots) {
    if (!slot.state) continue;
    const auto& value = *given.at(slot.name);
    const bool sharded = slot.state->flat()->shard().sharded();
    load_whole(*slot.state, slot.member,
               ShardedTensor{value.local, value.layout, sharded ? slot.state->ranks().shard : nullptr}
                   .full_tensor());
  }
  load_outside_units(slots, buffers, [&](const std::string& name) { return given.at(name)->local; });
}

LocalStateDict local_state_dict(const torch::nn::Module& root) {
  const at::NoGradGuard no_grad;
  LocalStateDict result;
  for (const auto& [name, module] : pre_order(const_cast<torch::nn::Module&>(root).shared_from_this())) {
    const auto state = FlatState::of(*module);
    if (!state || !state->flat()) continue;
    take_over_changes(*state);
    const auto& shard = state->flat()->shard();
    const auto numel = shard.layout().shard_numel - shard.layout().padding(shard.index());
    result.flat_parameters.emplace_back(
        qualified(name, kFlatParameterName),
        LocalFlatParameter{alias(shard.tensor(), 0, {numel}).clone(), shard.layout().unsharded_numel,
                           shard.index(), shard.sharded() ? state->unit().ranks : 1});
  }
  for (const auto& slot : original_slots(root, Ties::every_place)) {
    if (!slot.state) result.others.emplace_back(slot.name, slot.unmanaged.detach().clone());
  }
  for (const auto& buffer : buffers_of(root))
    result.others.emplace_back(buffer.name, buffer.tensor.detach().to(buffer.dtype).clone());
  return result;
}

void load_local_state_dict(torch::nn::Module& root, const LocalStateDict& state) {
  const at::NoGradGuard no_grad;
  StateDictValidation validation(root);
  std::vector<std::pair<std::string, std::shared_ptr<FlatState>>> units;
  std::vector<std::string> flat_names, other_names;
  for (const auto& [name, module] : pre_order(root.shared_from_this())) {
    auto unit = FlatState::of(*module);
    if (!unit || !unit->flat()) continue;
    flat_names.push_back(qualified(name, kFlatParameterName));
    units.emplace_back(flat_names.back(), std::move(unit));
  }
  std::vector<OriginalSlot> slots;
  for (auto& slot : original_slots(root, Ties::every_place)) {
    if (!slot.state) slots.push_back(std::move(slot));
  }
  const auto buffers = buffers_of(root);
  const auto others = validation.by_name(names_of(slots, buffers), state.others);
  const auto given = validation.by_name(flat_names, state.flat_parameters);
  for (const auto& [name, unit] : units) {
    const auto value = given.find(name);
    if (value == given.end()) continue;
    const auto& shard = unit->flat()->shard();
    const auto ranks = shard.sharded() ? unit->unit().ranks : 1;
    const auto& [local, unsharded_numel, rank, saved_ranks] = *value->second;
    validation.same_shape(name, {unsharded_numel}, {shard.layout().unsharded_numel});
    if (rank != shard.index() || saved_ranks != ranks) {
      validation.fault("layout mismatch for " + name + ": the state is shard " + std::to_string(rank) +
                       " of " + std::to_string(saved_ranks) + ", this rank holds shard " +
                       std::to_string(shard.index()) + " of " + std::to_string(ranks) + ".");
      continue;
    }
    const auto numel = shard.layout().shard_numel - shard.layout().padding(shard.index());
    validation.same_shape(name + " (shard)", local.sizes(), {numel});
  }
  for (const auto& slot : slots) {
    if (const auto value = others.find(slot.name); value != others.end())
      validation.same_shape(slot.name, value->second->sizes(), slot.unmanaged.sizes());
  }
  for (const auto& buffer : buffers) {
    if (const auto value = others.find(buffer.name); value != others.end())
      validation.same_shape(buffer.name, value->second->sizes(), buffer.tensor.sizes());
  }
  validation.finish();
  for (const auto& [name, unit] : units) {
    prepare_for_loading(*unit);
    const auto& local = given.at(name)->local;
    alias(unit->flat()->shard().tensor(), 0, {local.numel()}).copy_(local);
  }
  load_outside_units(slots, buffers, [&](const std::string& name) { return *others.at(name); });
}

}  // namespace fsdp::flat
