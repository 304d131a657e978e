#include "flat/whole_parameters.hpp"

#include <ATen/ops/empty.h>

#include "base/storage.hpp"
#include "fsdp/errors.hpp"

namespace fsdp::flat {

void require_idle(FlatState& state) {
  state.leave_failed_backward();
  if (state.training_state() != TrainingState::idle) {
    throw InvalidState("A state dict of the FSDP module '" + state.unit().name +
                       "' can be saved or loaded only outside forward, backward and summon_full_params.");
  }
}

void take_over_changes(FlatState& state) {
  require_idle(state);
  auto& flat = *state.flat();
  // Between forward and backward some strategies still show whole parameters: the shard is what counts.
  if (flat.shown() == Shown::kept) state.show_sharded();
  // The first forward does so for all units; before it a cast must not be taken for a write.
  if (state.context().all_states.empty()) flat.follow_moves();
  flat.writeback().take_over();
}

std::vector<at::Tensor> gather_windows(FlatState& state, const at::Tensor& shard) {
  const auto& flat_shard = state.flat()->shard();
  const auto& layout = flat_shard.layout();
  const auto& members = flat_shard.members();
  auto whole = shard;
  if (flat_shard.sharded()) {
    const auto device = flat_shard.settings().compute_device;
    whole = at::empty({layout.padded_numel}, shard.options().requires_grad(false).device(device));
    state.ranks().shard->all_gather(whole, shard.to(device), state.call_site(Phase::state_dict))->wait();
  }
  std::vector<at::Tensor> windows;
  for (size_t i = 0; i < members.size(); ++i)
    windows.push_back(alias(whole, layout.members[i].offset, members[i].shape));
  return windows;
}

WholeParameters::WholeParameters(FlatState& state) {
  take_over_changes(state);
  windows_ = gather_windows(state, state.flat()->shard().tensor());
}

ShardLayout rows_of(const FlatState& state, at::IntArrayRef shape) {
  const bool sharded = state.flat()->shard().sharded();
  const auto ranks = sharded ? state.unit().ranks : 1;
  const auto rows = chunk_rows(shape[0], ranks, sharded ? state.unit().rank : 0);
  return {shape.vec(), 0, rows.begin, rows.end - rows.begin, chunk_size(shape[0], ranks)};
}

ShardedTensor as_rows(const FlatState& state, const at::Tensor& whole) {
  const auto layout = rows_of(state, whole.sizes());
  return {whole.narrow(0, layout.start, layout.length).clone(), layout,
          state.flat()->shard().sharded() ? state.ranks().shard : nullptr};
}

void prepare_for_loading(FlatState& state) {
  if (!state.flat()) return;
  take_over_changes(state);
  state.flat()->shard_changed();
}

void load_whole(FlatState& state, size_t member, const at::Tensor& whole) {
  const auto& shard = state.flat()->shard();
  const auto& part = shard.members()[member].part;
  if (!part.in_shard()) return;
  alias(shard.tensor(), part.offset, {part.length})
      .copy_(whole.reshape(-1).narrow(0, part.start, part.length));
}

}  // namespace fsdp::flat
