// The methods of FSDPModule.
#include <typeinfo>
#include <utility>

#include "fsdp/fully_shard.hpp"
#include "fsdp/init.hpp"
#include "fsdp/state.hpp"

namespace fsdp {
namespace {

template <class Apply>
void for_each_group(FSDPState& state, bool recurse, Apply apply) {
  for (const auto& module : state.modules()) {
    if (!recurse) continue;
    for (const auto& descendant : module->modules(/*include_self=*/false)) {
      const auto nested = FSDPState::of(*descendant);
      if (nested && nested->group()) apply(*nested, *nested->group());
    }
  }
  if (state.group()) apply(state, *state.group());
}

std::vector<std::weak_ptr<FSDPState>> states_of(
    const std::vector<std::shared_ptr<torch::nn::Module>>& modules) {
  std::vector<std::weak_ptr<FSDPState>> states;
  for (const auto& module : modules) {
    const auto state = FSDPState::of(*module);
    if (!state) throw ValueError("Expects FSDPModule but got " + module->name() + ": " + c10::str(*module));
    states.push_back(state);
  }
  return states;
}

struct PythonType {
  const char* operator()(std::monostate) const { return "<class 'NoneType'>"; }
  const char* operator()(bool) const { return "<class 'bool'>"; }
  const char* operator()(int64_t) const { return "<class 'int'>"; }
  const char* operator()(double) const { return "<class 'float'>"; }
  const char* operator()(const std::string&) const { return "<class 'str'>"; }
};

}  // namespace

void UnshardHandle::wait() {
  if (auto state = std::exchange(state_, nullptr); state && state->group())
    state->group()->wait_for_unshard();
}

FSDPModule FSDPModule::of(const torch::nn::Module& module) {
  auto state = FSDPState::of(module);
  if (!state) throw AssertionError("No FSDP state found on " + c10::str(module));
  return FSDPModule(std::move(state));
}

bool FSDPModule::is(const torch::nn::Module& module) {
  return FSDPState::of(module) != nullptr;
}

void FSDPModule::reshard() {
  if (state_->group()) state_->group()->reshard();
}

std::optional<UnshardHandle> FSDPModule::unshard(bool async_op) {
  if (auto* group = state_->group()) {
    group->lazy_init();
    group->unshard();
    if (!async_op) group->wait_for_unshard();
  }
  return async_op ? std::optional(UnshardHandle(state_)) : std::nullopt;
}

void FSDPModule::set_is_last_backward(bool is_last_backward) {
  state_->context().is_last_backward = is_last_backward;
}

void FSDPModule::set_requires_gradient_sync(bool requires_gradient_sync, bool recurse) {
  for_each_group(*state_, recurse, [=](FSDPState&, FSDPParamGroup& group) {
    group.reduce_grads = requires_gradient_sync;
    group.all_reduce_grads = requires_gradient_sync;
  });
}

void FSDPModule::set_requires_all_reduce(bool requires_all_reduce, bool recurse) {
  for_each_group(*state_, recurse,
                 [=](FSDPState&, FSDPParamGroup& group) { group.all_reduce_grads = requires_all_reduce; });
}

void FSDPModule::set_reshard_after_forward(const ReshardAfterForward& reshard_after_forward, bool recurse) {
  const auto* reshard = std::get_if<bool>(&reshard_after_forward);
  if (!reshard) {
    throw ValueError(std::string("reshard_after_forward should be a bool, got ") +
                     std::visit(PythonType{}, reshard_after_forward));
  }
  state_->auto_reshard_after_forward = false;
  for_each_group(*state_, recurse, [reshard](FSDPState& state, FSDPParamGroup& group) {
    state.auto_reshard_after_forward = false;
    group.after_forward = *reshard ? ShardedState::sharded : ShardedState::unsharded;
  });
}

void FSDPModule::set_reshard_after_backward(bool reshard_after_backward, bool recurse) {
  for_each_group(*state_, recurse, [=](FSDPState&, FSDPParamGroup& group) {
    group.reshard_after_backward = reshard_after_backward;
  });
}

void FSDPModule::set_modules_to_forward_prefetch(
    const std::vector<std::shared_ptr<torch::nn::Module>>& modules) {
  state_->states_to_forward_prefetch = states_of(modules);
}

void FSDPModule::set_modules_to_backward_prefetch(
    const std::vector<std::shared_ptr<torch::nn::Module>>& modules) {
  state_->states_to_backward_prefetch = states_of(modules);
}

void FSDPModule::set_all_reduce_hook(std::function<void(at::Tensor)> hook) {
  if (state_->group()) state_->group()->all_reduce_hook = std::move(hook);
}

void FSDPModule::set_gradient_divide_factor(double factor) {
  if (state_->group()) state_->group()->gradient_divide_factor = factor;
}

void FSDPModule::set_force_sum_reduction_for_comms(bool enable) {
  if (state_->group()) state_->group()->force_sum_reduction_for_comms = enable;
}

void FSDPModule::set_unshard_in_backward(bool unshard_in_backward) {
  if (state_->group()) state_->group()->unshard_in_backward = unshard_in_backward;
}

TrainingState FSDPModule::training_state() const {
  return state_->training_state();
}

ShardedState FSDPModule::sharded_state() const {
  return state_->group() ? state_->group()->sharded_state() : ShardedState::sharded;
}

bool FSDPModule::is_root() const {
  return state_->is_root();
}

const MixedPrecisionPolicy& FSDPModule::mp_policy() const {
  return state_->policy();
}

ReshardAfterForward FSDPModule::reshard_after_forward() const {
  const auto* group = state_->group();
  if (!group) return std::monostate{};
  if (group->after_forward == ShardedState::sharded_post_forward) return group->ranks().post_forward->size();
  return group->after_forward == ShardedState::sharded;
}

}  // namespace fsdp
