#include "fsdp/flat/fully_sharded_data_parallel.hpp"

#include <c10/util/Exception.h>

#include "flat/init.hpp"
#include "flat/unit.hpp"
#include "fsdp/wrap/module_tree.hpp"

namespace fsdp::flat {

const char* python_name(ShardingStrategy strategy) {
  switch (strategy) {
    case ShardingStrategy::full_shard:
      return "FULL_SHARD";
    case ShardingStrategy::shard_grad_op:
      return "SHARD_GRAD_OP";
    case ShardingStrategy::no_shard:
      return "NO_SHARD";
    case ShardingStrategy::hybrid_shard:
      return "HYBRID_SHARD";
    case ShardingStrategy::hybrid_shard_zero2:
      return "_HYBRID_SHARD_ZERO2";
  }
  return "";
}

bool is_hybrid(ShardingStrategy strategy) {
  return strategy == ShardingStrategy::hybrid_shard || strategy == ShardingStrategy::hybrid_shard_zero2;
}

bool MixedPrecision::operator==(const MixedPrecision& other) const {
  return param_dtype == other.param_dtype && reduce_dtype == other.reduce_dtype &&
         buffer_dtype == other.buffer_dtype && keep_low_precision_grads == other.keep_low_precision_grads &&
         cast_forward_inputs == other.cast_forward_inputs &&
         cast_root_forward_inputs == other.cast_root_forward_inputs;
}

Scope::~Scope() {
  try {
    leave();
  } catch (const std::exception& error) {
    TORCH_WARN("Leaving a scope of FSDP failed: ", error.what());
  }
}

FullyShardedDataParallel::FullyShardedDataParallel(const std::shared_ptr<torch::nn::Module>& module,
                                                   const FSDPOptions& options) {
  if (is(*module)) {
    throw InvalidArgument("FullyShardedDataParallel has been applied to this module already:\n" +
                          c10::str(*module));
  }
  state_ = make_units(module, options, /*composable=*/false);
}

FullyShardedDataParallel fully_shard(const std::shared_ptr<torch::nn::Module>& module,
                                     const ComposableOptions& options) {
  if (FullyShardedDataParallel::is(*module)) {
    throw InvalidState(
        "Each distinct composable distributed API can only be applied to a module once. fully_shard has "
        "already been applied to the following module:\n" +
        c10::str(*module));
  }
  FSDPOptions all;
  all.process_group = options.process_group;
  all.replicate_group = options.replicate_group;
  all.auto_wrap_policy = options.policy;
  all.sharding_strategy = options.strategy;
  all.mixed_precision = options.mixed_precision;
  all.cpu_offload = options.cpu_offload;
  all.ignored_modules = options.ignored_modules;
  all.device_id = options.device_id;
  all.param_init_fn = options.param_init_fn;
  all.sync_module_states = options.sync_module_states;
  all.forward_prefetch = options.forward_prefetch;
  all.ignored_state_modules = options.ignored_state_modules;
  all.ignored_parameters = options.ignored_parameters;
  all.use_orig_params = true;
  make_units(module, all, /*composable=*/true);
  return FullyShardedDataParallel::of(*module);
}

FullyShardedDataParallel FullyShardedDataParallel::of(const torch::nn::Module& module) {
  auto state = FlatState::of(module);
  if (!state) throw InvalidState("No FSDP state found on " + c10::str(module));
  return FullyShardedDataParallel(std::move(state));
}

bool FullyShardedDataParallel::is(const torch::nn::Module& module) {
  return FlatState::of(module) != nullptr;
}

Scope FullyShardedDataParallel::no_sync() {
  state_->require_module();
  state_->lazy_init();
  if (!state_->is_root()) {
    throw RuntimeError(
        "`no_sync()` on inner FSDP instances is not supported. Please call `no_sync()` on root FSDP "
        "module.");
  }
  std::vector<std::pair<std::weak_ptr<FlatState>, bool>> before;
  for (const auto& weak : state_->context().all_states) {
    if (const auto state = weak.lock())
      before.emplace_back(state, std::exchange(state->sync_gradients, false));
  }
  return Scope([before = std::move(before)] {
    for (const auto& [weak, sync] : before) {
      if (const auto state = weak.lock()) state->sync_gradients = sync;
    }
  });
}

void FullyShardedDataParallel::register_comm_hook(
    std::function<void(at::Tensor gradient, at::Tensor shard)> hook) {
  const auto module = state_->require_module();
  state_->lazy_init();
  if (!state_->is_root()) throw InvalidState("register_comm_hook can only be called on a root instance.");
  const auto states = FlatState::all_under(*module);
  for (const auto& state : states) {
    if (is_hybrid(state->unit().strategy)) {
      throw InvalidState("Communication hook is not supported for hybrid strategies: ShardingStrategy." +
                         std::string(python_name(state->unit().strategy)));
    }
    if (state->comm_hook) throw InvalidState("A communication hook is already registered");
  }
  for (const auto& state : states) state->comm_hook = hook;
}

TrainingState FullyShardedDataParallel::training_state() const {
  return state_->training_state();
}
bool FullyShardedDataParallel::is_root() const {
  return state_->is_root();
}
bool FullyShardedDataParallel::is_composable() const {
  return state_->unit().is_composable;
}
const MixedPrecision& FullyShardedDataParallel::mixed_precision() const {
  return state_->mixed_precision();
}
ShardingStrategy FullyShardedDataParallel::sharding_strategy() const {
  return state_->unit().strategy;
}
BackwardPrefetch FullyShardedDataParallel::backward_prefetch() const {
  return state_->options().backward_prefetch;
}
bool FullyShardedDataParallel::forward_prefetch() const {
  return state_->options().forward_prefetch;
}
bool FullyShardedDataParallel::limit_all_gathers() const {
  return state_->options().limit_all_gathers;
}
bool FullyShardedDataParallel::cpu_offload() const {
  return state_->options().cpu_offload;
}
bool FullyShardedDataParallel::use_orig_params() const {
  return state_->options().use_orig_params;
}
int64_t FullyShardedDataParallel::rank() const {
  return state_->unit().rank;
}
int64_t FullyShardedDataParallel::world_size() const {
  return state_->unit().ranks;
}
const std::shared_ptr<Communicator>& FullyShardedDataParallel::process_group() const {
  return state_->ranks().shard;
}
HookCounters FullyShardedDataParallel::counters() const {
  return state_->counters;
}
at::Tensor FullyShardedDataParallel::flat_parameter() const {
  return state_->flat() ? state_->flat()->shard().flat_parameter() : at::Tensor();
}

std::vector<std::pair<std::string, FullyShardedDataParallel>> named_units(const torch::nn::Module& root) {
  std::vector<std::pair<std::string, FullyShardedDataParallel>> units;
  for (const auto& [name, module] : pre_order(const_cast<torch::nn::Module&>(root).shared_from_this())) {
    if (FullyShardedDataParallel::is(*module))
      units.emplace_back(name, FullyShardedDataParallel::of(*module));
  }
  return units;
}

}  // namespace fsdp::flat
