// Scopes in which parameters are whole.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <c10/util/Exception.h>

#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "base/storage.hpp"
#include "flat/unit.hpp"
#include "fsdp/errors.hpp"
#include "fsdp/flat/fully_sharded_data_parallel.hpp"

namespace fsdp::flat {
namespace {

std::string python_bool(bool value) {
  return value ? "True" : "False";
}

void validate(const FlatState& state, const SummonOptions& options) {
  if (options.with_grads && (options.offload_to_cpu || !state.options().use_orig_params)) {
    throw NotImplemented("with_grads=" + python_bool(options.with_grads) +
                         ", use_orig_params=" + python_bool(state.options().use_orig_params) +
                         ", offload_to_cpu=" + python_bool(options.offload_to_cpu) + " is not supported yet");
  }
  if (options.offload_to_cpu && state.flat() && !state.flat()->shard().sharded())
    throw NotImplemented("offload_to_cpu=True and NO_SHARD is not supported yet");
  if (options.writeback && options.rank0_only)
    throw NotImplemented("writeback=True and rank0_only=True is not supported yet");
  if (options.offload_to_cpu && !options.rank0_only) {
    TORCH_WARN(
        "offload_to_cpu=True and rank0_only=False may result in the unsharded parameters being redundantly "
        "copied to CPU memory for GPUs sharing the same CPU memory, which risks CPU OOM. We recommend using "
        "offload_to_cpu=True with rank0_only=True.");
  }
}

/// One unit in a summon scope.
class Summoned {
 public:
  Summoned(std::shared_ptr<FlatState> state, const SummonOptions& options)
      : state_(std::move(state)), options_(options) {}

  void enter() {
    validate(*state_, options_);
    state_->lazy_init();
    state_->leave_failed_backward();
    if (state_->training_state() == TrainingState::forward_backward)
      throw InvalidState("Cannot manually unshard parameters during forward/backward");
    if (state_->training_state() == TrainingState::summon_full_params)
      throw InvalidState("Cannot manually unshard parameters when already unsharding parameters");
    if (auto* flat = state_->flat()) gather(*flat);
    state_->set_training_state(TrainingState::summon_full_params);
  }

  void leave() {
    state_->set_training_state(TrainingState::idle);
    state_->set_handle_state(HandleState::idle);
    if (shown_) put_back(*state_->flat());
  }

 private:
  void gather(FlatParameter& flat) {
    const at::NoGradGuard no_grad;
    state_->set_handle_state(HandleState::summon_full_params);
    try {
      frees_ = !flat.is_gathered(/*full_precision=*/true);
      state_->unshard(state_->call_site(Phase::other));
    } catch (...) {
      state_->set_handle_state(HandleState::idle);
      throw;
    }
    state_->wait_and_show();
    // What was whole stays so, and must not be computed with as a user leaves it.
    if (!frees_ && !options_.writeback && flat.shard().sharded())
      kept_ = flat.whole(/*full_precision=*/true).clone();
    shown_ = true;
    if (options_.with_grads) gather_gradient(flat);
    if (options_.rank0_only && state_->unit().rank != 0) {
      put_back(flat);
      return;
    }
    if (!state_->options().use_orig_params) flat.register_originals();
    if (options_.offload_to_cpu) move_windows(flat, at::kCPU);
  }

  void put_back(FlatParameter& flat) {
    const at::NoGradGuard no_grad;
    if (!flat.is_gathered(/*full_precision=*/true)) return put_back_without_memory(flat);
    if (options_.offload_to_cpu) return_windows(flat);
    if (!state_->options().use_orig_params) flat.register_flat();
    if (options_.writeback) flat.write_shard_back(flat.whole(/*full_precision=*/true));
    if (options_.with_grads && flat.shard().sharded() && has_gradient_) {
      const auto& whole = flat.gradient().whole();
      if (options_.writeback && flat.gradient().sharded().defined()) {
        at::Tensor shard = flat.gradient().sharded();
        shard.copy_(alias(whole, flat.shard().index() * flat.shard().layout().shard_numel, {shard.numel()}));
      }
      flat.gradient().set_whole({});
    }
    state_->show_sharded();
    if (kept_.defined()) flat.whole(/*full_precision=*/true).copy_(std::exchange(kept_, {}));
    if (frees_) flat.free_unsharded(/*full_precision=*/true);
    if (options_.with_grads) flat.gradient().expose();
    shown_ = false;
  }

