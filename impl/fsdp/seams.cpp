#include "fsdp/seams.hpp"

#include <algorithm>
#include <cmath>

namespace fsdp {
namespace {

template <class Rule, class Default = Rule>
void fill(std::shared_ptr<const Rule>& rule) {
  static const auto correct = std::make_shared<const Default>();
  if (!rule) rule = correct;
}

/// From here on a message of its own costs less than the copies it saves: measured over loopback.
bool is_large(const Slot& slot, at::ScalarType dtype) {
  return slot.numel * static_cast<int64_t>(c10::elementSize(dtype)) >= (int64_t{1} << 17);
}

class DefaultGatherRule : public GatherRule {
 public:
  bool in_place(const UnitContext&, const Slot& slot, at::ScalarType dtype) const override {
    return is_large(slot, dtype);
  }
};

class DefaultReduceRule : public ReduceRule {
 public:
  bool in_place(const UnitContext&, const Slot& slot, at::ScalarType dtype) const override {
    return is_large(slot, dtype);
  }
};

at::Tensor cast_floating_point(const at::Tensor& tensor, at::ScalarType dtype) {
  return tensor.is_floating_point() && tensor.scalar_type() != dtype ? tensor.to(dtype) : tensor;
}

/// Largest power of two that divides `factor` and is not above about its square root: dividing by it before
/// the reduction and by the rest after keeps narrow dtypes clear of overflow and underflow.
double pre_divide_factor(double factor) {
  double pre = 1;
  while (std::fmod(factor, pre) == 0 && factor / pre > pre) pre *= 2;
  return pre;
}

}  // namespace

int64_t ShardRule::chunk(int64_t size, int64_t ranks) const {
  return (size + ranks - 1) / ranks;
}

Rows ShardRule::rows(int64_t size, int64_t ranks, int64_t rank) const {
  const auto height = chunk(size, ranks);
  const auto begin = std::min(rank * height, size);
  return {begin, std::min(begin + height, size)};
}

at::ScalarType CastRule::shard_dtype(const MixedPrecisionPolicy&, at::ScalarType original) const {
  return original;
}

at::ScalarType CastRule::gather_dtype(const MixedPrecisionPolicy& policy, at::ScalarType original) const {
  return policy.param_dtype.value_or(original);
}

std::optional<at::ScalarType> CastRule::reduce_dtype(const MixedPrecisionPolicy& policy,
                                                     at::ScalarType) const {
  return policy.reduce_dtype == policy.param_dtype ? std::nullopt : policy.reduce_dtype;
}

at::Tensor CastRule::input(const MixedPrecisionPolicy& policy, const at::Tensor& tensor) const {
  return policy.cast_forward_inputs && policy.param_dtype ? cast_floating_point(tensor, *policy.param_dtype)
                                                          : tensor;
}

at::Tensor CastRule::output(const MixedPrecisionPolicy& policy, const at::Tensor& tensor) const {
  return policy.output_dtype ? cast_floating_point(tensor, *policy.output_dtype) : tensor;
}

ReducePlan ReduceRule::plan(const ReduceContext& context) const {
  const auto data_parallel_size = context.unit.ranks * context.unit.replicas;
  const auto factor = context.divide_factor;
  const bool narrow_range = context.dtype != at::kFloat && context.dtype != at::kBFloat16;
  if (!narrow_range && !context.force_sum) {
    if (!factor && data_parallel_size == 1) return {};
    if (!factor) return {std::nullopt, {ReduceOp::avg}, {ReduceOp::avg}, std::nullopt};
    if (*factor == static_cast<double>(context.unit.ranks)) {
      return {std::nullopt, {ReduceOp::avg}, {ReduceOp::sum}, std::nullopt};
    }
    return {std::nullopt, {ReduceOp::premul_sum, 1.0 / *factor}, {ReduceOp::sum}, std::nullopt};
  }
  const auto divisor = factor.value_or(static_cast<double>(data_parallel_size));
  if (!narrow_range) return {std::nullopt, {}, {}, divisor};
  const auto pre = pre_divide_factor(divisor);
  return {pre, {}, {}, divisor / pre};
}

bool ReduceRule::reduces(const UnitContext&, bool requires_gradient_sync) const {
  return requires_gradient_sync;
}

bool ReduceRule::all_reduces(const UnitContext&, bool requires_all_reduce) const {
  return requires_all_reduce;
}

at::Tensor ReduceRule::unreached(const at::Tensor&, at::IntArrayRef) const {
  return {};
}

at::ScalarType AccumulateRule::waiting_dtype(at::ScalarType gradient,
                                             std::optional<at::ScalarType> reduce_dtype) const {
  return reduce_dtype.value_or(gradient);
}

void AccumulateRule::add_unsharded(at::Tensor& accumulated, const at::Tensor& gradient) const {
  accumulated.add_(gradient);
}

void AccumulateRule::add_sharded(const at::Tensor& parameter, const at::Tensor& gradient) const {
  auto& existing = parameter.mutable_grad();
  if (existing.defined()) {
    existing.add_(gradient);
  } else {
    existing = gradient;
  }
}

ShardedState ReshardRule::after_forward(const UnitContext&, ShardedState configured) const {
  return configured;
}

bool ReshardRule::after_backward(const UnitContext&, bool configured) const {
  return configured;
}

std::optional<int64_t> PrefetchRule::in_backward(const UnitContext&, int64_t post_forward_index) const {
  return post_forward_index > 0 ? std::optional(post_forward_index - 1) : std::nullopt;
}

Seams complete(Seams seams) {
  fill(seams.shard);
  fill(seams.cast);
  fill<GatherRule, DefaultGatherRule>(seams.gather);
  fill<ReduceRule, DefaultReduceRule>(seams.reduce);
  fill(seams.accumulate);
  fill(seams.reshard);
  fill(seams.prefetch);
  fill(seams.state_dict);
  return seams;
}

}  // namespace fsdp
