// The rarer moments of a unit: who is root, and buffers of another dtype.
#include <ATen/core/grad_mode.h>

#include <set>
#include <unordered_set>
#include <utility>

#include "fsdp/errors.hpp"
#include "fsdp/flat/execution_order.hpp"
#include "fsdp/flat/state.hpp"
#include "fsdp/wrap/module_tree.hpp"

namespace fsdp::flat {
namespace {

void require_expected_device(const FlatParameter& flat, const FSDPOptions& options, at::Device compute) {
  const auto device = flat.local_shard().device();
  if (options.cpu_offload && !device.is_cpu()) {
    throw RuntimeError("An FSDP-managed module with parameter CPU offloading enabled has parameters on " +
                       device.str() +
                       ". Make sure to not move the module from CPU when offloading parameters.");
  }
  if (!options.cpu_offload && device.type() != compute.type()) {
    throw RuntimeError("An FSDP-managed module unexpectedly has parameters on " + device.str() +
                       ". Make sure to move the module to " + compute.str() + " before training.");
  }
}

void require_homogeneous(const char* name, const std::set<bool>& values) {
  if (values.size() > 1)
    throw ValueError(std::string("Expects one homogeneous value for ") + name + " but got {False, True}");
}

}  // namespace

// Whoever runs forward first is the root of all units below it.
void FlatState::lazy_init() {
  if (is_root_) return;
  const auto module = module_.lock();
  std::vector<std::shared_ptr<FlatState>> states;
  std::vector<std::string> names;
  for (const auto& [name, below] : pre_order(module)) {
    if (auto state = of(*below)) {
      states.push_back(std::move(state));
      names.push_back(name);
    }
  }
  std::set<bool> use_orig_params, limit_all_gathers, full_precision_in_eval;
  for (const auto& state : states) {
    if (state->flat_) {
      state->flat_->follow_moves();
      require_expected_device(*state->flat_, state->options_, state->device_);
    }
    use_orig_params.insert(state->options_.use_orig_params);
    limit_all_gathers.insert(state->options_.limit_all_gathers);
    full_precision_in_eval.insert(state->full_precision_in_eval_);
    if (state.get() != this && state->is_root()) {
      throw AssertionError(
          "Non-root FSDP instance's `_is_root` should not have been set yet or should have been set to "
          "`False`");
    }
  }
  require_homogeneous("_use_orig_params", use_orig_params);
  require_homogeneous("limit_all_gathers", limit_all_gathers);
  require_homogeneous("_use_full_prec_in_eval", full_precision_in_eval);

  std::vector<FlatState*> with_parameters;
  for (size_t i = 0; i < states.size(); ++i) {
    auto& state = *states[i];
    state.is_root_ = &state == this;
    state.context_ = context_;
    state.unit_.is_root = state.is_root();
    state.unit_.name = names[i];
    if (state.flat_) {
      state.flat_->unit() = state.unit_;
      with_parameters.push_back(&state);
    }
    context_->all_states.push_back(states[i]);
  }
  if (ExecutionOrderCheck::wanted())
    context_->order_check = std::make_shared<ExecutionOrderCheck>(std::move(with_parameters), ranks_.shard);
  init_buffers(states);
}

// Each buffer goes by the innermost unit above it.
void FlatState::init_buffers(const std::vector<std::shared_ptr<FlatState>>& states) {
  const at::NoGradGuard no_grad;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (auto state = states.rbegin(); state != states.rend(); ++state) {
    for (const auto& entry : (*state)->module()->named_buffers()) {
      const auto& buffer = entry.value();
      if (!buffer.defined() || !seen.insert(buffer.unsafeGetTensorImpl()).second) continue;
      if (buffer.device() != (*state)->device_) buffer.set_data(buffer.to((*state)->device_));
      const auto dtype = (*state)->mixed_precision_.buffer_dtype;
      if (!dtype || !buffer.is_floating_point() || buffer.scalar_type() == *dtype) continue;
      cast_buffers_.push_back({buffer, buffer.scalar_type()});
      low_buffer_dtypes_.push_back(*dtype);
      buffer.set_data(buffer.to(*dtype));
    }
  }
}

void FlatState::switch_buffers() {
  bool full = flat_ && full_precision();
  if (!flat_) {
    for (const auto& weak : context_->all_states) {
      if (const auto state = weak.lock()) full = full || state->full_precision();
    }
  }
  if (full == buffers_restored_) return;
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < cast_buffers_.size(); ++i) {
    auto& [buffer, original] = cast_buffers_[i];
    buffer.set_data(buffer.to(full ? original : low_buffer_dtypes_[i]));
  }
  buffers_restored_ = full;
}

}  // namespace fsdp::flat
