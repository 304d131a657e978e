#include "fsdp/flat/seams.hpp"

#include <c10/util/Exception.h>

#include <cstring>

#include "fsdp/storage.hpp"

namespace fsdp::flat {
namespace {

/// A few elements cost less to set than the tensor library takes to find out how.
void clear(const at::Tensor& window) {
  if (window.is_cpu()) {
    std::memset(window.mutable_data_ptr(), 0, window.nbytes());
  } else {
    at::Tensor target = window;
    target.zero_();
  }
}

}  // namespace

int64_t LayoutRule::alignment(bool use_orig_params, at::ScalarType compute_dtype) const {
  constexpr int64_t kBytes = 16;
  return use_orig_params ? kBytes / static_cast<int64_t>(c10::elementSize(compute_dtype)) : 1;
}

double LayoutRule::filler(bool use_orig_params) const {
  return use_orig_params ? 42.0 : 0.0;
}

int64_t LayoutRule::shard_numel(int64_t unsharded_numel, int64_t ranks) const {
  return (unsharded_numel + ranks - 1) / ranks;
}

at::ScalarType CastRule::compute_dtype(const MixedPrecision& policy, at::ScalarType original) const {
  return policy.param_dtype.value_or(original);
}

at::ScalarType CastRule::reduce_dtype(const MixedPrecision& policy, at::ScalarType original) const {
  return policy.reduce_dtype.value_or(policy.param_dtype.value_or(original));
}

bool CastRule::casts_as_root(const UnitContext& unit, const MixedPrecision& policy) const {
  return policy.cast_root_forward_inputs && (unit.is_root || unit.is_composable);
}

bool CastRule::casts_inputs(const UnitContext&, const MixedPrecision& policy) const {
  return policy.cast_forward_inputs;
}

at::Tensor CastRule::input(const at::Tensor& tensor, at::ScalarType dtype) const {
  return tensor.is_floating_point() && tensor.scalar_type() != dtype ? tensor.to(dtype) : tensor;
}

Division ReduceRule::division(int64_t ranks) const {
  int64_t before = 1;
  while (ranks % before == 0 && ranks > before * before) before *= 2;
  return {static_cast<double>(before), static_cast<double>(ranks) / static_cast<double>(before)};
}

bool ReduceRule::reduces(const UnitContext&, bool sync_gradients) const {
  return sync_gradients;
}

void ReduceRule::accumulate(at::Tensor& accumulated, const at::Tensor& gradient) const {
  accumulated.add_(gradient);
}

bool ReshardRule::frees_after_forward(const UnitContext& unit) const {
  // The root's parameters are the first that backward needs.
  return !unit.is_root &&
         (unit.strategy == ShardingStrategy::full_shard || unit.strategy == ShardingStrategy::hybrid_shard);
}

bool ReshardRule::frees_after_backward(const UnitContext& unit, bool sync_gradients) const {
  if (unit.strategy == ShardingStrategy::no_shard) return false;
  return sync_gradients || unit.strategy == ShardingStrategy::full_shard ||
         unit.strategy == ShardingStrategy::hybrid_shard;
}

bool ReshardRule::keeps_views_after_forward(const UnitContext& unit) const {
  return unit.strategy == ShardingStrategy::shard_grad_op ||
         unit.strategy == ShardingStrategy::hybrid_shard_zero2;
}

void ReshardRule::free(const UnitContext&, const at::Tensor& unsharded) const {
  free_storage(unsharded);
}

void GradientRule::unreached(const at::Tensor& window) const {
  clear(window);
}

void GradientRule::gap(const at::Tensor& window) const {
  clear(window);
}

void StateDictRule::warn_of_whole(const UnitContext&) const {
  TORCH_WARN("When using ``NO_SHARD`` for ``ShardingStrategy``, full_state_dict will be returned.");
}

std::optional<int64_t> PrefetchRule::in_backward(const UnitContext&, int64_t post_forward_index) const {
  if (post_forward_index == 0) return std::nullopt;
  return post_forward_index - 1;
}

std::optional<int64_t> PrefetchRule::in_forward(const UnitContext&, int64_t pre_forward_index) const {
  return pre_forward_index + 1;
}

bool WritebackRule::checks(const UnitContext&, bool skip_writeback_check) const {
  return !skip_writeback_check;
}

void WritebackRule::write(const at::Tensor& destination, const at::Tensor& source) const {
  at::Tensor target = destination;
  target.copy_(source);
}

Seams complete(Seams seams) {
  const auto fill = [](auto& rule) {
    using Rule = std::remove_const_t<typename std::remove_reference_t<decltype(rule)>::element_type>;
    if (!rule) rule = std::make_shared<const Rule>();
  };
  fill(seams.layout);
  fill(seams.cast);
  fill(seams.reduce);
  fill(seams.gradient);
  fill(seams.reshard);
  fill(seams.prefetch);
  fill(seams.writeback);
  fill(seams.hook);
  fill(seams.state_dict);
  return seams;
}

}  // namespace fsdp::flat