  /// A forward inside the scope has freed what the scope gathered: nothing is left to write back.
  void put_back_without_memory(FlatParameter& flat) {
    if (!state_->options().use_orig_params) flat.register_flat();
    if (options_.with_grads && flat.shard().sharded() && has_gradient_) flat.gradient().set_whole({});
    state_->show_sharded();
    throw InvalidState(
        "The parameters of the FSDP module '" + state_->unit().name +
        "' were resharded inside summon_full_params, as a forward does; what was changed in the "
        "scope is lost.");
  }

  /// Ranks without a gradient contribute zeros, in the dtype that those with one keep it in, unless no rank has one.
  void gather_gradient(FlatParameter& flat) {
    if (!flat.shard().sharded() || flat.gradient().whole().defined()) return;
    enum Kept { nowhere, in_original_dtype, in_low_precision };
    auto& group = *state_->ranks().shard;
    const auto site = state_->call_site(Phase::other);
    const auto& own = flat.gradient().sharded();
    auto options =
        flat.shard().tensor().options().requires_grad(false).device(flat.shard().settings().compute_device);
    const Kept kept = !own.defined()                                       ? nowhere
                      : own.scalar_type() == flat.shard().original_dtype() ? in_original_dtype
                                                                           : in_low_precision;
    const auto of_all = at::full({1}, static_cast<double>(kept), options);
    group.all_reduce(of_all, {ReduceOp::max}, site)->wait();
    const auto most = static_cast<Kept>(of_all.item<double>());
    if (most == nowhere) return;
    if (most == in_low_precision) options = options.dtype(flat.shard().compute_dtype());
    const auto shard =
        own.defined() ? own.to(options) : at::full({flat.shard().layout().shard_numel}, 0.0, options);
    const auto whole = at::empty({flat.shard().layout().padded_numel}, options);
    group.all_gather(whole, shard, site)->wait();
    flat.gradient().set_whole(whole);
    flat.gradient().expose();
    has_gradient_ = true;
  }

  /// Parameters move; the gathered memory of the device stays, to take their changes back.
  void move_windows(FlatParameter& flat, at::Device device) {
    if (flat.whole(/*full_precision=*/true).device() == device) return;
    for (const auto& member : flat.shard().members())
      member.parameter.set_data(member.parameter.detach().to(device));
  }
  void return_windows(FlatParameter& flat) {
    const auto& whole = flat.whole(/*full_precision=*/true);
    if (whole.is_cpu()) return;
    for (size_t i = 0; i < flat.shard().members().size(); ++i) {
      const auto& member = flat.shard().members()[i];
      alias(whole, flat.shard().layout().members[i].offset, member.shape).copy_(member.parameter.detach());
    }
  }

  std::shared_ptr<FlatState> state_;
  SummonOptions options_;
  bool frees_ = false, shown_ = false, has_gradient_ = false;
  at::Tensor kept_;  // the whole as it was before a scope without writeback
};

}  // namespace

Scope FullyShardedDataParallel::summon_full_params(const torch::nn::Module& module,
                                                   const SummonOptions& options) {
  std::vector<std::shared_ptr<FlatState>> states;
  if (options.recurse) {
    states = FlatState::all_under(module);
  } else if (auto state = FlatState::of(module)) {
    states.push_back(std::move(state));
  }
  auto entered = std::make_shared<std::vector<Summoned>>();
  // Every unit is put back, even if one of them cannot be.
  const auto leave = [entered] {
    std::exception_ptr first_error;
    while (!entered->empty()) {
      auto last = std::move(entered->back());
      entered->pop_back();
      try {
        last.leave();
      } catch (...) {
        if (!first_error) first_error = std::current_exception();
      }
    }
    if (first_error) std::rethrow_exception(first_error);
  };
  try {
    for (const auto& state : states) {
      Summoned summoned(state, options);
      summoned.enter();
      entered->push_back(std::move(summoned));
    }
  } catch (...) {
    leave();
    throw;
  }
  return Scope(leave);
}

}  // namespace fsdp::flat
