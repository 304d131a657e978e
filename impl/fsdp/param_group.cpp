#include "fsdp/param_group.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <set>
#include <utility>

#include "fsdp/errors.hpp"
#include "fsdp/python_text.hpp"
#include "fsdp/storage.hpp"

namespace fsdp {

FSDPParamGroup::FSDPParamGroup(const std::vector<ManagedParameter>& parameters, GroupRanks ranks,
                               ShardedState after_forward_, MixedPrecisionPolicy policy,
                               ShardPlacementFn placement, Seams seams)
    : after_forward(after_forward_),
      ranks_(std::move(ranks)),
      policy_(std::move(policy)),
      seams_(std::move(seams)) {
  unit_.rank = ranks_.shard->rank();
  unit_.ranks = ranks_.shard->size();
  unit_.replicas = ranks_.replicate ? ranks_.replicate->size() : 1;
  for (const auto& [parameter, name] : parameters) {
    const auto dim = placement ? placement(parameter).value_or(0) : 0;
    params_.push_back(
        std::make_unique<FSDPParam>(parameter, name, dim, unit_.rank, unit_.ranks, *seams_.shard));
  }
  const at::NoGradGuard no_grad;
  lay_out(params_.front()->parameter().device(), true);
}

FSDPParamGroup::~FSDPParamGroup() {
  if (context_->reducing == this) context_->reducing = nullptr;
  std::erase(context_->post_forward_order, this);
}

// Shards of one dtype share one buffer in group order: the all-gather then copies them in at once.
void FSDPParamGroup::lay_out(at::Device device, bool first) {
  const auto dtype_of = [&](const FSDPParam& param) {
    const auto dtype = param.parameter().scalar_type();
    return first ? seams_.cast->shard_dtype(policy_, dtype) : dtype;
  };
  std::vector<at::Tensor> pieces;
  for (size_t begin = 0; begin < params_.size();) {
    const auto dtype = dtype_of(*params_[begin]);
    size_t end = begin;
    int64_t numel = 0;
    for (; end < params_.size() && dtype_of(*params_[end]) == dtype; ++end)
      numel += params_[end]->padded_shard_numel();
    const auto buffer = at::empty({numel}, at::TensorOptions(device).dtype(dtype));
    int64_t offset = 0;
    for (; begin < end; ++begin) {
      pieces.push_back(alias(buffer, offset, {params_[begin]->padded_shard_numel()}));
      offset += params_[begin]->padded_shard_numel();
    }
  }
  const auto padding = seams_.shard->padding_value();
  for (size_t i = 0; i < params_.size(); ++i) {
    first ? params_[i]->shard_into(pieces[i], padding) : params_[i]->move_into(pieces[i], padding);
  }
}

void FSDPParamGroup::adopt_replaced_parameters() {
  const auto replaced = [](const auto& param) { return param->was_replaced(); };
  if (std::none_of(params_.begin(), params_.end(), replaced)) return;
  auto device = ranks_.shard->device();
  for (const auto& param : params_) {
    if (param->parameter().is_meta()) device = at::kMeta;
  }
  const at::NoGradGuard no_grad;
  lay_out(device, false);
  lazily_initialized_ = false;
}

void FSDPParamGroup::materialize(at::Device device) {
  const at::NoGradGuard no_grad;
  lay_out(device, false);
}

void FSDPParamGroup::lazy_init() {
  if (sharded_state_ == ShardedState::sharded) adopt_replaced_parameters();
  if (lazily_initialized_) return;

  std::vector<std::string> on_meta;
  for (const auto& param : params_) {
    if (param->parameter().is_meta()) on_meta.push_back(param->name());
  }
  if (!on_meta.empty()) {
    throw RuntimeError(
        "FSDP parameters should be materialized from meta device before training, but the following were "
        "still on meta "
        "device: " +
        python_list(on_meta) +
        "\nFor example, call module.to_empty(device) to materialize to device and call "
        "module.reset_parameters() on each "
        "module to initialize values.");
  }
  std::set<at::ScalarType> orig_dtypes;
  std::set<std::optional<at::ScalarType>> reduce_dtypes;
  for (const auto& param : params_) {
    param->init_dtype_attrs(policy_, *seams_.cast);
    if (!param->parameter().requires_grad()) continue;
    orig_dtypes.insert(param->orig_dtype());
    reduce_dtypes.insert(param->reduce_dtype());
  }
  if (orig_dtypes.size() > 1) {
    throw AssertionError("FSDP expects uniform original parameter dtype but got " + python_set(orig_dtypes));
  }
  if (reduce_dtypes.size() > 1) {
    std::set<at::ScalarType> dtypes;
    for (const auto& dtype : reduce_dtypes) dtypes.insert(dtype.value_or(at::kFloat));
    throw AssertionError("FSDP expects uniform reduce dtype but got " + python_set(dtypes));
  }
  lazily_initialized_ = true;
}

void FSDPParamGroup::set_name(const std::string& name) {
  unit_.name = name;
  site_.unit = name;
  site_.has_unit = true;
}

CallSite FSDPParamGroup::call_site() const {
  auto site = site_;
  switch (unit_.training_state) {
    case TrainingState::idle:
      site.phase = Phase::other;
      break;
    case TrainingState::forward:
      site.phase = Phase::forward;
      break;
    default:
      site.phase = Phase::backward;
  }
  return site;
}

void FSDPParamGroup::finalize_backward() {
  wait_for_reduction();
  // A gather that nobody waited for was prefetched for a unit that did not run.
  if (gathering_) {
    const auto result = std::move(*gathering_);
    gathering_.reset();
    if (result.work) result.work->wait();
    free_unsharded();
  }
  post_forward_indices_.clear();
}

void FSDPParamGroup::abandon_backward() {
  unit_.training_state = TrainingState::idle;
  if (context_->reducing == this) context_->reducing = nullptr;
  reducing_.reset();  // its transfers are still waited for, their result is not used
  finalize_backward();
}

void FSDPParamGroup::pre_forward() {
  unit_.training_state = TrainingState::forward;
  unshard();
  wait_for_unshard();
}

void FSDPParamGroup::post_forward(bool record) {
  if (record) {
    reshard();
    if (at::GradMode::is_enabled()) {
      post_forward_indices_.push_back(static_cast<int64_t>(context_->post_forward_order.size()));
      context_->post_forward_order.push_back(this);
    }
  }
  unit_.training_state = TrainingState::idle;
}

void FSDPParamGroup::pre_backward(bool default_prefetch) {
  if (unit_.training_state == TrainingState::pre_backward) return;
  unit_.training_state = TrainingState::pre_backward;
  unshard();
  wait_for_unshard();
  if (default_prefetch) backward_prefetch();
}

void FSDPParamGroup::backward_prefetch() {
  if (post_forward_indices_.empty()) return;
  const auto index = post_forward_indices_.back();
  post_forward_indices_.pop_back();
  const auto target = seams_.prefetch->in_backward(unit_, index);
  if (!target || *target < 0 || *target >= static_cast<int64_t>(context_->post_forward_order.size())) return;
  context_->post_forward_order[static_cast<size_t>(*target)]->prefetch(TrainingState::pre_backward);
}

void FSDPParamGroup::prefetch(TrainingState pass) {
  const auto before = std::exchange(unit_.training_state, pass);
  unshard();
  unit_.training_state = before;
}

void FSDPParamGroup::post_backward() {
  unit_.training_state = TrainingState::post_backward;
  const at::NoGradGuard no_grad;
  for (const auto& param : params_) param->accumulate_unsharded_grad_if_needed(*seams_.accumulate);
  const bool reduces = seams_.reduce->reduces(unit_, reduce_grads);
  if (reduces) {
    reduce_gradients();
    return;
  }
  if (seams_.reshard->after_backward(unit_, reshard_after_backward)) reshard();
  for (const auto& param : params_) param->to_accumulated_grad_if_needed(*seams_.accumulate);
}

void FSDPParamGroup::reduce_gradients() {
  ReduceInput input;
  for (const auto& param : params_) {
    auto gradient = param->take_unsharded_grad();
    if (!gradient.defined())
      gradient = seams_.reduce->unreached(param->parameter(), param->layout().global_shape);
    if (!gradient.defined()) continue;
    input.params.push_back(param.get());
    input.gradients.push_back(std::move(gradient));
    if (!input.reduce_dtype) input.reduce_dtype = param->reduce_dtype();
  }
  if (seams_.reshard->after_backward(unit_, reshard_after_backward)) reshard();
  if (input.params.empty()) return;
  input.divide_factor = gradient_divide_factor;
  input.force_sum = force_sum_reduction_for_comms;

  if (context_->reducing) context_->reducing->wait_for_reduction();
  all_reduces_ = seams_.reduce->all_reduces(unit_, all_reduce_grads);
  reducing_ = foreach_reduce(unit_, std::move(input), *ranks_.shard, *seams_.reduce, call_site());
  context_->reducing = this;
}

void FSDPParamGroup::wait_for_reduction() {
  if (!reducing_) return;
  const at::NoGradGuard no_grad;
  if (context_->reducing == this) context_->reducing = nullptr;
  auto result = std::move(*reducing_);
  reducing_.reset();
  const auto orig_dtype = result.params.front()->orig_dtype();
  auto site = call_site();
  site.phase = Phase::backward;
  finish_reduce(std::move(result),
                {ranks_.replicate.get(), all_reduces_, &partial_reduce_output_, all_reduce_hook, orig_dtype},
                *seams_.accumulate, site);
}

}  // namespace fsdp
