#include "fsdp/state.hpp"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <map>
#include <mutex>
#include <sstream>
#include <utility>

#include "fsdp/storage.hpp"

namespace fsdp {
namespace {

struct Registry {
  std::mutex mutex;
  std::map<const torch::nn::Module*, std::weak_ptr<FSDPState>> by_module;
  std::map<const c10::TensorImpl*, std::pair<std::weak_ptr<FSDPState>, size_t>> by_parameter;
};

Registry& registry() {
  static Registry instance;
  return instance;
}

bool in_backward() {
  return torch::autograd::get_current_graph_task_id() != -1;
}

}  // namespace

FSDPState::FSDPState(std::vector<std::shared_ptr<torch::nn::Module>> modules, MixedPrecisionPolicy policy,
                     Seams seams, bool auto_reshard_after_forward_)
    : auto_reshard_after_forward(auto_reshard_after_forward_),
      policy_(std::move(policy)),
      seams_(std::move(seams)) {
  for (const auto& module : modules) {
    modules_.push_back(module);
    module_keys_.push_back(module.get());
  }
}

FSDPState::~FSDPState() {
  group_.reset();  // before what its unsharded memory leaves behind is released
  const std::lock_guard lock(registry().mutex);
  std::erase_if(registry().by_module, [](const auto& entry) { return entry.second.expired(); });
  if (registry().by_module.empty()) release_kept_memory();
  std::erase_if(registry().by_parameter, [](const auto& entry) { return entry.second.first.expired(); });
}

std::shared_ptr<FSDPState> FSDPState::of(const torch::nn::Module& module) {
  const std::lock_guard lock(registry().mutex);
  const auto entry = registry().by_module.find(&module);
  return entry == registry().by_module.end() ? nullptr : entry->second.lock();
}

std::pair<std::shared_ptr<FSDPState>, size_t> FSDPState::of_parameter(const at::Tensor& parameter) {
  const std::lock_guard lock(registry().mutex);
  const auto entry = registry().by_parameter.find(parameter.unsafeGetTensorImpl());
  if (entry == registry().by_parameter.end()) return {nullptr, 0};
  return {entry->second.first.lock(), entry->second.second};
}

std::vector<std::shared_ptr<torch::nn::Module>> FSDPState::modules() const {
  std::vector<std::shared_ptr<torch::nn::Module>> alive;
  for (const auto& module : modules_) {
    if (auto locked = module.lock()) alive.push_back(std::move(locked));
  }
  return alive;
}

void FSDPState::install_hooks() {
  const auto modules = this->modules();
  for (size_t i = 0; i < modules.size(); ++i) {
    // The module owns its hooks and through them the state, never the other way round.
    install_forward_hooks(*modules[i], {[self = shared_from_this(), i](TensorList inputs) {
                                          return self->run_before(i, std::move(inputs));
                                        },
                                        [self = shared_from_this(), i](TensorList outputs) {
                                          return self->run_after(i, std::move(outputs));
                                        }});
  }
}

void FSDPState::activate(std::unique_ptr<FSDPParamGroup> group, at::Device device) {
  group_ = std::move(group);
  device_ = device;
  active_ = true;
  const std::lock_guard lock(registry().mutex);
  for (const auto* module : module_keys_) registry().by_module[module] = weak_from_this();
  if (!group_) return;
  for (size_t i = 0; i < group_->params().size(); ++i) {
    registry().by_parameter[group_->params()[i]->parameter().unsafeGetTensorImpl()] = {weak_from_this(), i};
  }
}

// With several modules the first to run gathers for all of them, the last to end reshards.
TensorList FSDPState::run_before(size_t module, TensorList inputs) {
  if (!active_) return inputs;
  if (modules_.size() == 1) return pre_forward(std::move(inputs));
  const bool first = modules_to_run_forward_.empty();
  if (first) {
    for (size_t i = 0; i < modules_.size(); ++i) modules_to_run_forward_.insert(i);
  }
  static_cast<void>(module);
  return first ? pre_forward(std::move(inputs)) : inputs;
}

TensorList FSDPState::run_after(size_t module, TensorList outputs) {
  if (!active_) return outputs;
  if (modules_.size() == 1) return post_forward(std::move(outputs));
  modules_to_run_forward_.erase(module);
  return modules_to_run_forward_.empty() ? post_forward(std::move(outputs)) : outputs;
}

TensorList FSDPState::pre_forward(TensorList inputs) {
  // Forward is being recomputed for activation checkpointing: the pre-backward hook has gathered, unless a
  // backward through another forward of this unit has freed since.
  if (training_state_ == TrainingState::pre_backward && in_backward()) {
    if (group_ && group_->sharded_state() != ShardedState::unsharded) {
      group_->unshard();
      group_->wait_for_unshard();
    }
    return inputs;
  }
  if (!in_backward() && context_->post_backward_final_callback_queued) abandon_backward(*context_);
  training_state_ = TrainingState::forward;
  root_pre_forward(inputs);
  for (auto& input : inputs) input = seams_.cast->input(policy_, input);
  if (group_) {
    group_->pre_forward();
    register_post_backward_hook(inputs);
  }
  for (const auto& weak : states_to_forward_prefetch) {
    if (const auto target = weak.lock(); target && target->group_)
      target->group_->prefetch(TrainingState::forward);
  }
  return inputs;
}

TensorList FSDPState::post_forward(TensorList outputs) {
  if (training_state_ == TrainingState::pre_backward) return outputs;
  if (group_) group_->post_forward(!in_backward());
  register_pre_backward_hooks(outputs);
  training_state_ = TrainingState::idle;
  if (context_->iter_forward_root == this) context_->iter_forward_root = nullptr;
  for (auto& output : outputs) output = seams_.cast->output(policy_, output);
  return outputs;
}

void FSDPState::root_pre_forward(TensorList& inputs) {
  lazy_init();
  if (context_->iter_forward_root && context_->iter_forward_root != this) return;
  context_->iter_forward_root = this;
  for (auto& input : inputs) {
    if (input.device() != device_) input = input.to(device_);
  }
}

void FSDPState::pre_backward() {
  training_state_ = TrainingState::pre_backward;
  queue_final_callback();
  if (group_) group_->pre_backward(states_to_backward_prefetch.empty());
  for (const auto& weak : states_to_backward_prefetch) {
    if (const auto target = weak.lock(); target && target->group_)
      target->group_->prefetch(TrainingState::pre_backward);
  }
}

void FSDPState::post_backward() {
  if (group_) group_->post_backward();
}

}  // namespace fsdp
