#include "fsdp/state_dict.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <map>
#include <set>
#include <utility>

#include "base/python_text.hpp"
#include "base/state_dict_validation.hpp"
#include "base/text_exchange.hpp"
#include "fsdp/errors.hpp"
#include "per_parameter/state.hpp"

namespace fsdp {
namespace {

/// Parameters and buffers in order, tied ones under each of their names. Units go back to shards first.
ShardedStateDict sharded_entries(const torch::nn::Module& module) {
  ShardedStateDict entries;
  const auto add = [&](const std::string& name, const at::Tensor& tensor) {
    const auto [state, index] = FSDPState::of_parameter(tensor);
    if (!state) {
      entries.emplace_back(name, unsharded(tensor.detach()));
      return;
    }
    state->leave_failed_backward();
    auto& group = *state->group();
    group.to_sharded();
    group.wait_for_copies_from_host();
    entries.emplace_back(
        name, ShardedTensor{tensor.detach(), group.params()[index]->layout(), group.ranks().shard});
  };
  for (const auto& entry : module.named_parameters()) add(entry.key(), entry.value());
  for (const auto& entry : module.named_buffers()) add(entry.key(), entry.value());
  return entries;
}

/// Every entry of the module with what was given for it, after `compare` has seen each pair. Throws
/// RuntimeError with all faults.
template <class Value, class Compare>
std::vector<std::pair<ShardedTensor, const Value*>> matched(
    const torch::nn::Module& module, const std::vector<std::pair<std::string, Value>>& state,
    Compare compare) {
  const auto own = sharded_entries(module);
  std::vector<std::string> names;
  for (const auto& [name, entry] : own) names.push_back(name);
  StateDictValidation validation(module);
  const auto given = validation.by_name(names, state);
  std::vector<std::pair<ShardedTensor, const Value*>> pairs;
  for (const auto& [name, entry] : own) {
    const auto value = given.find(name);
    if (value == given.end()) continue;
    compare(validation, name, entry, *value->second);
    pairs.emplace_back(entry, value->second);
  }
  validation.finish();
  return pairs;
}

/// A gather that is put beside compute must come after what was written.
void note_shards_written(const torch::nn::Module& module) {
  for (const auto& parameter : module.parameters()) {
    if (const auto state = FSDPState::of_parameter(parameter).first) state->group()->shards_written();
  }
}

/// To write values without autograd's notice. Between forward and backward a parameter that was saved for
/// backward is gathered anew then, from what is loaded here: it has not been changed behind autograd's back.
at::Tensor memory_of(const at::Tensor& parameter) {
  return parameter.variable_data();
}

/// Of the module's first unit; null where nothing is sharded.
const GroupRanks* ranks_of(const torch::nn::Module& module) {
  for (const auto& parameter : module.parameters()) {
    if (const auto state = FSDPState::of_parameter(parameter).first) return &state->group()->ranks();
  }
  return nullptr;
}

bool is_first(const GroupRanks& ranks) {
  return ranks.shard->rank() == 0 && (!ranks.replicate || ranks.replicate->rank() == 0);
}

const CallSite kStateDictSite{"", false, Phase::state_dict};

/// What the first rank of the mesh says: from replica to replica, then within each of them.
std::string text_of_first(const GroupRanks& ranks, std::string own) {
  if (ranks.replicate) own = all_gather_text(*ranks.replicate, own, kStateDictSite).front();
  return all_gather_text(*ranks.shard, own, kStateDictSite).front();
}

void broadcast_from_first(const GroupRanks& ranks, const at::Tensor& flat) {
  if (ranks.replicate && ranks.shard->rank() == 0)
    ranks.replicate->broadcast(flat, 0, kStateDictSite)->wait();
  ranks.shard->broadcast(flat, 0, kStateDictSite)->wait();
}

using WholeValues = std::vector<std::pair<ShardedTensor, const at::Tensor*>>;

WholeValues matched_whole(const torch::nn::Module& module, const StateDict& state) {
  return matched(
      module, state,
      [](StateDictValidation& validation, const std::string& name, const ShardedTensor& entry,
         const at::Tensor& whole) { validation.same_shape(name, whole.sizes(), entry.layout.global_shape); });
}

void load_own_part(const ShardedTensor& entry, const at::Tensor& whole) {
  const auto& own = entry.layout;
  memory_of(entry.local).copy_(entry.group ? whole.narrow(own.dim, own.start, own.length) : whole);
}

}  // namespace

ShardedStateDict sharded_state_dict(const torch::nn::Module& module) {
  return sharded_entries(module);
}

StateDict full_state_dict(const torch::nn::Module& module, const FullStateDictOptions& options) {
  const auto* ranks = ranks_of(module);
  const bool keeps = !options.rank0_only || !ranks || is_first(*ranks);
  StateDict result;
  for (const auto& [name, entry] : sharded_entries(module)) {
    const auto whole = entry.full_tensor();
    if (keeps) result.emplace_back(name, options.offload_to_cpu ? whole.to(at::kCPU) : whole);
  }
  return result;
}

void load_sharded_state_dict(torch::nn::Module& module, const ShardedStateDict& state) {
  const auto compare = [](StateDictValidation& validation, const std::string& name,
                          const ShardedTensor& entry,
                          const ShardedTensor& from) { validation.same_shard(name, from, entry.layout); };
  const auto pairs = matched(module, state, compare);
  const at::NoGradGuard no_grad;
  for (const auto& [entry, from] : pairs) memory_of(entry.local).copy_(from->local);
  note_shards_written(module);
}

void load_full_state_dict(torch::nn::Module& module, const StateDict& state) {
  const auto pairs = matched_whole(module, state);
  const at::NoGradGuard no_grad;
  for (const auto& [entry, whole] : pairs) load_own_part(entry, *whole);
  note_shards_written(module);
}

void broadcast_full_state_dict(torch::nn::Module& module, const StateDict& state) {
  const auto* ranks = ranks_of(module);
  if (!ranks) {
    throw InvalidState(
        "broadcast_full_state_dict expects a module with parameters that fully_shard manages: "
        "it has no ranks otherwise.");
  }
  const at::NoGradGuard no_grad;
  WholeValues values;
  std::string fault;
  if (is_first(*ranks)) {
    try {
      values = matched_whole(module, state);
    } catch (const RuntimeError& error) {
      fault = error.what();
    }
  } else {
    for (const auto& [name, entry] : sharded_entries(module)) values.emplace_back(entry, nullptr);
  }
  if (const auto found = text_of_first(*ranks, fault); !found.empty()) throw RuntimeError(found);

  for (const auto& [entry, whole] : values) {
    const auto options = at::TensorOptions(ranks->shard->device()).dtype(entry.local.scalar_type());
    const auto received = at::empty(entry.layout.global_shape, options);
    if (received.numel() == 0) continue;
    if (whole) received.copy_(*whole);
    broadcast_from_first(*ranks, received.view({-1}));
    load_own_part(entry, received);
  }
  note_shards_written(module);
}

}  // namespace fsdp
