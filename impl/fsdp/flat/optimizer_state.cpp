// Optimizers work on pieces of parameters; their state is saved and loaded by whole parameters.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>
#include <optional>
#include <sstream>
#include <utility>

#include "base/state_dict_validation.hpp"
#include "base/storage.hpp"
#include "flat/original_slots.hpp"
#include "flat/whole_parameters.hpp"
#include "fsdp/errors.hpp"
#include "fsdp/flat/state_dict.hpp"

namespace fsdp::flat {
namespace {

using Values = std::map<std::string, at::Tensor>;
using ByUpdated = std::map<const c10::TensorImpl*, const Values*>;

const at::Tensor& updated_tensor(const OriginalSlot& slot) {
  if (!slot.state) return slot.unmanaged;
  const auto& flat = *slot.state->flat();
  return flat.settings().use_orig_params ? slot.info().parameter : flat.flat_parameter();
}

/// What is known of one value: shaped like the parameter, or a scalar that is the same everywhere.
struct Kind {
  at::ScalarType dtype;
  std::optional<double> scalar;
  int64_t scalar_dims = 0;
};
using Kinds =
    std::map<std::pair<size_t, std::string>, Kind>;  // by index of the parameter and name of the value

// Names may hold anything, and scalars any bits: lengths go first, and numbers of floating point as their
// bits.
std::string written(const Kinds& kinds) {
  std::ostringstream text;
  for (const auto& [key, kind] : kinds) {
    text << key.first << ' ' << static_cast<int>(kind.dtype) << ' ' << kind.scalar.has_value() << ' '
         << std::bit_cast<uint64_t>(kind.scalar.value_or(0)) << ' ' << kind.scalar_dims << ' '
         << key.second.size() << ':' << key.second;
  }
  return text.str();
}

void read_into(Kinds& kinds, const std::string& text) {
  std::istringstream from(text);
  size_t index, name_length;
  int dtype;
  bool is_scalar;
  uint64_t bits;
  int64_t dims;
  while (from >> index >> dtype >> is_scalar >> bits >> dims >> name_length) {
    from.ignore();  // the colon
    std::string name(name_length, '\0');
    from.read(name.data(), static_cast<std::streamsize>(name_length));
    const auto scalar = is_scalar ? std::optional(std::bit_cast<double>(bits)) : std::nullopt;
    kinds.try_emplace({index, std::move(name)}, Kind{static_cast<at::ScalarType>(dtype), scalar, dims});
  }
}

/// A rank whose piece is empty has no state for it: ranks tell each other what there is.
void agree(Kinds& kinds, Communicator& group, const CallSite& site) {
  if (group.size() == 1) return;
  const auto own = written(kinds);
  const auto options = at::TensorOptions(group.device()).dtype(at::kLong);
  auto length = at::empty({1}, options);
  length.fill_(static_cast<int64_t>(own.size()));
  auto lengths = at::empty({group.size()}, options);
  group.all_gather(lengths, length, site)->wait();
  const auto longest = lengths.max().item<int64_t>();
  if (longest == 0) return;
  auto bytes = at::zeros({longest}, at::TensorOptions(at::kByte));
  std::copy(own.begin(), own.end(), reinterpret_cast<char*>(bytes.mutable_data_ptr()));
  auto all = at::empty({group.size() * longest}, at::TensorOptions(group.device()).dtype(at::kByte));
  group.all_gather(all, bytes.to(group.device()), site)->wait();
  all = all.cpu();
  lengths = lengths.cpu();
  const auto* text = static_cast<const char*>(all.const_data_ptr());
  for (int64_t rank = 0; rank < group.size(); ++rank)
    read_into(kinds, {text + rank * longest, static_cast<size_t>(lengths[rank].item<int64_t>())});
}

Kind kind_of(const std::string& name, const at::Tensor& value, const at::Tensor& updated) {
  if (value.sizes() == updated.sizes() && value.numel() != 1) return {value.scalar_type(), std::nullopt};
  if (value.sizes() == updated.sizes() && value.dim() > 0) return {value.scalar_type(), std::nullopt};
  if (value.numel() != 1) {
    throw InvalidArgument("The optimizer's value '" + name + "' has shape " + python_size(value.sizes()) +
                          "; it must be a scalar, or shaped like what the optimizer updates: " +
                          python_size(updated.sizes()) + ".");
  }
  return {value.scalar_type(), value.item<double>(), value.dim()};
}

at::Tensor scalar_tensor(const Kind& kind, at::Device device) {
  const std::vector<int64_t> shape(static_cast<size_t>(kind.scalar_dims), 1);
  auto value = at::empty(shape, at::TensorOptions(device).dtype(kind.dtype));
  value.fill_(*kind.scalar);
  return value;
}

/// The whole values of all parameters that one unit holds.
void gather_unit(FlatState& state, const std::vector<OriginalSlot>& slots, const ByUpdated& given,
                 FullOptimizerState& result) {
  auto& flat = *state.flat();
  Kinds kinds;
  const auto values_of = [&](size_t i) {
    const auto entry = given.find(updated_tensor(slots[i]).unsafeGetTensorImpl());
    return entry == given.end() ? nullptr : entry->second;
  };
  for (size_t i = 0; i < slots.size(); ++i) {
    if (slots[i].state.get() != &state) continue;
    if (const auto* values = values_of(i)) {
      for (const auto& [name, value] : *values)
        kinds[{i, name}] = kind_of(name, value, updated_tensor(slots[i]));
    }
  }
  agree(kinds, *state.ranks().shard, state.call_site(Phase::state_dict));
  std::map<std::pair<std::string, at::ScalarType>, std::vector<size_t>> shaped;  // one gather each
  for (const auto& [key, kind] : kinds) {
    if (kind.scalar) {
      result[key.first].second[key.second] = scalar_tensor(kind, flat.local_shard().device());
    } else {
      shaped[{key.second, kind.dtype}].push_back(key.first);
    }
  }
  for (const auto& [what, indices] : shaped) {
    const auto shard =
        at::zeros({flat.layout().shard_numel}, flat.local_shard().options().dtype(what.second));
    for (const auto i : indices) {
      const auto& part = slots[i].info().part;
      const auto* values = values_of(i);
      if (!part.in_shard() || !values || !values->contains(what.first)) continue;
      const auto value = values->at(what.first).detach().reshape(-1);
      const bool flattened = !flat.settings().use_orig_params;
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
void validate(const torch::nn::Module& root, const std::vector<OriginalSlot>& slots,
              const FullOptimizerState& state) {
  StateDictValidation validation(root);
  std::map<std::string, const OriginalSlot*> by_name;
  for (const auto& slot : slots) by_name[slot.name] = &slot;
  for (const auto& [name, values] : state) {
    const auto slot = by_name.find(name);
    if (slot == by_name.end()) {
      validation.fault("Unexpected parameter in optimizer state: '" + name + "'.");
      continue;
    }
    const auto shape =
        slot->second->state ? at::IntArrayRef(slot->second->info().shape) : slot->second->unmanaged.sizes();
    for (const auto& [key, value] : values) {
      if (value.numel() != 1 || value.dim() == static_cast<int64_t>(shape.size()))
        validation.same_shape(name + "/" + key, value.sizes(), shape);
    }
  }
  validation.finish();
}

}  // namespace

FullOptimizerState full_optimizer_state(const torch::nn::Module& root, const OptimizerState& state) {
  const at::NoGradGuard no_grad;
  const auto slots = original_slots(root, Ties::once);
  ByUpdated given;
  for (const auto& [updated, values] : state) given[updated.unsafeGetTensorImpl()] = &values;
  FullOptimizerState result;
  for (const auto& slot : slots) result.emplace_back(slot.name, Values{});
  for (const auto& unit : FlatState::all_under(root)) {
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
  validate(root, slots, state);
  std::map<std::string, const Values*> by_name;
  for (const auto& [name, values] : state) by_name[name] = &values;
  OptimizerState result;
  std::map<const c10::TensorImpl*, size_t> places;
  for (const auto& slot : slots) {
    const auto given = by_name.find(slot.name);
    if (given == by_name.end()) continue;
    const auto& updated = updated_tensor(slot);
    const auto [place, first] = places.try_emplace(updated.unsafeGetTensorImpl(), result.size());
    if (first) result.emplace_back(updated, Values{});
    auto& target = result[place->second].second;
    for (const auto& [name, value] : *given->second) {
      if (!slot.state || value.dim() != static_cast<int64_t>(slot.info().shape.size())) {
        target[name] = value.clone();
        continue;
      }
      const auto& flat = *slot.state->flat();
      const auto& part = slot.info().part;
      const auto piece = value.reshape(-1).narrow(0, part.start, part.length);
      if (flat.settings().use_orig_params) {
        target[name] = flat.sharded_strategy() ? piece.clone() : value.clone();
        continue;
      }
      auto& whole = target[name];
      if (!whole.defined()) whole = at::zeros({flat.local_shard().numel()}, value.options());
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
      result.back().second[key] =
          shaped ? as_rows(*slot.state, value)
                 : ShardedTensor{
                       value, {value.sizes().vec(), 0, 0, value.dim() ? value.size(0) : 0, 0}, nullptr};
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
    full.emplace_back(name, Values{});
    for (const auto& [key, value] : values) full.back().second[key] = value.full_tensor();
  }
  return shard_full_optimizer_state(root, full);
}

}  // namespace fsdp::flat
